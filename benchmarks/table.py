"""Print results of ``benchmarks.step`` as a Markdown table: ``python -m benchmarks.table build/benchmarks/*.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEADER = (
    "| loops | options | plain tokens/s | loopkit tokens/s | speed | plain GiB | loopkit GiB | memory | ceiling |",
    "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
)


def row(result: dict[str, Any]) -> str:
    """Format one result; ``ceiling`` is loopkit's share of the time of its matrix products."""
    plain, loopkit = result["plain"], result["loopkit"]
    options = " ".join(option.removeprefix("--") for option in result["options"])
    cells = [
        str(result["shape"]["loops"]),
        options or "fp32",
        f"{plain['tokens_per_s']:,.0f}",
        f"{loopkit['tokens_per_s']:,.0f}",
        f"{result['speed']:.2f}",
        f"{plain['peak_bytes'] / 2**30:.2f}",
        f"{loopkit['peak_bytes'] / 2**30:.2f}",
        f"{result['memory']:.2f}",
        f"{loopkit['share_of_ceiling']:.0%}",
    ]
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    results = [json.loads(Path(path).read_text()) for path in sys.argv[1:]]
    print("\n".join([*HEADER, *map(row, results)]))
