"""Workload files: TOML with a [workload] and a [cluster] table; schedules are written as in Python."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hoptree.core import schedules
from hoptree.core.errors import HoptreeError, WorkloadError
from hoptree.core.schedules import Value
from hoptree.simulator.cluster import Cluster
from hoptree.simulator.workload import Workload


def read(path: Path) -> tuple[Workload, Cluster]:
    """Return the workload and cluster of a file; every error names the file and the field."""
    try:
        tables = tomllib.loads(path.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: cannot be read: {error}") from None
    unknown = set(tables) - {"workload", "cluster"}
    if unknown:
        raise WorkloadError(f"{path}: unknown table [{sorted(unknown)[0]}]; expected [workload] and [cluster]")
    for name, table in tables.items():
        if not isinstance(table, dict):
            raise WorkloadError(f"{path}: {name}: {table!r}; expected a table, [{name}] with one field per line")
    workload = dict(tables.get("workload", {}))
    configs = workload.get("configs")
    try:
        if isinstance(configs, list):
            workload["configs"] = [_config(f"configs[{index}]", config) for index, config in enumerate(configs)]
        return _convert(workload, Workload), _convert(tables.get("cluster", {}), Cluster)
    except WorkloadError as error:
        raise WorkloadError(f"{path}: {error}") from None


def _config(field: str, config: Any) -> dict[str, Value]:
    if not isinstance(config, dict):
        raise WorkloadError(f"{field}: {config!r}; expected names and values, for example {{lr = 0.1}}")
    values: dict[str, Value] = {}
    for name, value in config.items():
        try:
            values[name] = parse_value(value)
        except HoptreeError as error:
            raise WorkloadError(f"{field}[{name!r}]: {error}") from None
    return values


def parse_value(text: Any) -> Value:
    """Return a schedule for a string such as ``multistep(0.1, at=[40], gamma=0.1)``, else the value itself.

    >>> parse_value("constant(0.1)")(3)
    0.1
    >>> parse_value("adam")
    'adam'
    """
    value: Value = text
    if not isinstance(text, str) or "(" not in text:
        return value
    try:
        value = _build(ast.parse(text, mode="eval").body, text)
    except (SyntaxError, TypeError) as error:
        raise WorkloadError(f"{text!r}: not a schedule: {error}") from None
    return value


def _build(node: ast.expr, text: str) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        make = _SCHEDULES.get(node.func.id)
        if make is None:
            raise WorkloadError(
                f"{text!r}: unknown schedule {node.func.id}; expected one of {', '.join(_SCHEDULES)}"
            )
        named = {keyword.arg or "": _build(keyword.value, text) for keyword in node.keywords}
        return make(*(_build(argument, text) for argument in node.args), **named)
    if isinstance(node, ast.List | ast.Tuple):
        return [_build(element, text) for element in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError:
        raise WorkloadError(f"{text!r}: {ast.unparse(node)} is not a number or a schedule") from None


_SCHEDULES: dict[str, Callable[..., schedules.Schedule]] = {
    "constant": schedules.constant,
    "linear": schedules.linear,
    "exponential": schedules.exponential,
    "multistep": schedules.multistep,
    "cyclic": schedules.cyclic,
    "cosine": schedules.cosine,
    "warmup": schedules.warmup,
    "piecewise": schedules.piecewise,
}


def _convert(table: dict[str, Any], kind: type[Any]) -> Any:
    fields = {field.name for field in msgspec.structs.fields(kind)}
    unknown = sorted(set(table) - fields)
    if unknown:
        raise WorkloadError(f"{unknown[0]}: unknown field; expected {', '.join(sorted(fields))}")
    try:
        return msgspec.convert(table, kind, str_keys=True)  # keys of a TOML table are text, also widths of scaling
    except msgspec.ValidationError as error:
        raise WorkloadError(_mismatch(str(error), table)) from None


_MISMATCH = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<place>.*)`)?$", re.DOTALL)
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}
_WORDS |= {"array": "a list", "object": "a table"}


def _mismatch(message: str, table: dict[str, Any]) -> str:
    """Rephrase a msgspec message, such as: Expected `int`, got `str` - at `$.epochs`."""
    found = _MISMATCH.match(message)
    assert found is not None
    place, what = found["place"] or "", found["what"]
    types = re.fullmatch(r"Expected `(.*)`, got `.*`", what)
    if types is None:
        return f"{place}: {what}" if place else what
    expected = " or ".join(dict.fromkeys(_WORDS.get(kind.strip(), kind.strip()) for kind in types[1].split("|")))
    given = f"{table[place]!r}" if place in table else what.rpartition("got ")[2].strip("`")
    return f"{place}: {given}; expected {expected}"
