"""Read schemas from source text, without importing or evaluating it; every option has a file and a line."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from loopkit.errors import UserError
from loopkit.registry.annotations import AnnotationReader, UnreadableAnnotation
from loopkit.registry.inheritance import ImportedName, dotted_name, imported_names
from loopkit.registry.kinds import KINDS
from loopkit.registry.schema import MISSING, Option, Provider, Schema
from loopkit.registry.traits import check_registration


class SourceProblem(UserError):
    """A file whose components cannot be read, with the line and the reason."""

    def __init__(self, file: Path, line: int, why: str) -> None:
        super().__init__(f"{file}:{line}: {why}" if line else f"{file}: {why}")
        self.file, self.line, self.why = file, line, why


@dataclass(frozen=True)
class Module:
    """One parsed file."""

    file: Path
    tree: ast.Module
    classes: dict[str, ast.ClassDef]
    aliases: dict[str, ast.expr]
    imports: dict[str, ImportedName]


def parse(file: Path) -> Module:
    """Parse a file, once per version of it.

    Raises:
        SourceProblem: If it cannot be read or is not Python.
    """
    try:
        status = file.stat()
    except FileNotFoundError:
        raise SourceProblem(file, 0, "there is no such file; check the path") from None
    except (OSError, ValueError) as error:
        raise SourceProblem(file, 0, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return _parse(file, status.st_mtime_ns, status.st_size)


@cache
def _parse(file: Path, modified: int, size: int) -> Module:
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    except SyntaxError as error:
        raise SourceProblem(file, error.lineno or 0, f"syntax error: {error.msg}") from None
    except (OSError, ValueError) as error:
        raise SourceProblem(file, 0, f"cannot be read: {error}") from None
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    aliases = {
        node.targets[0].id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)
    }
    return Module(file, tree, classes, aliases, imported_names(tree, file))


def read_components(file: Path, provider: Provider) -> Iterator[Schema]:
    """Yield the schema of every class of a file that is decorated with ``@register(...)``.

    Raises:
        SourceProblem: At the first line that cannot be read.
    """
    module = parse(file)
    seen: dict[tuple[str, str], int] = {}
    for node in module.tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and ast.unparse(call.func).rpartition(".")[2] == "register":
                schema = _component(module, node, call, provider)
                first = seen.setdefault((schema.kind, schema.name), node.lineno)
                if first != node.lineno:
                    why = f"{schema.kind} '{schema.name}' is registered twice in this file, first at line {first}"
                    raise SourceProblem(file, node.lineno, why)
                yield schema


def _component(module: Module, node: ast.ClassDef, call: ast.Call, provider: Provider) -> Schema:
    try:
        kind, name = (ast.literal_eval(argument) for argument in call.args)
        traits = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (ValueError, TypeError):
        why = f'the register call of {node.name} must be literals: @register("kind", "name", trait=literal)'
        raise SourceProblem(module.file, call.lineno, why) from None
    try:
        check_registration(kind, name, traits)
    except TypeError as error:
        raise SourceProblem(module.file, call.lineno, str(error)) from None
    doc = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    wiring, options = _constructor(module, node, argument_docs(doc))
    for parameter, line in wiring.items():
        if parameter not in KINDS[kind].wiring:
            wirings = ", ".join(KINDS[kind].wiring) or "none"
            why = f"'{parameter}' is not wiring of kind {kind!r} ({wirings}); an option must stand after '*'"
            raise SourceProblem(module.file, line, f"{node.name}: {why}")
    return Schema(
        kind=kind,
        name=name,
        qualname=node.name,
        options=options,
        wiring=tuple(wiring),
        traits=traits,
        doc=doc,
        file=module.file,
        line=node.lineno,
        provider=provider,
    )


Constructor = tuple[dict[str, int], dict[str, Option]]
"""Wiring, with the line of each name, and options."""


def _constructor(module: Module, node: ast.ClassDef, docs: dict[str, str]) -> Constructor:
    """Return the constructor of a class or of its nearest base that has one, also in a file that it imports."""
    return _own_or_inherited(module, node, docs, ()) or ({}, {})


def _own_or_inherited(
    module: Module, node: ast.ClassDef, docs: dict[str, str], below: tuple[ast.ClassDef, ...]
) -> Constructor | None:
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is not None:
        return _read_constructor(module, node, init, docs)
    for base in node.bases:
        home, parent = _class(module, dotted_name(base))
        if home is None or parent is None or parent in below:
            continue
        described = argument_docs(inspect.cleandoc(ast.get_docstring(parent, clean=False) or "")) | docs
        constructor = _own_or_inherited(home, parent, described, (*below, node))
        if constructor is not None and home.file != module.file:  # lines count in the component's own file
            wiring, options = constructor
            lines = {name: replace(option, line=node.lineno) for name, option in options.items()}
            return dict.fromkeys(wiring, node.lineno), lines
        if constructor is not None:
            return constructor
    return None


def _class(module: Module, names: list[str]) -> tuple[Module | None, ast.ClassDef | None]:
    """Return the class that a name refers to in a module, with the module that defines it; None if it is unknown."""
    if len(names) == 1 and names[0] in module.classes:
        return module, module.classes[names[0]]
    if not names or names[0] not in module.imports:
        return None, None
    home, name = module.imports[names[0]].below(*names[1:]).split() if names[1:] else module.imports[names[0]].split()
    file = home.file()
    if file is None or file == module.file:
        return None, None
    return _class(parse(file), [name])


def _read_constructor(module: Module, node: ast.ClassDef, init: ast.FunctionDef, docs: dict[str, str]) -> Constructor:
    arguments = init.args
    if catch_all := arguments.kwarg or arguments.vararg:
        why = f"{node.name}: '{catch_all.arg}' hides options; name each one"
        raise SourceProblem(module.file, catch_all.lineno, why)
    reader = AnnotationReader(module.aliases)
    options = {}
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        options[argument.arg] = _option(module, reader, argument, default, docs)
    wiring = [*arguments.posonlyargs, *arguments.args][1:]
    for argument in wiring:
        if argument.annotation is None:
            raise SourceProblem(module.file, argument.lineno, f"{node.name}: '{argument.arg}' has no annotation")
    return {argument.arg: argument.lineno for argument in wiring}, options


def _option(
    module: Module, reader: AnnotationReader, argument: ast.arg, default: ast.expr | None, docs: dict[str, str]
) -> Option:
    if argument.annotation is None:
        raise SourceProblem(module.file, argument.lineno, f"option '{argument.arg}' has no annotation")
    try:
        annotation = reader.read(argument.annotation)
    except UnreadableAnnotation as error:
        raise SourceProblem(module.file, error.line or argument.lineno, f"option '{argument.arg}': {error}") from None
    value = _default(module, argument.arg, default)
    return Option(argument.arg, annotation, value, docs.get(argument.arg, ""), argument.lineno)


def _default(module: Module, name: str, node: ast.expr | None) -> Any:
    """Return the value of a default: a literal, ``use("name")``, or a dataclass's ``field(default_factory=...)``."""
    match node:
        case None:
            return MISSING
        case ast.Call(func=ast.Name(id="use"), args=[ast.Constant(value=str() as component)]):
            return component
        case ast.Call(func=ast.Name(id="field"), keywords=[ast.keyword(arg="default_factory", value=factory)]):
            empty: dict[str, Any] = {"dict": {}, "list": []}
            return ast.literal_eval(factory.body) if isinstance(factory, ast.Lambda) else empty[ast.unparse(factory)]
    try:
        return ast.literal_eval(node)
    except ValueError:
        why = f"the default of option '{name}' must be a literal or use(\"name\"), not {ast.unparse(node)}"
        raise SourceProblem(module.file, node.lineno, why) from None


