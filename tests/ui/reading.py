"""What tests of the commands that read a store use."""

from __future__ import annotations

import json
import sqlite3
from hashlib import sha256
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from hoptree.ui.cli import cli

PROGRAM = Path(__file__).parents[1] / "system" / "tiny_study.py"


def invoke(store: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--store", str(store)])


def look(store: Path, *arguments: str) -> str:
    result = invoke(store, *arguments)
    assert result.exit_code == 0, result.output
    return result.output


def figures(store: Path, *arguments: str) -> Any:
    return json.loads(look(store, *arguments, "--json"))


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def change(store: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(store / "journal.sqlite")
    with connection:
        connection.execute(statement, values)
    connection.close()


def files(store: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in store.rglob("*") if path.is_file()}
