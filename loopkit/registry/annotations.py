"""Read annotations of options from text, in a fixed vocabulary, without evaluating code."""

from __future__ import annotations

import ast
import types
import typing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union

import annotated_types as bounds

from loopkit.registry.kinds import BY_CONTRACT, KINDS
from loopkit.registry.options import AtMost, Divides, Fraction, Share
from loopkit.registry.schema import Annotation, Leaf, SectionMap, SectionRef, Slot, SlotList, SlotMap

TYPES: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "str": str,
    "Path": Path,
    "Any": Any,
    "PositiveInt": Annotated[int, bounds.Gt(0)],
    "NonNegativeInt": Annotated[int, bounds.Ge(0)],
    "PositiveFloat": Annotated[float, bounds.Gt(0)],
    "NonNegativeFloat": Annotated[float, bounds.Ge(0)],
    "NegativeFloat": Annotated[float, bounds.Lt(0)],
    "NonPositiveFloat": Annotated[float, bounds.Le(0)],
    "Fraction": Fraction,
    "Share": Share,
}
BOUNDS: dict[str, Any] = {
    "Ge": bounds.Ge,
    "Gt": bounds.Gt,
    "Le": bounds.Le,
    "Lt": bounds.Lt,
    "MinLen": bounds.MinLen,
    "MaxLen": bounds.MaxLen,
    "Divides": Divides,
    "AtMost": AtMost,
}
CONTAINERS: dict[str, Any] = {"list": list, "tuple": tuple, "dict": dict, "Sequence": list, "Mapping": dict}


USE = "; use int, float, bool, str, Path, Literal, list, dict, Factory[...] or a type of pydantic such as PositiveInt"


class UnreadableAnnotation(ValueError):
    """An annotation outside of the vocabulary, with its line."""

    def __init__(self, node: ast.AST, why: str) -> None:
        super().__init__(f"annotation '{ast.unparse(node)}' cannot be read: {why}")
        self.line: int = getattr(node, "lineno", 0)


class AnnotationReader:
    """Convert the syntax tree of an annotation to the ``Annotation`` of an option.

    Args:
        aliases: Module-level names of the same file that are annotations.
        sections: Classes of the same file that are parts of the recipe format.
    """

    def __init__(self, aliases: dict[str, ast.expr], sections: frozenset[str] = frozenset()) -> None:
        self.aliases = aliases
        self.sections = sections

    def read(self, node: ast.expr) -> Annotation:
        """Read one annotation.

        Raises:
            UnreadableAnnotation: If it uses anything outside of the vocabulary.
        """
        result = self._read(node)
        if isinstance(result, Slot | SlotList | SlotMap | SectionRef | SectionMap):
            return result
        return Leaf(result, ast.unparse(node))

    def _read(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=None):
                return None
            case ast.Constant(value=str() as text):  # a quoted annotation
                return self._read(ast.parse(text, mode="eval").body)
            case ast.Name(id=name):
                return self._name(node, name)
            case ast.Attribute(attr=name):
                return self._name(node, name)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return self._union(node, self._read(left), self._read(right))
            case ast.Subscript(value=ast.Name(id=base) | ast.Attribute(attr=base), slice=inner):
                return self._subscript(node, base, inner)
        raise UnreadableAnnotation(node, f"it is not a type that an option may have{USE}")

    def _name(self, node: ast.expr, name: str) -> Any:
        if name in self.aliases:
            return self._read(self.aliases[name])
        if name in self.sections:
            return SectionRef(name)
        if name in TYPES:
            return TYPES[name]
        if name in CONTAINERS:
            return CONTAINERS[name]
        raise UnreadableAnnotation(node, f"'{name}' is not a type that an option may have{USE}")

    def _union(self, node: ast.expr, left: Any, right: Any) -> Any:
        if left is None:
            left, right = right, left
        if isinstance(left, Slot | SectionRef):
            if right is not None:
                raise UnreadableAnnotation(node, "a Factory may only be combined with None")
            return replace(left, optional=True)
        return Union[left, right]  # noqa: UP007  (the parts are values here)

    def _subscript(self, node: ast.expr, base: str, inner: ast.expr) -> Any:
        parts = list(inner.elts) if isinstance(inner, ast.Tuple) else [inner]
        if base == "Literal":
            return Literal[tuple(ast.literal_eval(part) for part in parts)]
        if base == "Factory":
            contract = ast.unparse(parts[0]).rpartition(".")[2]
            if contract not in BY_CONTRACT:
                raise UnreadableAnnotation(node, f"no kind has the contract '{contract}'")
            return Slot(BY_CONTRACT[contract].name)
        if base == "Annotated":
            return self._annotated(node, parts)
        if base in CONTAINERS:
            return self._container(node, base, parts)
        raise UnreadableAnnotation(node, f"'{base}[...]' is not a type that an option may have{USE}")

    def _annotated(self, node: ast.expr, parts: list[ast.expr]) -> Any:
        match parts:
            case [ast.Name(id="Spec"), ast.Constant(value=kind)] if kind in KINDS:
                return Slot(str(kind))
        result = self._read(parts[0])
        for part in parts[1:]:
            if not isinstance(part, ast.Call) or ast.unparse(part.func).rpartition(".")[2] not in BOUNDS:
                raise UnreadableAnnotation(node, f"'{ast.unparse(part)}' is not a known bound")
            marker = BOUNDS[ast.unparse(part.func).rpartition(".")[2]]
            values = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in part.keywords}
            bound = marker(*(ast.literal_eval(argument) for argument in part.args), **values)
            if isinstance(result, SlotList) and isinstance(bound, bounds.MinLen):
                result = SlotList(result.kind, bound.min_length)
            else:
                result = Annotated[result, bound]
        return result

    def _container(self, node: ast.expr, base: str, parts: list[ast.expr]) -> Any:
        inner = [... if isinstance(part, ast.Constant) and part.value is ... else self._read(part) for part in parts]
        if isinstance(inner[-1], Slot):
            return SlotList(inner[-1].kind) if base in ("list", "Sequence") else SlotMap(inner[-1].kind)
        if isinstance(inner[-1], SectionRef):
            return SectionMap(inner[-1].name)
        container = CONTAINERS[base]
        return container[inner[0]] if len(inner) == 1 else container[tuple(inner)]


@cache
def sibling_bounds(annotation: Any) -> list[Divides | AtMost]:
    """Return the bounds of an annotation that name another option or wiring."""
    result = [marker for marker in getattr(annotation, "__metadata__", ()) if isinstance(marker, Divides | AtMost)]
    if typing.get_origin(annotation) is Annotated:
        return result + sibling_bounds(annotation.__origin__)
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return [marker for part in typing.get_args(annotation) for marker in sibling_bounds(part)]
    return result
