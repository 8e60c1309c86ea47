"""The pictures are what the simulator decides today."""

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import DOCS


def test_drawing_again_changes_nothing(tmp_path: Path) -> None:
    subprocess.run([sys.executable, DOCS / "pictures" / "draw.py", tmp_path], check=True)
    drawn = sorted(tmp_path.iterdir())
    assert [file.name for file in drawn] == sorted(file.name for file in (DOCS / "pictures").glob("*.svg"))
    for file in drawn:
        assert file.read_bytes() == (DOCS / "pictures" / file.name).read_bytes(), file.name
