"""Describe a space as plain data, so that a resumed study can tell what has changed in it."""

from __future__ import annotations

from typing import Any

from hoptree.search.constraints import fingerprint, name_of
from hoptree.search.parse_space import Space, read
from hoptree.search.parsed_parameters import Continuous, Stepped, Whole
from hoptree.search.tree import ChoiceNode, Given, Node, ScheduleNode, Several, SpacePart, nodes
from hoptree.search.value_kinds import Integer, Uniform, text


def describe(space: Space) -> dict[str, Any]:
    """Return a space as data for JSON: lists of paths with the text of each node, in the order of definition.

    Each condition is described by a hash of its code, see ``constraints.fingerprint``.

    >>> from hoptree.search.value_kinds import choice, log
    >>> describe({"lr": log(1e-4, 0.1), "optimizer": choice("sgd", {"name": "adam"})})["names"][:2]
    [['lr', 'log(0.0001, 0.1)'], ['optimizer', 'choice of 2']]
    """
    root = read(space)
    names = [[node.path, node_text(node)] for node in nodes(root) if node is not root]
    where = [
        [node.path, name_of(condition), fingerprint(condition)]
        for node in nodes(root)
        if isinstance(node, SpacePart)
        for condition in node.conditions
    ]
    return {"names": names, "where": where}


def changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the differences between two descriptions, one line each, starting with the path.

    >>> changes({"names": [["lr", "0.1"]], "where": []}, {"names": [["lr", "0.2"]], "where": []})
    ['lr: was 0.1, is 0.2']
    """
    old, new = dict(before["names"]), dict(after["names"])
    lines = [f"{path}: was {old[path]}, is {new[path]}" for path in new if path in old and old[path] != new[path]]
    lines += [f"{path}: is new" for path in new if path not in old]
    lines += [f"{path}: was removed" for path in old if path not in new]
    if not lines and list(old) != list(new):
        lines.append(f"{next(iter(new))}: the order of names has changed")
    lines += condition_changes(before["where"], after["where"])
    return lines


def condition_changes(before: list[list[str]], after: list[list[str]]) -> list[str]:
    """Return the differences between the conditions of two descriptions, one line each."""
    if len(before) != len(after):
        return [f"where: was {len(before)} conditions, is {len(after)}"]
    lines = []
    for (old_path, old_name, old), (path, name, new) in zip(before, after, strict=True):
        same_python = old.partition(":")[0] == new.partition(":")[0]  # bytecode differs between Python versions
        if (old_path, old_name) != (path, name) or (same_python and old != new):
            lines.append(f"{path or 'where'}: the code of the condition {name} differs from that of {old_name}")
    return lines


def node_text(node: Node) -> str:
    """Return the text of a node, without its children."""
    match node:
        case Given(_, value):
            return text(value)
        case Continuous(_, low, high, log):
            return str(Uniform(low, high, None, log))
        case Stepped(_, low, high, step, log):
            return str(Uniform(low, high, step, log))
        case Whole(_, low, high, step, log):
            return str(Integer(low, high, step, log))
        case ChoiceNode(_, options):
            return f"choice of {len(options)}"
        case Several(_, items):
            return f"list of {len(items)}"
        case ScheduleNode(_, kind):
            return f"{kind}(...)"
        case SpacePart(_, entries):
            return f"part of {len(entries)}"
