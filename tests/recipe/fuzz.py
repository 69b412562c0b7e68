"""Recipes and override strings at random: valid, nearly valid and hostile, each put through the command line.

    python -m tests.recipe.fuzz --count 20000 --seed 0

Each case must end within a second, with exit code 0 or 2, without traceback, executed code or written files.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from loopkit.cli.main import main as loopkit
from tests.recipe.generated import Case, Generator, shipped

SECONDS, SECONDS_OF_LARGE, LARGE, GROWTH = 3.0, 15.0, 1_000_000, 300 * 2**20
FORBIDDEN = frozenset(
    {
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "os.mkdir",
        "os.remove",
        "os.rename",
        "subprocess.Popen",
        "socket.connect",
        "socket.bind",
        "pickle.find_class",
        "ctypes.dlopen",
        "shutil.rmtree",
    }
)
"""Events of Python's audit hooks that reading a recipe must never cause."""


@dataclass
class Bench:
    """Runs cases in a folder with bait in it.

    Args:
        folder: An empty folder.
    """

    folder: Path
    seen: list[str] = field(default_factory=list)
    watching: bool = False

    def __post_init__(self) -> None:
        (self.folder / "evil.py").write_text("open('CANARY', 'w')\n")
        self.runner = CliRunner()
        sys.addaudithook(self._hear)

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        written = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wxa+")
        if self.watching and (event in FORBIDDEN or written):
            self.seen.append(f"{event} {arguments[:2]!r}"[:200])

    def fault(self, case: Case) -> str | None:
        """What is wrong with how a case ended; None where all is well."""
        file = self.folder / "case.yaml"
        file.write_bytes(case.text.encode("utf-8", "surrogatepass"))
        words = ["validate", str(file)] + [word for text in case.overrides for word in ("--set", text)]
        self.seen.clear()
        start = time.process_time()  # a case waits for nothing, and other programs may take the processor
        self.watching = True
        try:
            result = self.runner.invoke(loopkit, words)
        finally:
            self.watching = False
        seconds = time.process_time() - start
        large = max(len(case.text), *(len(text) for text in (*case.overrides, ""))) > LARGE
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return f"{type(result.exception).__name__}: {str(result.exception)[:200]}"
        if result.exit_code not in (0, 2) or "Traceback" in result.output:
            return f"exit code {result.exit_code}: {result.output[-2000:]}"
        if self.seen or any(path.name not in ("evil.py", "case.yaml") for path in self.folder.iterdir()):
            return f"something was done: {self.seen[:3]}"
        if len(result.output) > 200_000:
            return f"{len(result.output):,} characters of words"
        if seconds > (SECONDS_OF_LARGE if large else SECONDS):
            return f"took {seconds:.1f} s"
        return None


def run(count: int, seed: int, folder: Path, *, large: bool = True) -> dict[str, Any]:
    """Run cases; which failed, and how they ended."""
    generator, bench = Generator(seed, shipped()), Bench(folder)
    bench.fault(Case("valid", generator.bases[0]))  # imports and caches are no part of a case
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    faults: list[dict[str, Any]] = []
    slowest, cases = 0.0, 0
    for case in itertools.chain((generator.case() for _ in range(count)), generator.large() if large else ()):
        start = time.process_time()
        fault = bench.fault(case)
        cases += 1
        if cases % 1000 == 0:
            print(f"{cases:,} cases, {len(faults)} faults, {time.process_time():.0f} s", file=sys.stderr, flush=True)
        slowest = max(slowest, time.process_time() - start)
        if fault is not None:
            faults.append(
                {
                    "what": case.what,
                    "fault": fault,
                    "overrides": [o[:200] for o in case.overrides],
                    "text": case.text[:300],
                }
            )
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    return {"cases": cases, "faults": faults, "slowest_s": round(slowest, 2), "growth_bytes": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failures = run(options.count, options.seed, Path(folder))
    print(json.dumps(failures, indent=1, ensure_ascii=True))
    sys.exit(bool(failures["faults"]) or failures["growth_bytes"] > GROWTH)


if __name__ == "__main__":
    main()
