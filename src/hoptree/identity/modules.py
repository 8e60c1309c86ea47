"""The user's modules as a whole: the code of their files, for code that cannot be followed name by name.

Nothing is imported here: the result must not depend on which modules are already loaded.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NamedTuple

from hoptree.identity.libraries import is_library

_MOST_FILES = 500  # of one folder, if a name is computed


class ModuleFile(NamedTuple):
    """A user's module: its name, its file, and the package that its relative imports start from."""

    name: str
    file: str
    package: str


def find(name: str) -> ModuleFile | None:
    """Return a user's module; None for a library's, or if it does not exist."""
    spec = _spec(name)
    if spec is None or not spec.has_location or not spec.origin or is_library(None, spec.origin):
        return None
    if not spec.origin.endswith(".py"):
        return None
    return ModuleFile(name, spec.origin, _package(spec))


def imported(name: str, level: int, names: tuple[str, ...], package: str) -> list[ModuleFile]:
    """Return the user's modules that an import statement runs: parent packages, and submodules named in it."""
    full = absolute(name, level, package)
    if not full:
        return []
    parts = full.split(".")
    wanted = [".".join(parts[: end + 1]) for end in range(len(parts))]
    wanted += [f"{full}.{each}" for each in names if each != "*"]
    return [found for each in wanted if (found := find(each)) is not None]


def absolute(name: str, level: int, package: str) -> str:
    """Return the full name of a module that is imported from within a package.

    >>> absolute("nets", 1, "project.models"), absolute("", 2, "project.models"), absolute("json", 0, "")
    ('project.models.nets', 'project', 'json')
    """
    if not level:
        return name
    base = package.split(".")[: len(package.split(".")) - level + 1] if package else []
    return ".".join([*base, *([name] if name else [])])


def named_in(texts: list[str]) -> list[ModuleFile]:
    """Return the user's modules that texts name; a text that ends in a dot names all modules of a package.

    >>> named_in(["no_such_module", "not a name", ""])
    []
    """
    found: list[ModuleFile] = []
    for text in texts:
        name = text.rstrip(".")
        if not name or not all(part.isidentifier() for part in name.split(".")):
            continue
        module = find(name)
        if module is not None:
            found.append(module)
        if text.endswith(".") or (module is not None and Path(module.file).name == "__init__.py"):
            spec = _spec(name)
            for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
                found += modules_in(folder, name)
    return found


def modules_in(folder: str, package: str) -> list[ModuleFile]:
    """Return the modules in a folder and in the packages below it."""
    found: list[ModuleFile] = []
    prefix = f"{package}." if package else ""
    for path in sorted(Path(folder).glob("*.py")):
        if is_library(None, str(path)):
            return []
        if path.stem != "__init__":
            found.append(ModuleFile(prefix + path.stem, str(path), package))
    for inner in sorted(Path(folder).glob("*/__init__.py")):
        name = prefix + inner.parent.name
        found += [ModuleFile(name, str(inner), name), *modules_in(str(inner.parent), name)]
        if len(found) > _MOST_FILES:
            break
    return found[:_MOST_FILES]


def code_of(file: str) -> types.CodeType | None:
    """Return the code of a module's file, without annotations and without the main program's block."""
    try:
        source = Path(file).read_bytes()
        tree = _Stripped().visit(ast.parse(source))
        return compile(ast.fix_missing_locations(tree), file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return None


def is_empty_mapping(file: str, name: str) -> bool:
    """Return whether a file assigns only new empty dictionaries to this name (or attribute, or argument)."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return True  # the file is unknown: give the same result on every machine without it
    return all(map(_is_empty, _values_of(tree, name)))


def _values_of(tree: ast.AST, name: str) -> Iterator[ast.expr | None]:
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=targets, value=value):
                if any(_names(target, name) for target in targets):
                    yield value
            case ast.AnnAssign(target=target, value=value) | ast.AugAssign(target=target, value=value):
                if value is not None and _names(target, name):
                    yield value
            case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
                positional = [*arguments.posonlyargs, *arguments.args]
                defaults = [None] * (len(positional) - len(arguments.defaults)) + arguments.defaults
                pairs = [*zip(positional, defaults, strict=True)]
                pairs += [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
                yield from (value for argument, value in pairs if argument.arg == name and value is not None)


def _names(target: ast.expr, name: str) -> bool:
    return (isinstance(target, ast.Name) and target.id == name) or (
        isinstance(target, ast.Attribute) and target.attr == name
    )


def _is_empty(value: ast.expr | None) -> bool:
    match value:
        case ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id=made) | ast.Attribute(attr=made), args=arguments, keywords=[]):
            if made == "defaultdict":
                return True
            return not arguments and made in ("dict", "OrderedDict", "WeakValueDictionary", "WeakKeyDictionary")
    return False


class _Stripped(ast.NodeTransformer):
    """Removes annotations of functions and the block under ``if __name__ == "__main__"``."""

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        match node.test:
            case ast.Compare(left=ast.Name(id="__name__"), ops=[ast.Eq()]):
                return [self.visit(each) for each in node.orelse] or ast.Pass()
        return self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node


def _spec(name: str) -> ModuleSpec | None:
    """Find a module without importing its parent packages."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    whole = ""
    for part in name.split("."):
        whole = f"{whole}.{part}" if whole else part
        spec = _find_spec(whole, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or [])
    return spec


def _find_spec(name: str, path: list[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        try:
            spec = find_spec(name, path, None) if find_spec is not None else None
        except Exception:  # a third-party finder
            spec = None
        if isinstance(spec, ModuleSpec):
            return spec
    return None


def _package(spec: ModuleSpec) -> str:
    return spec.name if spec.submodule_search_locations is not None else spec.name.rpartition(".")[0]
