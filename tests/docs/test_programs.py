"""What the guide shows as Python runs: all blocks of a page, in order, as one program."""

import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from hoptree.ui.cli import cli
from tests.docs.pages import DOCS, blocks, pages

GUIDE = [page for page in [DOCS / "quickstart.md", DOCS / "guide.md", *pages("guide")] if blocks(page, "python")]
MIGRATION = pages("migrate")


def run(folder: Path, program: str, name: str = "program.py", **around: str) -> str:
    (folder / name).write_text(program)
    command = [sys.executable, name]
    # For Ray Tune: our own clusters ask for a token anyway. Without one, Ray would write it to the home folder.
    door = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    closed = {**os.environ, **around, **door}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=closed, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


SLOW = {
    "ray",
    "pytorch",
    "resume",
    "files",
    "quickstart",
    "look",
    "scheduling",
    "searches",
    "dashboard",
    "trainer",
    "sharing",
    "change",
    "schedules",
    "money",
}  # what they show, other fast tests show too
PAGES = [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in SLOW)) for page in GUIDE]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_of_the_guide_is_a_program(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "digits.py" if page.stem == "quickstart" else "program.py"  # as the page says
    assert run(tmp_path, "\n".join(blocks(page, "python")), name).strip()
    monkeypatch.chdir(tmp_path)
    for line in "".join(blocks(page, "console")).splitlines():  # and its commands work on what the program did
        words = shlex.split(line)
        if words[1] == "hoptree":
            done = CliRunner().invoke(cli, words[2:])
            assert done.exit_code == 0, (line, done.output, done.exception)


def test_the_rules_of_order_and_seeds_are_a_program(tmp_path: Path) -> None:
    program = "\n".join(blocks(DOCS / "order-and-seeds.md", "python"))
    assert "hoptree" not in [
        line.split()[1] for line in program.splitlines() if line.startswith(("import", "from"))
    ]
    run(tmp_path, program)


@pytest.mark.slow
@pytest.mark.parametrize("page", MIGRATION, ids=[page.stem for page in MIGRATION])
def test_every_block_of_a_migration_page_is_a_program(page: Path, tmp_path: Path) -> None:
    for number, program in enumerate(blocks(page, "python")):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert run(folder, program, RAY_ADDRESS="local").strip()  # not in a cluster of another test
