"""Recipes and override strings at random: valid, nearly valid and hostile, each put through the command line.

    python -m tests.recipe.fuzz --count 20000 --seed 0

Each case must end in words, with exit code 0 or 2: no traceback, nothing executed, nothing written, within its second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from loopkit.cli.main import main as loopkit
from loopkit.recipe.compose import gather
from loopkit.recipe.recipe import compose
from loopkit.recipe.shipped import own_folder

SECONDS, SECONDS_OF_LARGE, LARGE, GROWTH = 1.0, 5.0, 1_000_000, 300 * 2**20
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
SCALARS = (
    "null",
    "true",
    "no",
    "''",
    "-1",
    "0",
    "1e-3",
    "1e400",
    "-.inf",
    ".nan",
    "9" * 399,
    "9" * 500,
    "0x" + "f" * 300,
    "0o777",
    "1e999999999",
    "[]",
    "{}",
    "[[1], {a: b}]",
    "{type: raw}",
    "!!python/name:os.system",
    "!!binary aGk=",
    "*a",
    "&a 1",
    "'\\0'",
    '"\\0"',
    '"\\ud800"',
    '"\\u202e\\u2066"',
    "ﬀ",
    "𝟙𝟚",
    "１２",
    "é" * 2000,
    "../../../etc/passwd",
    "~root",
    "~" + "x" * 300,
    "a" * 5000,
    "%TAG",
    "@",
    "`",
    "|\n x",
    ">-\n x",
    "? a",
    "- - - -",
    "1-8",
    "1-999999999999",
    "999999999999",
    "raw",
    "no_such:raw",
    ":",
    "::",
    "${oc.env:HOME}",
    "{{7*7}}",
    "$(touch CANARY)",
    "; touch CANARY",
)
TAGS = (
    '!!python/object/apply:os.system ["touch CANARY"]',
    "!!python/object:tests.recipe.fuzz.Run {}",
    '!!python/object/new:subprocess.Popen [["touch", "CANARY"]]',
    "!!python/module:this",
    "!<tag:yaml.org,2002:python/name:eval> x",
)
UNICODE = ("\u200b", "\u202e", "\ufeff", "\u0000", "\x07", "\x1b[31m", "\u2028", "\x85", "\U0010ffff", "İ", "ß", "\t")


@dataclass
class Case:
    """One input.

    Args:
        what: What was done to it, for reports.
        text: The recipe file.
        overrides: Texts of ``--set``.
    """

    what: str
    text: str
    overrides: list[str] = field(default_factory=list)


def shipped() -> list[str]:
    """The shipped recipes, with every default written out: what mutations start from."""
    return [compose(gather(file)).to_yaml() for file in sorted(own_folder().glob("*.yaml"))]


class Generator:
    """Makes cases from a seed.

    Args:
        seed: The seed.
        bases: Recipes without fault.
    """

    def __init__(self, seed: int, bases: list[str]) -> None:
        self.random = random.Random(seed)
        self.bases = bases
        self.paths = list(_paths(yaml.safe_load(bases[0])))
        self.acts: tuple[Callable[[str], Case], ...] = (
            self.valid, self.overridden, self.overridden, self.changed_value, self.changed_key, self.removed,
            self.moved, self.tagged, self.characters, self.cut, self.deep, self.laughs, self.many, self.noise,
        )  # fmt: skip

    def case(self) -> Case:
        return self.random.choice(self.acts)(self.random.choice(self.bases))

    def large(self) -> Iterator[Case]:
        """Inputs of 10 MB."""
        ten = 10 * 2**20
        base = self.bases[0]
        for key in ("k" * ten, "k." * (ten // 2), "é" * (ten // 2), "[" * ten, "\0" * ten, "- " * (ten // 2)):
            yield Case("large key", f"{key}: 1\n{base}")
            yield Case("large override", base, [f"{key}=1"])
            yield Case("large value", base, [f"train.lr.peak={key}"])
        yield Case("large number", base, ["seed=" + "9" * ten])

    def valid(self, base: str) -> Case:
        return Case("valid", base)

    def overridden(self, base: str) -> Case:
        count = self.random.randint(1, 3)
        return Case("overridden", base, [f"{self._key()}{self._equals()}{self._value()}" for _ in range(count)])

    def changed_value(self, base: str) -> Case:
        lines = base.splitlines()
        at = self.random.randrange(len(lines))
        key, _, _ = lines[at].partition(":")
        lines[at] = f"{key}: {self._value()}"
        return Case("changed value", "\n".join(lines) + "\n")

    def changed_key(self, base: str) -> Case:
        lines = base.splitlines()
        at = self.random.randrange(len(lines))
        place = self.random.randrange(len(lines[at]) + 1)
        letter = self.random.choice("aeiou_.-:'\"{}[]#&*!|> " + "".join(UNICODE))
        lines[at] = lines[at][:place] + letter + lines[at][place + self.random.randint(0, 2) :]
        return Case("changed key", "\n".join(lines) + "\n")

    def removed(self, base: str) -> Case:
        lines = base.splitlines()
        del lines[self.random.randrange(len(lines))]
        return Case("removed line", "\n".join(lines) + "\n")

    def moved(self, base: str) -> Case:
        lines = base.splitlines()
        line = lines.pop(self.random.randrange(len(lines)))
        lines.insert(self.random.randrange(len(lines) + 1), line)
        if self.random.random() < 0.5:
            lines.insert(self.random.randrange(len(lines) + 1), line)
        return Case("moved line", "\n".join(lines) + "\n")

    def tagged(self, base: str) -> Case:
        tag = self.random.choice(TAGS)
        if self.random.random() < 0.5:
            return Case("tag", base, [f"{self._key()}={tag}"])
        return Case(
            "tag", f"{base}plugins: [evil.py]\n" if self.random.random() < 0.2 else f"description: {tag}\n{base}"
        )

    def characters(self, base: str) -> Case:
        text = list(base)
        for _ in range(self.random.randint(1, 20)):
            text.insert(self.random.randrange(len(text)), self.random.choice(UNICODE))
        return Case("characters", "".join(text))

    def cut(self, base: str) -> Case:
        return Case("cut", base[: self.random.randrange(len(base))])

    def deep(self, base: str) -> Case:
        depth = self.random.choice((10, 39, 40, 41, 1000, 50_000))
        opening, closing = self.random.choice((("[", "]"), ("{a: ", "}"), ("- ", ""), ("? ", "")))
        nested = opening * depth + "x" + closing * depth
        if self.random.random() < 0.3:
            return Case("deep", base, [f"{self._key()}={nested}"])
        return Case("deep", f"data: {nested}\n" if self.random.random() < 0.5 else f"{base}more: {nested}\n")

    def laughs(self, base: str) -> Case:
        lines = ["a0: &a0 [lol]"]
        lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, self.random.randint(2, 40))]
        merge = "b: {<<: *a0}\n" if self.random.random() < 0.5 else ""
        return Case("billion laughs", "\n".join(lines) + "\n" + merge + base)

    def many(self, base: str) -> Case:
        count = self.random.choice((10, 300, 3000, 50_000))
        form = self.random.choice(("k{n}: {n}\n", "loopkit: 1\n", "trackers{n}: {{type: x}}\n", "- {n}\n"))
        body = "".join(form.format(n=n) for n in range(count))
        inside = f"objective: {{regularizers: {{{', '.join(f'r{n}: {{weight: {n}}}' for n in range(count))}}}}}\n"
        return Case(
            "many", self.random.choice((body + base, body, inside, "trainable: [" + "x, " * count + "]\n" + base))
        )

    def noise(self, base: str) -> Case:
        size = self.random.randint(0, 300)
        return Case(
            "noise",
            "".join(
                chr(self.random.choice((self.random.randrange(32, 127), self.random.randrange(0xD7FF))))
                for _ in range(size)
            ),
        )

    def _key(self) -> str:
        key = self.random.choice(self.paths)
        draw = self.random.random()
        if draw < 0.6:
            return key
        if draw < 0.8:
            place = self.random.randrange(len(key))
            return key[:place] + self.random.choice((*UNICODE, ".", "..", "x", "=")) + key[place:]
        return self.random.choice(
            ("", ".", "a" * 3000, "a." * 200, "train.lr", "extends", "profiles.x", "data.0.1", "sweep.grid")
        )

    def _equals(self) -> str:
        return "=" if self.random.random() < 0.9 else self.random.choice(("", "==", ":", " = "))

    def _value(self) -> str:
        return self.random.choice(SCALARS)


def _paths(value: Any, prefix: str = "") -> Iterator[str]:
    for key, item in value.items():
        yield f"{prefix}{key}"
        if isinstance(item, dict):
            yield from _paths(item, f"{prefix}{key}.")


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
        began = time.process_time()  # a case waits for nothing, and other programs may take the processor
        self.watching = True
        try:
            result = self.runner.invoke(loopkit, words)
        finally:
            self.watching = False
        seconds = time.process_time() - began
        large = max(len(case.text), *(len(text) for text in (*case.overrides, ""))) > LARGE
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            return f"{type(result.exception).__name__}: {str(result.exception)[:200]}"
        if result.exit_code not in (0, 2) or "Traceback" in result.output:
            return f"exit code {result.exit_code}: {result.output[:200]}"
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
        began = time.process_time()
        fault = bench.fault(case)
        cases += 1
        if cases % 1000 == 0:
            print(f"{cases:,} cases, {len(faults)} faults, {time.process_time():.0f} s", file=sys.stderr, flush=True)
        slowest = max(slowest, time.process_time() - began)
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
        found = run(options.count, options.seed, Path(folder))
    print(json.dumps(found, indent=1, ensure_ascii=True))
    sys.exit(bool(found["faults"]) or found["growth_bytes"] > GROWTH)


if __name__ == "__main__":
    main()
