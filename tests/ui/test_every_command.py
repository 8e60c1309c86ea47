"""Every command as a process: its help has an example, and its JSON is what the documented schema says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import jsonschema
import numpy as np
import pytest

from hoptree.core.events import TrialAsked
from hoptree.core.facts import Entry
from hoptree.core.lineage import config_items
from hoptree.store import Store
from hoptree.ui.cli import COMMANDS, cli

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "docs" / "json"
MAIN = "from hoptree.ui.cli import main; main()"


def hoptree(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", MAIN, *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=cwd, timeout=300, env={**os.environ, **environment}
    )


def all_commands() -> list[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(cli)
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        found.append(((name,), command))
        if isinstance(command, click.Group):
            found += [((name, inner), each) for inner, each in command.commands.items()]
    return found


ALL = all_commands()


@pytest.mark.parametrize("name", [name for name, _ in ALL], ids=" ".join)
def test_help_has_an_example(name: tuple[str, ...], tmp_path: Path) -> None:
    done = hoptree(*name, "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Usage: hoptree {' '.join(name)} ")
    _, _, example = done.stdout.partition("Example")
    assert f"hoptree {' '.join(name)}" in " ".join(example.split())
    assert max(map(len, done.stdout.splitlines())) <= 80  # terminals are no wider


def test_the_list_of_commands_fits(tmp_path: Path) -> None:
    done = hoptree("--help", cwd=tmp_path)
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)
    assert "..." not in done.stdout.partition("Commands:")[2]  # no line is cut


# what is run, by the schema that its JSON has to follow
JSON = [
    ("run", ["run", "tiny.py"]),
    ("explain", ["explain", "fine.py"]),
    ("explain", ["explain", "tiny.py"]),
    ("plan", ["plan", "fine.py", "--instance", "p3.8xlarge", "--price", "12.24", "--devices", "4"]),
    ("profile", ["profile", "tiny.py"]),
    ("profile", ["profile", "fine.py", "--again", "--workers", "1"]),
    ("studies", ["studies"]),
    ("show", ["show", "tiny"]),
    ("show-trial", ["show", "tiny", "--trial", "0"]),
    ("show-trial", ["show", "tiny", "--trial", "2"]),
    ("trials", ["trials", "tiny", "--state", "complete", "--sort", "accuracy", "--limit", "3"]),
    ("best", ["best", "tiny"]),
    ("verify", ["verify", "tiny", "0"]),
    ("verify-bundle", ["verify", "tiny.zip", "--program", "tiny.py"]),
    ("request", ["add", "tiny", "--set", "lr=0.2", "--epochs", "2"]),
    ("request", ["extend", "tiny", "0", "--epochs", "3"]),
    ("request", ["clone", "tiny", "0", "--set", "lr=constant(0.2)", "--at", "1", "--epochs", "3"]),
    ("request", ["stop", "left", "0"]),
    ("interrupt", ["interrupt", "held"]),
    ("request", ["retry", "tiny"]),
    ("request", ["retry", "tiny", "2"]),
    ("clean", ["clean"]),
    ("clean", ["clean", "--yes", "--logs", "--datasets"]),
    ("migrate", ["migrate", ".hoptree"]),
    ("doctor", ["doctor", "--deep"]),
    ("simulate", ["simulate", "--configs", "2", "--workers", "2"]),
    ("data-build", ["data", "build", "rows.npz", "--to", "rows", "--partitions", "2"]),
    ("data-inspect", ["data", "inspect", "rows"]),
]


@pytest.fixture(scope="module")
def place(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the program and its store, and a small table."""
    place = tmp_path_factory.mktemp("json") / "copy"
    shutil.copytree(folder, place)
    fine = (place / "tiny.py").read_text().replace("8, 5, 16", "8, 16").replace('"tiny",', '"fine",')
    (place / "fine.py").write_text(fine)
    np.savez(place / "rows.npz", x=np.arange(12.0), y=np.arange(12))
    bundled = hoptree("export", "tiny", "--bundle", "tiny.zip", cwd=place)
    assert bundled.returncode == 0, bundled.stderr
    leave_open(place / ".hoptree")
    with Store(place / ".hoptree") as store, store.lease("held"):
        yield place


