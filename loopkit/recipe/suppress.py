"""Unknown keys: hints for each, and suppression of the problems that follow only from them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from loopkit.recipe.migration.renames import hint_for
from loopkit.recipe.node import Path, Problem
from loopkit.recipe.resolve import Resolver, UnknownKey
from loopkit.recipe.shipped import shipped_recipes
from loopkit.registry.catalog import did_you_mean
from loopkit.registry.schema import Slot

HINTED = 100
"""Unknown keys for which hints are computed; a file with more of them is not a misspelt recipe."""


_PROFILE = re.compile(r"\(profile (.*)\)$")
LISTED = 30
"""Options that a hint lists."""


@dataclass(frozen=True)
class RootCauses:
    """The problems of a resolved recipe, reduced to those that the user must fix.

    An unknown key may stand for any option of the same map that its layer leaves unset, or for an option of the same
    name elsewhere. Problems that exist only because such an option is unset are suppressed.
    """

    walk: Resolver

    def problems(self) -> Iterator[Problem]:
        """Yield every problem that does not follow from another."""
        roots = list(self._roots())
        void = {(*unknown.path, unknown.key): list(self._void(unknown)) for unknown in roots}
        owners: dict[Path, set[Path]] = defaultdict(set)  # a void place, and the unknown keys that void it
        for key, places in void.items():
            for place in places:
                owners[place].add(key)
        in_doubt = {place for unknown in roots for place in self._in_doubt(unknown)} | owners.keys()
        for number, unknown in enumerate(roots):
            here = (*unknown.path, unknown.key)
            if not any(owners[part] - {here} for part in _parts(here) if part in owners):
                yield self._problem(unknown, hinted=number < HINTED)
        for problem in self.walk.problems:
            if not any(part in in_doubt for path in problem.depends for part in _parts(path)):
                yield problem

    def _roots(self) -> Iterator[UnknownKey]:
        """Yield unknown keys, except those that are unknown only because ``type`` in their map is misspelt."""
        misspelt = {unknown.path: unknown.key for unknown in self.walk.unknown if self._means_type(unknown)}
        for unknown in self.walk.unknown:
            if unknown.path not in misspelt or self._means_type(unknown):
                yield unknown

    def _means_type(self, unknown: UnknownKey) -> bool:
        """Check whether the value is a component's name and the layer sets no ``type`` in that map."""
        layer = unknown.node.origin.layer
        if unknown.schema.kind == "section" or self.walk.layers.get((*unknown.path, "type")) == layer:
            return False
        return unknown.node.value in self.walk.merger.catalog.names(unknown.schema.kind)

    def _void(self, unknown: UnknownKey) -> Iterator[Path]:
        """Yield places that cannot be checked: below a slot whose ``type`` is misplaced, or everything if
        ``extends`` is."""
        if ("extends",) not in self.walk.layers and (unknown.key == "extends" or self._may_be_extends(unknown)):
            yield ()
        if unknown.key == "type" or self._means_type(unknown):
            for option in unknown.schema.options.values():
                if isinstance(option.annotation, Slot) and unknown.node.value in self.walk.merger.catalog.names(
                    option.annotation.kind
                ):
                    yield (*unknown.path, option.name)

    @staticmethod
    def _may_be_extends(unknown: UnknownKey) -> bool:
        value = unknown.node.value
        return not unknown.path and isinstance(value, str) and (value.endswith(".yaml") or value in shipped_recipes())

    def _in_doubt(self, unknown: UnknownKey) -> Iterator[Path]:
        layer = unknown.node.origin.layer
        for name in ("type", *unknown.schema.options):
            place = (*unknown.path, name)
            if self.walk.layers.get(place) != layer:
                yield place
        for place in self._namesakes(unknown.key):
            if self.walk.layers.get(place) != layer:
                yield place

    def _namesakes(self, key: str) -> Sequence[Path]:
        return self._places.get(key, ())

    @cached_property
    def _places(self) -> dict[str, list[Path]]:
        """Where each key has its place, as far as the walk has come."""
        paths = {*self.walk.origins, *(path for problem in self.walk.problems for path in problem.depends)}
        places: dict[str, list[Path]] = defaultdict(list)
        for path in sorted(path for path in paths if path):
            places[path[-1]].append(path)
        return dict(places)

    def _problem(self, unknown: UnknownKey, hinted: bool) -> Problem:
        schema = unknown.schema
        if schema.kind == "section":
            owner = "the recipe" if not unknown.path else unknown.path[-1]
        else:
            owner = f"{schema.kind} '{schema.name}'"
        path = (*unknown.path, unknown.key[:80])
        return Problem(
            unknown.node.origin,
            path,
            f"{owner} has no option '{unknown.key[:80]}'",
            self._hint(unknown) if hinted else "",
        )

    def _hint(self, unknown: UnknownKey) -> str:
        if renamed := hint_for(unknown.schema.kind, unknown.schema.name, unknown.key):
            return renamed
        if self._means_type(unknown):
            return "did you mean 'type'?"
        origin = unknown.node.origin
        profile = _PROFILE.search(origin.layer) if unknown.schema.kind != "section" else None
        if profile and origin.file != self.walk.file:
            path = ("profiles", profile[1], *unknown.path, unknown.key)
            written = ": {".join(path) + ": null" + "}" * (len(path) - 1)
            return f"a profile of {origin.file} sets it for another component; remove it here with {written}"
        options = sorted(unknown.schema.options)
        if close := did_you_mean(unknown.key, options):
            return f"{close}options: {', '.join(options)}" if len(options) <= LISTED else close.strip()
        owners = [
            offer.name
            for offer in self.walk.merger.catalog.of(unknown.schema.kind)
            if offer.schema and unknown.key in offer.schema.options
        ]
        if owners:
            return f"'{unknown.key}' is an option of {unknown.schema.kind} {', '.join(owners)}"
        if places := [".".join(place) for place in self._namesakes(unknown.key) if place[:-1] != unknown.path]:
            return f"write it at {' or '.join(places[:3])}"
        return f"options: {', '.join(options[:LISTED]) or 'none'}{', ...' if len(options) > LISTED else ''}"


def _parts(path: Path) -> Iterator[Path]:
    """Yield a path and everything above it."""
    return (path[:length] for length in range(len(path) + 1))
