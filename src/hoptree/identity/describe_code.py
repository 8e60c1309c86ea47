"""Describe functions and modules by their parts."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from hoptree.identity.caches import fills, is_cache
from hoptree.identity.code_parts import Constant, Global, Import, Operation, Scope, code_parts
from hoptree.identity.libraries import is_library, is_library_module, release_of_file
from hoptree.identity.modules import ModuleFile, code_of, imported, modules_in, named_in
from hoptree.identity.scopes import MISSING, LibraryMember, ModuleScope, UnknownScope
from hoptree.identity.walk import Description, Label, ValuePart, Walk

# Names in code that make names, annotations or documentation count, which otherwise do not.
_FEATURES = {
    "__name__": "names", "__qualname__": "names", "_get_name": "names",
    "__annotations__": "annotations", "get_type_hints": "annotations", "get_annotations": "annotations",
    "signature": "annotations", "getfullargspec": "annotations", "fields": "annotations",
    "__dataclass_fields__": "annotations", "__doc__": "documentation", "getdoc": "documentation",
}  # fmt: skip
_DISPLAY_METHODS = {"__repr__", "__str__", "__format__"}  # these may use names without making them count
_OWN_MODULE = {"globals", "eval", "exec", "__globals__", "f_globals"}  # can reach anything in the function's module
_ANY_MODULE = {"import_module", "__import__", "iter_modules", "walk_packages", "spec_from_file_location"}
_ANY_MODULE |= {"run_path", "run_module", "load_module"}
_MODULE_ATTRIBUTES = {
    "__name__",
    "__file__",
    "__path__",
    "__spec__",
    "__loader__",
    "__builtins__",
    "__cached__",
    "__doc__",
}
_ATTRIBUTES_IGNORED = {"__wrapped__", "__doc__", "__name__", "__qualname__", "__module__", "hooked"}


def describe_function(walk: Walk, function: types.FunctionType) -> Description:
    """Describe a function: a library's by its name, the user's by its code."""
    while _is_profiled(function):
        function = vars(function)["__wrapped__"]
    file, module = function.__code__.co_filename, function.__module__
    by_library = is_library(None, file)
    known = "<" not in function.__qualname__ or is_member(function)
    if known and (by_library or file.startswith("<")) and is_library(module, None):
        captured = () if is_member(function) else _captured(function)
        name = ValuePart((walk.release(module), module, function.__qualname__))
        return Description("library", (name, *captured))
    if by_library:
        return _made_by_library(walk, function)
    scope = function.__globals__
    _note_folder(walk, file, scope.get("__name__", ""))
    return Description("function", _function_parts(walk, function), scope.get("__name__") or module or "")


def is_member(value: Any) -> bool:
    """Return whether a library's function can be found under its name: then the name is sufficient."""
    module = sys.modules.get(value.__module__)
    if module is None:
        return False
    found: Any = module
    for name in value.__qualname__.split("."):
        member = getattr(found, "__dict__", {}).get(name)
        found = getattr(member, "__func__", member)
    return found is value or vars(module).get(value.__name__) is value


def describe_code(walk: Walk, code: types.CodeType) -> Description:
    """Describe code that belongs to no function."""
    return Description("code", _code(walk, code, {}, UnknownScope(), ""))


def describe_module(walk: Walk, module: types.ModuleType) -> Description:
    """Describe a module that is used as a value: any part of it may be used."""
    if is_library_module(module):
        return Description("module", (ValuePart((module.__name__, walk.release(module.__name__))),))
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py"):
        raise walk.incomparable(module)
    package = getattr(module, "__package__", None) or ""
    return Description("module", (whole(walk, ModuleFile(module.__name__, file, package)),))


def describe_module_file(walk: Walk, module: ModuleFile) -> Description:
    """Describe a user's module as a whole: its code, and that of the user's modules that it imports."""
    code = code_of(module.file)
    if code is None:
        return Description("file", (Label("no code"),), module.name)
    _note_folder(walk, module.file, module.name)
    scope = {"__name__": module.name, "__file__": module.file, "__package__": module.package}
    return Description("file", _code(walk, code, scope, UnknownScope(), module.name), module.name)


def whole(walk: Walk, module: ModuleFile) -> ValuePart:
    """Return a module as a whole, as the same object every time."""
    return ValuePart(walk.keep.setdefault(("module", module.name, module.file), module))


def _function_parts(walk: Walk, function: types.FunctionType) -> Iterator[Any]:
    name, code = function.__name__, function.__code__
    filled = fills(code)
    if "names" in walk.features:
        yield Label(name)
    if "annotations" in walk.features:
        yield ValuePart(dict(function.__annotations__), f"the annotations of {name!r}")
    if "documentation" in walk.features:
        yield Label(function.__doc__ or "")
    for part in _code(walk, code, function.__globals__, ModuleScope(function.__globals__), name):
        yield part._replace(where=_within(part.where, name)) if isinstance(part, ValuePart) else part
    arguments = code.co_varnames[: code.co_argcount]
    defaults = dict(zip(reversed(arguments), reversed(function.__defaults__ or ()), strict=False))
    defaults |= function.__kwdefaults__ or {}
    for argument, value in sorted(defaults.items()):
        yield Label(argument)
        yield _value(value, argument, f"the defaults of {name!r}", filled, code.co_filename)
    yield from _captured(function)
    for attribute, value in sorted(vars(function).items()):
        if attribute not in _ATTRIBUTES_IGNORED:
            yield Label(attribute)
            yield _value(value, attribute, f"the attribute {attribute!r} of {name!r}", filled, code.co_filename)


