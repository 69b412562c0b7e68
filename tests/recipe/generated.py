"""Recipes and override strings at random: valid, nearly valid and hostile."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from loopkit.recipe.layers import load_layers
from loopkit.recipe.recipe import compose
from loopkit.recipe.shipped import own_folder

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
    "!!python/object:tests.recipe.generated.Case {}",
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
    return [compose(load_layers(file)).to_yaml() for file in sorted(own_folder().glob("*.yaml"))]


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
        form = self.random.choice(("k{n}: {n}\n", "loopkit: 2\n", "trackers{n}: {{type: x}}\n", "- {n}\n"))
        body = "".join(form.format(n=n) for n in range(count))
        regularizers = f"objective: {{regularizers: {{{', '.join(f'r{n}: {{weight: {n}}}' for n in range(count))}}}}}\n"
        return Case(
            "many", self.random.choice((body + base, body, regularizers, "trainable: [" + "x, " * count + "]\n" + base))
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
