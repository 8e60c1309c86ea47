"""The reference has every public name."""

import re

import hoptree
from tests.docs.pages import DOCS, pages


def test_every_public_name_is_in_the_reference() -> None:
    text = "\n".join(page.read_text() for page in pages("reference"))
    shown = set(re.findall(r"auto\w+:: hoptree\.(\w+)", text))
    assert set(hoptree.__all__) - shown - {"__version__"} == set()


def test_every_page_is_in_the_contents() -> None:
    listed = (DOCS / "index.md").read_text() + (DOCS / "reference" / "index.md").read_text()
    for page in pages():
        if page.parent.name != "decisions" and page.name != "README.md" and page != DOCS / "index.md":
            name = (
                page.stem if page.parent.name == "reference" else page.relative_to(DOCS).with_suffix("").as_posix()
            )
            assert re.search(rf"^(reference/)?{re.escape(name)}$", listed, re.MULTILINE), page
