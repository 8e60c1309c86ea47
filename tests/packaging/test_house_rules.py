"""Rules on the size and the names of the code: CONTRIBUTING.md has them."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "hoptree"
MOST_LINES = 400
MOST_METHODS = 4


def classes(folder: Path) -> Iterator[tuple[Path, ast.ClassDef]]:
    for file in sorted(folder.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                yield file.relative_to(folder), node


def long_files(folders: list[Path]) -> dict[str, int]:
    lines = {
        str(file): len(file.read_text().splitlines()) for folder in folders for file in sorted(folder.rglob("*.py"))
    }
    return {name: count for name, count in lines.items() if count > MOST_LINES}


def repeated_names(folder: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for file, node in classes(folder):
        if not node.name.startswith("_"):
            found[node.name].append(str(file))
    return {name: files for name, files in found.items() if len(files) > 1}


def large_protocols(folder: Path) -> dict[str, int]:
    sizes = {
        node.name: sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
        for _, node in classes(folder)
        if any(ast.unparse(base).partition("[")[0] == "Protocol" for base in node.bases)
    }
    return {name: size for name, size in sizes.items() if size > MOST_METHODS}


def test_no_file_is_longer_than_400_lines() -> None:
    assert long_files([ROOT / "src", ROOT / "tests", ROOT / "bench"]) == {}


def test_no_two_public_classes_have_the_same_name() -> None:
    assert repeated_names(PACKAGE) == {}


def test_no_protocol_has_more_than_four_methods() -> None:
    assert large_protocols(PACKAGE) == {}


def test_each_rule_finds_what_breaks_it(tmp_path: Path) -> None:
    methods = "".join(f"    def m{number}(self) -> None: ...\n" for number in range(5))
    (tmp_path / "one.py").write_text(f"class Same: ...\nclass Wide(Protocol[T]):\n{methods}")
    (tmp_path / "two.py").write_text("class Same: ...\n" + "\n" * 400)
    assert list(repeated_names(tmp_path)) == ["Same"]
    assert large_protocols(tmp_path) == {"Wide": 5}
    assert list(long_files([tmp_path]).values()) == [401]
