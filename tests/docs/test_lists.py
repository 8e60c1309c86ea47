"""Lists in the pages are whole: words of the glossary, folders, layers, decisions."""

import importlib.util
import re
import tomllib
from collections import Counter

from tests.docs.pages import DOCS, ROOT

PACKAGE = ROOT / "src" / "hoptree"
WORDS = re.compile(r"^\| ([^|]+) \| [^|]+ \|$", re.MULTILINE)


def test_the_glossary_has_every_word_once() -> None:
    lines = [line for line in WORDS.findall((DOCS / "glossary.md").read_text()) if line not in ("word", "---")]
    words = Counter(word for line in lines for word in re.split(r", (?![^(]*\))", line))
    assert words["fingerprint"] == 1
    assert len(words) <= 80
    assert [word for word, times in words.items() if times > 1] == []


def test_the_readme_has_every_folder() -> None:
    listed = (ROOT / "README.md").read_text().partition("## Folders")[2].partition("\n## ")[0]
    folders = [path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    assert [name for name in folders if f"{name}/" not in listed] == []
    named = re.findall(r"\b(\w+\.py|\w+/)(?=\s)", listed.partition("tests/")[0].partition("src/hoptree/")[2])
    assert [name for name in named if not (PACKAGE / name).exists()] == []


def test_layers_are_those_that_are_checked() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    checked = [layer.replace("hoptree.", "") for layer in contracts[0]["layers"]]
    page = (DOCS / "architecture.md").read_text().partition("\n## ")[0]
    shown = [re.split(r"  +", line.strip())[0] for line in page.splitlines() if line.startswith("    ")]
    assert shown == checked
    folders = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert folders == {name for layer in checked for name in layer.split(" | ")}


def test_files_to_touch_are_there() -> None:
    table = (DOCS / "architecture.md").read_text().partition("## To change X")[2]
    named = re.findall(r"`([a-z_]+/[\w./]*|tests/[\w/]+)`", table)
    folders = [name for name in named if not name.startswith("tests/")]
    assert len(table.splitlines()) > 14
    assert [name for name in folders if "NAME" not in name and not (PACKAGE / name).exists()] == []
    assert [name for name in named if name.startswith("tests/") and not (ROOT / name).exists()] == []


def test_every_decision_is_listed_by_its_title() -> None:
    page = (DOCS / "README.md").read_text()
    for record in sorted((DOCS / "decisions").glob("0*.md")):
        number, title = record.read_text().splitlines()[0].removeprefix("# ").split(": ", 1)
        assert f"| [{number}](decisions/{record.name}) | {title} |" in page


def test_the_page_on_state_machines_is_that_of_the_tables() -> None:
    spec = importlib.util.spec_from_file_location("states", DOCS / "_states.py")
    assert spec is not None
    assert spec.loader is not None
    states = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(states)
    assert (DOCS / "states.md").read_text() == states.page(), "run python docs/_states.py"
