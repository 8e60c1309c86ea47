"""Commands and options of ``hoptree`` that the pages name are there."""

import re
import shlex
from pathlib import Path

import click
import pytest

from hoptree.ui.cli import cli
from tests.docs.pages import DOCS, ROOT, blocks, pages

LINE = re.compile(r"^(?:\$ )?(?:\S*/)?hoptree (.*)$")
INLINE = re.compile(r"`hoptree ([a-z][^`]*)`")
READ = [ROOT / "README.md", *(page for page in pages() if page.parent != DOCS / "decisions")]


def named(page: Path) -> list[str]:
    """Return what follows ``hoptree`` in console blocks, in indented lines and in running text."""
    text = page.read_text()
    lines = [line for block in blocks(page, "console") for line in block.splitlines()]
    lines += [line.strip() for line in text.splitlines() if line.startswith("    ")]
    found = [match[1] for line in lines if (match := LINE.match(line))]
    return [command.partition(" # ")[0] for command in [*found, *INLINE.findall(text.replace("\n", " "))]]


def check(words: list[str]) -> None:
    command: click.Command = cli
    while isinstance(command, click.Group) and words:
        name, *words = words
        if name.startswith("-"):
            return
        found = command.get_command(click.Context(command), name)
        assert found is not None, f"hoptree has no command {name!r}"
        command = found
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("-"):
            assert word.partition("=")[0] in {*options, "--help", "-h"}, f"{command.name} has no option {word!r}"


@pytest.mark.parametrize("page", READ, ids=[str(page.relative_to(ROOT)) for page in READ])
def test_commands_exist(page: Path) -> None:
    for command in named(page):
        check(shlex.split(command.split("|")[0]))


def test_the_check_sees_what_is_wrong(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("Say `hoptree show digits --nonsense`.\n\n```console\n$ hoptree fly\n```\n")
    assert named(page) == ["fly", "show digits --nonsense"]
    for command in named(page):
        with pytest.raises(AssertionError, match=r"no (command|option)"):
            check(command.split())
