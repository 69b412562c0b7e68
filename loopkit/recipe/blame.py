"""Unknown keys: what each was meant to be, and which other problems follow from it alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from loopkit.recipe.node import Path, Problem
from loopkit.recipe.resolve import UnknownKey, Walk
from loopkit.recipe.shipped import shipped_recipes
from loopkit.registry.catalog import did_you_mean
from loopkit.registry.schema import Slot


@dataclass(frozen=True)
class Blame:
    """The problems of a walk, reduced to those a reader must mend.

    An unknown key may have been meant for any option beside it that its own layer leaves unset, or for an option of
    its own
    name elsewhere; what is wrong only because such an option is unset would vanish with the unknown key.
    """

    walk: Walk

    def problems(self) -> Iterator[Problem]:
        """Every problem that does not follow from another."""
        roots = list(self._roots())
        void = {(*unknown.path, unknown.key): list(self._void(unknown)) for unknown in roots}
        in_doubt = [place for unknown in roots for place in self._in_doubt(unknown)]
        in_doubt += [place for places in void.values() for place in places]
        for unknown in roots:
            here = (*unknown.path, unknown.key)
            others = (place for key, places in void.items() if key != here for place in places)
            if not any(_within(here, place) for place in others):
                yield self._problem(unknown)
        for problem in self.walk.problems:
            if not any(_within(path, place) for path in problem.depends for place in in_doubt):
                yield problem

    def _roots(self) -> Iterator[UnknownKey]:
        """Unknown keys, without those that are unknown only because ``type`` beside them is misspelt."""
        for unknown in self.walk.unknown:
            beside = [other for other in self.walk.unknown if other.path == unknown.path]
            misspelt = [other for other in beside if self._means_type(other)]
            if not misspelt or unknown in misspelt:
                yield unknown

    def _means_type(self, unknown: UnknownKey) -> bool:
        """Whether a key holds the name of a component of its kind, in a layer that writes no ``type`` beside it."""
        layer = unknown.node.origin.layer
        if unknown.schema.kind == "section" or self.walk.layers.get((*unknown.path, "type")) == layer:
            return False
        return unknown.node.value in self.walk.merger.catalog.names(unknown.schema.kind)

    def _void(self, unknown: UnknownKey) -> Iterator[Path]:
        """Places of which nothing can be said: below a slot whose ``type`` went astray, or everything if
        ``extends`` did."""
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

    def _namesakes(self, key: str) -> Iterable[Path]:
        known = {*self.walk.origins, *(path for problem in self.walk.problems for path in problem.depends)}
        return sorted(path for path in known if path and path[-1] == key)

    def _problem(self, unknown: UnknownKey) -> Problem:
        schema = unknown.schema
        if schema.kind == "section":
            owner = "the recipe" if not unknown.path else schema.name.lower()
        else:
            owner = f"{schema.kind} '{schema.name}'"
        path = (*unknown.path, unknown.key[:80])
        return Problem(unknown.node.origin, path, f"no such option of {owner}", self._hint(unknown))

    def _hint(self, unknown: UnknownKey) -> str:
        if self._means_type(unknown):
            return "did you mean 'type'?"
        options = sorted(unknown.schema.options)
        if close := did_you_mean(unknown.key, options):
            return f"{close}options: {', '.join(options)}"
        kin = [
            offer.name
            for offer in self.walk.merger.catalog.of(unknown.schema.kind)
            if offer.schema and unknown.key in offer.schema.options
        ]
        if kin:
            return f"'{unknown.key}' is an option of {unknown.schema.kind} {', '.join(kin)}"
        if places := [".".join(place) for place in self._namesakes(unknown.key) if place[:-1] != unknown.path]:
            return f"it has its place at {' or '.join(places[:3])}"
        return f"options: {', '.join(options) or 'none'}"


def _within(path: Path, place: Path) -> bool:
    return path[: len(place)] == place