def leave_open(folder: Path) -> None:
    """Enter a study whose driver was killed: its trial is not over."""
    with Store(folder) as store:
        known = store.catalog.find("tiny")
        assert known is not None
        store.catalog.register("left", known.spec)
        store.catalog.register("held", known.spec)
        asked = TrialAsked(0, config_items({"lr": 0.1}), until=2, study="left")
        with store.lease("left") as lease:
            store.journal.writer("left", lease.token).append([(0.0, Entry(asked))])


def follows(schema: str, printed: str) -> Any:
    """Return what a command printed, if it follows a schema."""
    rules = json.loads((SCHEMAS / f"{schema}.schema.json").read_text())
    kind = jsonschema.validators.validator_for(rules)
    kind.check_schema(rules)
    told = json.loads(printed)
    kind(rules).validate(told)
    return told


@pytest.mark.parametrize(("schema", "arguments"), JSON, ids=[" ".join(arguments[:2]) for _, arguments in JSON])
def test_json_follows_its_schema(schema: str, arguments: list[str], place: Path) -> None:
    if "inspect" in arguments and not (place / "rows").exists():
        hoptree("data", "build", "rows.npz", "--to", "rows", "--partitions", "2", cwd=place)
    done = hoptree(*arguments, "--json", cwd=place)
    assert done.returncode == 0, done.stderr
    follows(schema, done.stdout)


@pytest.mark.parametrize(
    ("before", "after", "differs", "code"),
    [("", "", [], 0), ('optimizer="sgd"', 'optimizer="adam"', ["trainer"], 1)],
    ids=["same", "other code"],
)
@pytest.mark.slow
def test_json_of_a_bundle_follows_its_schema(
    before: str, after: str, differs: list[str], code: int, place: Path, tmp_path: Path
) -> None:
    shutil.copy(place / "tiny.zip", tmp_path)
    (tmp_path / "tiny.py").write_text((place / "tiny.py").read_text().replace(before, after))
    done = hoptree("verify", "tiny.zip", "--program", "tiny.py", "--json", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    told = follows("verify-bundle", done.stdout)
    assert [each["what"] for each in told["differences"]] == differs
    assert [each["trial"] for each in told["trials"]] == [0, 1, 4, 5]
    assert {each["same"] for each in told["trials"]} == {not differs}
    assert ("Reproduced" in told["verdict"]) is not bool(differs)


def test_every_command_with_json_has_a_schema() -> None:
    tested = {tuple(arguments[: len(name)]) for _, arguments in JSON for name, _ in ALL}
    for name, command in ALL:
        if any("--json" in parameter.opts for parameter in command.params):
            assert name in tested, name
    assert {schema for schema, _ in JSON} == {file.name.split(".")[0] for file in SCHEMAS.glob("*.json")}
    page = (SCHEMAS / "README.md").read_text()
    assert all(file.name in page for file in SCHEMAS.glob("*.json"))


def test_policies_are_those_of_the_core() -> None:
    from hoptree.core.policies import POLICIES
    from hoptree.ui import simulate_commands

    assert simulate_commands.POLICIES == POLICIES


# --- completion -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_printed_for_a_shell(shell: str, tmp_path: Path) -> None:
    done = hoptree("completion", shell, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"_HOPTREE_COMPLETE={shell}_complete" in done.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hoptree show ", "tiny"),
        ("hoptree plot t", "tiny"),
        ("hoptree export ", "tiny"),
        ("hoptree tri", "trials"),
        ("hoptree clean --forget t", "tiny"),
        ("hoptree x", ""),
    ],
)
def test_a_shell_completes(words: str, expected: str, folder: Path) -> None:
    done = hoptree(
        cwd=folder, _HOPTREE_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split(" ")) - 1)
    )
    assert done.returncode == 0, done.stderr
    assert "".join(line.partition(",")[2] for line in done.stdout.splitlines()) == expected


def test_bash_takes_what_is_printed(folder: Path, tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash, "these tests need bash"
    program = tmp_path / "hoptree"
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{MAIN}' \"$@\"\n")
    program.chmod(0o755)
    script = """
        eval "$(hoptree completion bash)"
        COMP_WORDS=(hoptree best ""); COMP_CWORD=2
        _hoptree_completion hoptree "" best
        echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    command = [bash, "-c", script]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)
    assert done.stdout.strip() == "tiny", done.stderr
