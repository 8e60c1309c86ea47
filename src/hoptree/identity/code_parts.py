"""What a code object does, part by part: its instructions without line numbers, layout and local names."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_VARARGS, CO_VARKEYWORDS
from typing import Any, NamedTuple, TypeAlias


class Constant(NamedTuple):
    """A constant, which may be the code of a nested function."""

    value: object


class Global(NamedTuple):
    """A name looked up in the module, with the attributes taken of it at once."""

    name: str
    attributes: tuple[str, ...]


class Import(NamedTuple):
    """A module imported inside the function."""

    name: str
    level: int


class Attribute(NamedTuple):
    """Anything else: an operation, or a name."""

    text: str


CodePart: TypeAlias = Constant | Global | Import | Attribute

_SILENT = {"NOP", "EXTENDED_ARG", "CACHE", "RESUME", "PRECALL"}
_ABOUT = {"__doc__", "__qualname__", "__module__", "__firstlineno__", "__static_attributes__"}  # in a class body
_KINDS = CO_VARARGS | CO_VARKEYWORDS | CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def code_parts(code: types.CodeType) -> Iterator[CodePart]:
    """Yield what determines the behaviour of the code, in order."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    signature = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags & _KINDS)
    yield Attribute(f"{signature} {code.co_varnames[:arguments]}")
    steps = _instructions(code)
    places = _places(code, steps)
    for index, step in enumerate(steps):
        yield from _step(steps, index, step, places)
    for entry in getattr(dis.Bytecode(code), "exception_entries", ()):
        start, end, target = (places.get(offset, -1) for offset in (entry.start, entry.end, entry.target))
        yield Attribute(f"except {start} {end} {target} {entry.depth} {entry.lasti}")


def _step(
    steps: list[dis.Instruction], index: int, step: dis.Instruction, places: dict[int, int]
) -> Iterator[CodePart]:
    if step.opname == "IMPORT_NAME":
        level = steps[index - 2].argval if index >= 2 else 0
        yield Import(step.argval, level if isinstance(level, int) else 0)
    elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
        # The lowest bit of LOAD_GLOBAL says whether a call follows, which the call itself says too.
        yield Attribute(step.opname)
        yield Global(step.argval, _attributes(steps, index))
    elif step.opcode in dis.hasconst:
        yield Attribute(step.opname)
        yield Constant(step.argval)
    elif step.opcode in dis.hasname:
        yield Attribute(f"{step.opname} {step.argval}")
    elif step.opcode in (*dis.hasjrel, *dis.hasjabs):
        yield Attribute(f"{step.opname} {places.get(_target(step), -1)}")
    elif step.opcode in dis.hascompare:
        yield Attribute(f"{step.opname} {step.argval}")
    else:
        yield Attribute(f"{step.opname} {step.arg}")


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    """Return the instructions that do something, without what a class body says about itself."""
    steps = [step for step in dis.get_instructions(code) if step.opname not in _SILENT]
    kept: list[dis.Instruction] = []
    for step in steps:
        if step.opname == "STORE_NAME" and step.argval in _ABOUT and kept and kept[-1].opname.startswith("LOAD_"):
            kept.pop()
        else:
            kept.append(step)
    return kept


def _places(code: types.CodeType, steps: list[dis.Instruction]) -> dict[int, int]:
    """Return, for every offset in the code, the number of the first instruction at or after it."""
    places: dict[int, int] = {}
    number = 0
    for offset in range(0, len(code.co_code) + 2, 2):
        while number < len(steps) and steps[number].offset < offset:
            number += 1
        places[offset] = number
    return places


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
