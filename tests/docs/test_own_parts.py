"""The parts of the page on own parts keep their contracts; the page on backends shows the example as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

import hoptree.testing
from hoptree.testing import MirrorContract, StateStoreContract, TrainerContract
from tests.docs.pages import DOCS, ROOT, blocks


def count(contract: type) -> int:
    return sum(name.startswith("test_") for name in dir(contract))


@pytest.mark.slow
def test_the_parts_of_the_page_keep_their_contracts(tmp_path: Path) -> None:
    (tmp_path / "test_page.py").write_text("\n\n".join(blocks(DOCS / "own-parts.md", "python")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", "test_page.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{sum(map(count, (TrainerContract, StateStoreContract, MirrorContract)))} passed" in done.stdout


def test_the_page_on_backends_shows_the_example() -> None:
    example = (ROOT / "examples" / "own_backend.py").read_text()
    assert blocks(DOCS / "guide" / "own-backend.md", "python")[0] == example


def test_every_suite_is_on_the_page() -> None:
    page = (DOCS / "own-parts.md").read_text()
    suites = [name for name in hoptree.testing.__all__ if name.endswith("Contract")]
    assert len(suites) == 6
    assert [name for name in suites if f"`{name}`" not in page] == []
