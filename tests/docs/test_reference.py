"""The reference has every public name."""

import re

import hoptree
from tests.docs.pages import DOCS, pages


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(page.read_text() for page in pages("reference"))
    shown = set(re.findall(r"auto\w+:: hoptree\.(?:report\.)?(\w+)", text))
    assert set(hoptree.__all__) - shown - {"__version__"} == set()


def test_every_page_is_in_the_contents() -> None:
    listed = (DOCS / "index.md").read_text() + (DOCS / "reference" / "index.md").read_text()
    for page in pages():
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        if page.parent.name != "decisions" and name not in ("README", "index"):
            assert re.search(rf"^({name}|{name.removeprefix('reference/')})$", listed, re.MULTILINE), page
