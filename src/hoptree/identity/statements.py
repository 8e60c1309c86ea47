"""Statements that do not affect the computation: messages to the user, and annotations."""

from __future__ import annotations

import dis
from typing import Protocol

# Operations that are allowed in the arguments of a message; with any other, the statement counts.
_VALUES = {"LOAD_FAST", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CONST"}
_METHODS = {"item", "tolist", "size", "numel", "dim", "format", "join"}
_ARITHMETIC = {0, 2, 5, 6, 8, 10, 11}  # arguments of BINARY_OP: + // * % ** - /, none of them in place
_ANNOTATED = 4  # flag of MAKE_FUNCTION


class Messages(Protocol):
    """Knows which functions only write a message, and which only compute a value."""

    def is_message(self, name: str, attributes: tuple[str, ...]) -> bool:
        """Return whether a function only writes a message."""

    def is_harmless(self, name: str) -> bool:
        """Return whether a function only computes a value."""


def without_messages(steps: list[dis.Instruction], scope: Messages) -> list[dis.Instruction]:
    """Remove whole statements such as ``print(f"{loss.item():.3f}")`` or ``log.info("step %d", step)``.

    Their arguments must be names, attributes, constants, arithmetic, f-strings or harmless calls of these.
    """
    kept: list[dis.Instruction] = []
    index = 0
    while index < len(steps):
        end = _end(steps, index, scope) if steps[index].opname in ("LOAD_GLOBAL", "LOAD_NAME", "PUSH_NULL") else 0
        if end:
            index = end
        else:
            kept.append(steps[index])
            index += 1
    return kept


def _end(steps: list[dis.Instruction], start: int, scope: Messages) -> int:
    """Return the end of the statement that starts here; 0 if it is not a message."""
    index = start
    if steps[index].opname == "PUSH_NULL":
        index += 1
    if index >= len(steps) or steps[index].opname not in ("LOAD_GLOBAL", "LOAD_NAME"):
        return 0
    attribute = _attribute(steps, index, called=index > start or bool((steps[index].arg or 0) & 1))
    if not scope.is_message(steps[index].argval, attribute):
        return 0
    stack = ["callee", "callee"]
    index += 1 + len(attribute)
    while index < len(steps) and not steps[index].is_jump_target:
        step = steps[index]
        if len(stack) == 1:
            return index + 1 if step.opname == "POP_TOP" else 0
        if not _follow(step, stack, scope):
            return 0
        index += 1
    return 0


def _attribute(steps: list[dis.Instruction], index: int, called: bool) -> tuple[str, ...]:
    """Return the attribute that is called: by LOAD_ATTR if the call was prepared, as for imported modules."""
    if index + 1 < len(steps) and steps[index + 1].opname == ("LOAD_ATTR" if called else "LOAD_METHOD"):
        return (steps[index + 1].argval,)
    return ()


def _follow(step: dis.Instruction, stack: list[str], scope: Messages) -> bool:
    """Apply a step to the stack; return whether it is one of those without side effects."""
    argument = step.arg or 0
    match step.opname:
        case name if name in _VALUES:
            stack.append("value")
        case "LOAD_GLOBAL":
            if argument & 1:
                if not scope.is_harmless(step.argval):
                    return False
                stack += ["callee", "callee"]
            else:
                stack.append("value")
        case "LOAD_ATTR":
            stack[-1] = "value"
        case "LOAD_METHOD" if step.argval in _METHODS:
            stack[-1:] = ["callee", "callee"]
        case "FORMAT_VALUE":
            stack[-1 - bool(argument & 4) :] = ["value"]
        case "BUILD_STRING" | "BUILD_TUPLE" if argument:
            stack[-argument:] = ["value"]
        case "BINARY_OP" if argument in _ARITHMETIC:
            stack[-2:] = ["value"]
        case "UNARY_NEGATIVE" | "KW_NAMES":
            pass
        case "CALL":
            if stack[-argument - 2] != "callee":
                return False
            stack[-argument - 2 :] = ["value"]
        case _:
            return False
    return True


def without_annotations(steps: list[dis.Instruction]) -> list[dis.Instruction]:
    """Remove the annotations of nested functions; those of the function itself are not in its code."""
    dropped: set[int] = set()
    for index, step in enumerate(steps):
        if step.opname == "MAKE_FUNCTION" and (step.arg or 0) & _ANNOTATED:
            end = index - 2  # before the code
            if (step.arg or 0) & 8:  # and the variables that it captures
                end -= 1 + (steps[end].arg or 0)
            dropped.update(_built(steps, end))
    return [step for index, step in enumerate(steps) if index not in dropped]


def _built(steps: list[dis.Instruction], end: int) -> range:
    """Return the steps that build the tuple at ``end``; none if they cannot be determined."""
    if end < 0 or steps[end].opname not in ("BUILD_TUPLE", "LOAD_CONST"):
        return range(0)
    if steps[end].opname == "LOAD_CONST":  # the whole tuple is constant
        return range(end, end + 1)
    missing = steps[end].arg or 0
    for start in range(end - 1, -1, -1):
        step = steps[start]
        if step.opcode in (*dis.hasjrel, *dis.hasjabs):
            break
        missing -= dis.stack_effect(step.opcode, step.arg if step.opcode >= dis.HAVE_ARGUMENT else None, jump=False)
        if step.opname == "LOAD_METHOD" or step.opname == "CALL":
            break  # a call in an annotation
        if missing == 0:
            return range(start, end + 1)
    return range(0)
