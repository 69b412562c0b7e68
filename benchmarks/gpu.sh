#!/usr/bin/env bash
# The GPU set, in under 8 minutes: 129M parameters in bf16, loopkit beside a plain loop, 1 to 8 loops, compiled and not.
# Writes JSON and a table into the folder of the first argument.
set -euo pipefail
out=${1:-build/benchmarks}
mkdir -p "$out"
common=(--device cuda --bf16 --rounds 10 --batch 32 --width 768 --layers 16 --heads 12)

for loops in 1 2 4 8; do
  timeout 100 python -m benchmarks.step "${common[@]}" --loops "$loops" > "$out/loops-$loops.json"
done
timeout 100 python -m benchmarks.step "${common[@]}" --loops 4 --compile > "$out/compiled.json"
timeout 100 python -m benchmarks.step "${common[@]}" --loops 8 --checkpointing > "$out/checkpointing.json"
timeout 100 python -m benchmarks.step "${common[@]}" --loops 4 --profile > "$out/profile.json"
python -m benchmarks.table "$out"/*.json | tee "$out/table.md"