def _within(where: str, name: str) -> str:
    return f"{where} of function {name!r}" if where else f"function {name!r}"


def _value(value: Any, name: str, where: str, filled: frozenset[str], file: str) -> ValuePart:
    """Return a value, or only its type if it is a cache that the function fills."""
    if isinstance(value, MutableMapping) and is_cache(name, filled, file):
        return ValuePart(type(value).__name__, where)
    return ValuePart(value, where)


def _code(
    walk: Walk, code: types.CodeType, variables: Mapping[str, Any], scope: Scope, function: str
) -> Iterator[Any]:
    filled = fills(code)
    names: set[str] = set()
    texts: list[str] = []
    for part in code_parts(code, scope):
        match part:
            case Constant(types.CodeType() as nested):
                yield Label("nested")
                yield from _code(walk, nested, variables, scope, function)
                yield Label("end")
            case Constant(value):
                texts += _texts(value)
                yield ValuePart(value)
            case Global(name, attributes):
                names |= {*attributes} if name in _MODULE_ATTRIBUTES else {name, *attributes}
                yield from _global(walk, part, scope, filled, code)
            case Import(name):
                names.add(name)
                yield from _import(walk, part, variables.get("__package__") or "")
            case Operation(text):
                names.update(text.split()[1:2])
                yield Label(text)
    if function not in _DISPLAY_METHODS:
        walk.required_features |= {_FEATURES[name] for name in names & _FEATURES.keys()}
        walk.required_features |= {_FEATURES[text] for text in texts if text.startswith("__") and text in _FEATURES}
    yield from _computed(walk, names, texts, variables, code.co_filename)


def _texts(value: object) -> list[str]:
    if isinstance(value, tuple | frozenset):
        return [text for item in value for text in _texts(item)]
    return [value] if isinstance(value, str) else []


def _global(walk: Walk, part: Global, scope: Scope, filled: frozenset[str], code: types.CodeType) -> Iterator[Any]:
    if part.name in _MODULE_ATTRIBUTES or not isinstance(scope, ModuleScope):
        yield Label(part.name)
        return
    value, _, rest = scope.resolve(part.name, part.attributes)
    if value is MISSING:
        yield Label(f"{part.name} is not there")
        return
    if rest:
        yield Label(rest)
    if isinstance(value, types.FunctionType) and not part.called:
        yield Label(value.__name__)  # others may read the name
    path = ".".join((part.name, *part.attributes))
    if isinstance(value, LibraryMember):
        value = walk.keep.setdefault(("member", *value[:2]), value)
    yield _value(value, (part.name, *part.attributes)[-1], f"the variable {path!r}", filled, code.co_filename)


def _import(walk: Walk, part: Import, package: str) -> Iterator[Any]:
    found = imported(part.name, part.level, part.names, package)
    yield Label(f"{part.names}")
    if found:
        yield from (whole(walk, module) for module in found)
    else:
        yield Label(part.name)
        if not part.level and part.name:
            yield Label(walk.release(part.name))


def _computed(
    walk: Walk, names: set[str], texts: list[str], variables: Mapping[str, Any], file: str
) -> Iterator[Any]:
    """Yield the modules that code can reach through names that it computes."""
    own = ModuleFile(variables.get("__name__") or "", file, variables.get("__package__") or "")
    by_name = bool(names & _ANY_MODULE)
    if not by_name and not names & _OWN_MODULE and not {"sys", "modules"} <= names:
        return
    if not os.path.isfile(file):
        return  # in a notebook, only the names that a function uses are sent with it
    yield whole(walk, own)
    if by_name:
        named = named_in(texts)
        prefix = own.package if own.package else ""
        found = named or modules_in(os.path.dirname(file), prefix)
        yield from (whole(walk, module) for module in found)


def _captured(function: types.FunctionType) -> Iterator[ValuePart]:
    filled = fills(function.__code__)
    for variable, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            value = None
        where = f"the captured variable {variable!r} of {function.__name__!r}"
        yield _value(value, variable, where, filled, function.__code__.co_filename)


def _made_by_library(walk: Walk, function: types.FunctionType) -> Description:
    """Describe a function that a library created from the user's code, such as a decorator's wrapper."""
    code = function.__code__
    made = (walk.note_release(release_of_file(code.co_filename)), code.co_qualname, code.co_code)
    if code.co_qualname == "singledispatch.<locals>.wrapper":
        registry = {f"{kind.__module__}.{kind.__qualname__}": (kind, each) for kind, each in
                    vars(function)["registry"].items()}  # fmt: skip
        return Description("singledispatch", (ValuePart(dict(sorted(registry.items()))),))
    settings = (function.__defaults__, function.__kwdefaults__)
    return Description("made by a library", (ValuePart(made), ValuePart(settings), *_captured(function)))


def _is_profiled(function: types.FunctionType) -> bool:
    """Return whether torch has wrapped the step of an optimizer's class, as it does for the first instance."""
    return function.__code__.co_qualname == "Optimizer.profile_hook_step.<locals>.wrapper" and isinstance(
        vars(function).get("__wrapped__"), types.FunctionType
    )


def _note_folder(walk: Walk, file: str, module: str) -> None:
    """Add the folder that contains a module's package: paths in it may move with it."""
    if not os.path.isabs(file):
        return
    folder = os.path.dirname(file)
    for _ in range(module.count(".") + (os.path.basename(file) == "__init__.py")):
        folder = os.path.dirname(folder)
    walk.folders.add(folder)