def read_sections(*files: Path) -> dict[str, Schema]:
    """Return the schemas of the dataclasses of some files; they may name each other across files."""
    home = {
        name: module for module in map(parse, files) for name, node in module.classes.items() if node.decorator_list
    }
    readers = {module.file: AnnotationReader(module.aliases, frozenset(home)) for module in home.values()}
    return {name: _section(module, module.classes[name], readers[module.file]) for name, module in home.items()}


def _section(module: Module, node: ast.ClassDef, reader: AnnotationReader) -> Schema:
    doc = inspect.cleandoc(ast.get_docstring(node, clean=False) or "")
    docs = argument_docs(doc)
    options, traits = {}, {}
    for item in node.body:
        if not isinstance(item, ast.AnnAssign) or not isinstance(item.target, ast.Name):
            continue
        if ast.unparse(item.annotation).startswith("ClassVar") and item.value:
            traits[item.target.id] = ast.literal_eval(item.value)
            continue
        argument = ast.arg(item.target.id, item.annotation, lineno=item.lineno)
        options[item.target.id] = _option(module, reader, argument, item.value, docs)
    return Schema("section", node.name, node.name, options, (), traits, doc, module.file, node.lineno)


def argument_docs(doc: str, sections: Collection[str] = ("Args:",)) -> dict[str, str]:
    """Return the entries of some sections of a docstring, by name, each on one line."""
    docs: dict[str, str] = {}
    name, in_section = "", False
    for line in doc.splitlines():
        if re.match(r"[A-Z]\w*:( |$)", line):
            in_section = line in sections
        elif in_section and (match := re.match(r" {4}(\w+): *(.*)$", line)):
            name = match[1]
            docs[name] = match[2]
        elif in_section and name and line.strip():
            docs[name] = f"{docs[name]} {line.strip()}".strip()
    return docs
