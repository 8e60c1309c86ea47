"""The parts of a code object that affect behaviour: instructions without line numbers, layout and local names."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from typing import Any, NamedTuple, Protocol, TypeAlias

from hoptree.identity.statements import without_annotations, without_messages


class Constant(NamedTuple):
    """A constant, which may be the code of a nested function."""

    value: object


class Global(NamedTuple):
    """A name that is looked up in the module, with the attributes that the scope can resolve."""

    name: str
    attributes: tuple[str, ...]
    called: bool  # immediately, and not used otherwise


class Import(NamedTuple):
    """A module imported inside the function, and the names imported from it."""

    name: str
    level: int
    names: tuple[str, ...]


class Operation(NamedTuple):
    """Any other operation or name."""

    text: str


class Scope(Protocol):
    """Resolves the names of a function."""

    def resolvable(self, name: str, attributes: tuple[str, ...]) -> int:
        """Return how many attributes of a name can be resolved now: those of modules."""

    def is_message(self, name: str, attributes: tuple[str, ...]) -> bool:
        """Return whether this function only writes a message: print, a logger's method, warnings.warn."""

    def is_harmless(self, name: str) -> bool:
        """Return whether this is a builtin that only computes a value."""


CodePart: TypeAlias = Constant | Global | Import | Operation

_NO_EFFECT = {"NOP", "EXTENDED_ARG", "CACHE", "RESUME", "PRECALL"}
_ABOUT = {"__doc__", "__qualname__", "__module__", "__firstlineno__", "__static_attributes__"}  # in a class body
_KINDS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def code_parts(code: types.CodeType, scope: Scope) -> Iterator[CodePart]:
    """Yield everything that determines the behaviour of the code, in order."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    signature = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _KINDS)
    yield Operation(f"{signature} {code.co_varnames[:arguments]}")
    steps = without_messages(without_annotations(_instructions(code)), scope)
    numbers = _instruction_numbers(code, steps)
    skip = 0
    for index, step in enumerate(steps):
        if skip:
            skip -= 1
        elif step.opname == "PUSH_NULL" and index + 1 < len(steps) and steps[index + 1].opname in _GLOBAL:
            pass  # the Global part records that it is called
        elif step.opname in _GLOBAL:
            attributes = _attributes(steps, index)
            skip = scope.resolvable(step.argval, attributes)
            called = _called(steps, index, skip)
            yield Operation("GLOBAL called" if called else "GLOBAL")
            yield Global(step.argval, attributes[:skip], called)
        else:
            yield from _step(steps, index, step, numbers, code)
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        start, end, target = (numbers.get(offset, -1) for offset in (entry.start, entry.end, entry.target))
        yield Operation(f"except {start} {end} {target} {entry.depth} {entry.lasti}")


_GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME"}


def _step(
    steps: list[dis.Instruction], index: int, step: dis.Instruction, numbers: dict[int, int], code: types.CodeType
) -> Iterator[CodePart]:
    if step.opname == "IMPORT_NAME":
        level = steps[index - 2].argval if index >= 2 else 0
        names = steps[index - 1].argval if index >= 1 else None
        yield Import(step.argval, level if isinstance(level, int) else 0, names if isinstance(names, tuple) else ())
    elif step.opname == "KW_NAMES":
        yield Operation(f"KW_NAMES {code.co_consts[step.arg or 0]}")
    elif step.opcode in dis.hasconst:
        yield Operation(step.opname)
        yield Constant(step.argval)
    elif step.opcode in dis.hasname:
        yield Operation(f"{step.opname} {step.argval}{' called' if _method(step) else ''}")
    elif step.opcode in (*dis.hasjrel, *dis.hasjabs):
        yield Operation(f"{step.opname} {numbers.get(_target(step), -1)}")
    elif step.opcode in dis.hascompare:
        yield Operation(f"{step.opname} {step.argval}")
    elif step.opname == "MAKE_FUNCTION":
        yield Operation(f"MAKE_FUNCTION {(step.arg or 0) & ~4}")  # without annotations
    else:
        yield Operation(f"{step.opname} {step.arg}")


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    """Return the instructions that have an effect, without the metadata of a class body."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_EFFECT]
    kept: list[dis.Instruction] = []
    for step in steps:
        if step.opname == "STORE_NAME" and step.argval in _ABOUT and kept and kept[-1].opname.startswith("LOAD_"):
            kept.pop()
        else:
            kept.append(step)
    return kept


def _instruction_numbers(code: types.CodeType, steps: list[dis.Instruction]) -> dict[int, int]:
    """Return, for every offset in the code, the number of the first instruction at or after it."""
    numbers: dict[int, int] = {}
    number = 0
    for offset in range(0, len(code.co_code) + 2, 2):
        while number < len(steps) and steps[number].offset < offset:
            number += 1
        numbers[offset] = number
    return numbers


def _target(step: dis.Instruction) -> int:
    target: Any = step.argval
    return target if isinstance(target, int) else -1


def _attributes(steps: list[dis.Instruction], index: int) -> tuple[str, ...]:
    names: list[str] = []
    for step in steps[index + 1 :]:
        if step.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            break
        names.append(step.argval)
    return tuple(names)


def _called(steps: list[dis.Instruction], index: int, attributes: int) -> bool:
    """Return whether a name (with this many attributes) is called as soon as its arguments are loaded."""
    step = steps[index]
    if (step.opname == "LOAD_GLOBAL" and (step.arg or 0) & 1) or (index and steps[index - 1].opname == "PUSH_NULL"):
        return True
    return bool(attributes) and _method(steps[index + attributes])


def _method(step: dis.Instruction) -> bool:
    """Return whether an attribute is loaded in order to be called."""
    if step.opname == "LOAD_METHOD":
        return True
    return step.opname == "LOAD_ATTR" and "LOAD_METHOD" not in dis.opmap and bool((step.arg or 0) & 1)
