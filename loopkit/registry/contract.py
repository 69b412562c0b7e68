"""The contract of each kind, read from its source text: what a component receives, must define and may use."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loopkit.registry.catalog import COMPONENTS
from loopkit.registry.kinds import KINDS, WIRING
from loopkit.registry.source import Module, argument_docs, parse
from loopkit.registry.traits import TRAITS, Trait

SHARED = (("injection", "no_decay"), ("attention", "stacked_rows"), ("readout", "max_depth"))
"""Members that every module may have, each with the kind whose contract documents it."""

LOOP = COMPONENTS.parent / "loop"


@dataclass(frozen=True)
class Member:
    """An attribute or a method of a class.

    Args:
        name: Its name.
        signature: As code: ``weight: float``, ``forward(x: Tensor, step: Step) -> Tensor``.
        doc: Its docstring.
        required: Whether a component must define it; the others have defaults.
    """

    name: str
    signature: str
    doc: str
    required: bool = False

    @property
    def summary(self) -> str:
        """The first paragraph of its docstring on one line."""
        return " ".join(self.doc.split("\n\n")[0].split())


@dataclass(frozen=True)
class Type:
    """A class or alias that signatures of a contract name.

    Args:
        name: Its name.
        module: Where it is imported from.
        doc: Its docstring; of an alias, its value and what is written below it.
        methods: Its public methods and properties.
    """

    name: str
    module: str
    doc: str
    methods: tuple[Member, ...] = ()


@dataclass(frozen=True)
class Contract:
    """The interface between loopkit and the components of a kind.

    Args:
        kind: The kind.
        name: Name of the class that a component extends.
        module: Where it is imported from.
        file: Source file.
        line: Line of the class.
        doc: Docstring of the class.
        letters: Meaning of the letters of shapes, as in the docstring of the file; may be empty.
        wiring: Name, type and meaning of each positional argument that a constructor may list.
        members: Attributes and methods of the class.
        shared: Members that every module may have; empty if the class is not a module.
        traits: Traits that a registration may set, by name.
        types: Types that the signatures name, each once.
        functions: Functions of the same module that components may use.
    """

    kind: str
    name: str
    module: str
    file: Path
    line: int
    doc: str
    letters: str
    wiring: tuple[tuple[str, str, str], ...]
    members: tuple[Member, ...]
    shared: tuple[Member, ...]
    traits: dict[str, Trait]
    types: tuple[Type, ...]
    functions: tuple[Member, ...]


def read_contract(kind: str) -> Contract:
    """Read the contract of a kind from source text; imports nothing.

    Args:
        kind: One of ``loopkit.registry.KINDS``.

    Raises:
        KeyError: If no kind has this name.
    """
    name, file = KINDS[kind].contract, contract_file(kind)
    module = parse(file)
    node = module.classes[name]
    members = tuple(_members(node))
    functions = tuple(_function(item) for item in module.tree.body if _is_public_function(item))
    named = [member.signature for member in (*members, *functions)]
    is_module = any(ast.unparse(base) == "nn.Module" for base in node.bases)
    return Contract(
        kind=kind,
        name=name,
        module=f"loopkit.components.{kind}",
        file=file,
        line=node.lineno,
        doc=_doc(node),
        letters=_letters(ast.get_docstring(module.tree) or ""),
        wiring=tuple((wired, *WIRING[wired]) for wired in KINDS[kind].wiring),
        members=members,
        shared=tuple(member for member in _shared() if member not in members) if is_module else (),
        traits={name: trait for name, trait in TRAITS.items() if not trait.kinds or kind in trait.kinds},
        types=tuple(_types(module, name, f"loopkit.components.{kind}", named)),
        functions=functions,
    )


def contract_file(kind: str) -> Path:
    """Return the file that holds the contract of a kind."""
    folder = COMPONENTS / kind
    return folder / "__init__.py" if folder.is_dir() else COMPONENTS / f"{kind}.py"


def _letters(doc: str) -> str:
    match = re.search(r"Dims: (.*?)\.?$", doc, re.MULTILINE)
    return match[1] if match else ""


def _shared() -> Iterator[Member]:
    for kind, name in SHARED:
        members = _members(parse(contract_file(kind)).classes[KINDS[kind].contract])
        yield next(member for member in members if member.name == name)


def _members(node: ast.ClassDef) -> Iterator[Member]:
    """Yield public attributes and methods in the order of the class."""
    abstract = any("abstractmethod" in map(ast.unparse, _decorators(item)) for item in node.body)
    docs = argument_docs(_doc(node), ("Args:", "Attributes:"))
    for item, after in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            doc = _text_below(after) or docs.get(item.target.id, "")
            yield Member(item.target.id, ast.unparse(item), doc, item.value is None)
    yield from (_function(item, _is_required(item, abstract)) for item in node.body if _is_public_function(item))


def _decorators(item: ast.stmt) -> list[ast.expr]:
    return item.decorator_list if isinstance(item, ast.FunctionDef) else []


def _text_below(item: ast.stmt | None) -> str:
    """Return the text of a string statement, which documents the attribute above it; empty for another statement."""
    match item:
        case ast.Expr(value=ast.Constant(value=str() as text)):
            return inspect.cleandoc(text)
    return ""


def _is_required(item: ast.stmt, abstract: bool) -> bool:
    """Check whether a method is abstract: by its decorator or, in a class without any, because it raises."""
    if abstract:
        return "abstractmethod" in map(ast.unparse, _decorators(item))
    match item:
        case ast.FunctionDef(body=[*_, ast.Raise(exc=ast.Name(id="NotImplementedError"))]):
            return True
    return False


def _is_public_function(item: ast.stmt) -> bool:
    return isinstance(item, ast.FunctionDef) and (item.name == "__call__" or not item.name.startswith("_"))


def _function(item: ast.stmt, required: bool = False) -> Member:
    assert isinstance(item, ast.FunctionDef)
    arguments = re.sub(r"^(self|cls)(, )?", "", ast.unparse(item.args))
    returns = ast.unparse(item.returns) if item.returns else "None"
    is_property = "property" in map(ast.unparse, item.decorator_list)
    signature = f"{item.name}: {returns}" if is_property else f"{item.name}({arguments}) -> {returns}"
    return Member(item.name, signature, _doc(item), required)


def _doc(node: ast.ClassDef | ast.FunctionDef) -> str:
    return inspect.cleandoc(ast.get_docstring(node, clean=False) or "")


def _types(module: Module, contract: str, place: str, named: list[str]) -> Iterator[Type]:
    """Yield the types in some signatures: of the contract's file, transitively, then of ``loopkit.loop``."""
    classes = {name: node for name, node in module.classes.items() if not node.bases and name != contract}
    pending, seen = list(named), set()
    words = {word for text in named for word in re.findall(r"\b[A-Z]\w+", text)}
    while pending:
        for name in re.findall(r"\b[A-Z]\w+", pending.pop(0)):
            if name in seen:
                continue
            seen.add(name)
            words.add(name)
            if name in classes:
                node = classes[name]
                pending += [ast.unparse(item.annotation) for item in node.body if isinstance(item, ast.AnnAssign)]
                yield Type(name, place, _doc(node), _methods(node))
            elif name in module.aliases:
                value = ast.unparse(module.aliases[name])
                pending.append(value)
                yield Type(name, place, f"{name} = {value}")
    for file in sorted(LOOP.glob("[a-z]*.py")):
        for name, node in parse(file).classes.items():
            if name in words:
                yield Type(name, "loopkit.loop", _doc(node), _methods(node))


def _methods(node: ast.ClassDef) -> tuple[Member, ...]:
    return tuple(_function(item) for item in node.body if _is_public_function(item))
