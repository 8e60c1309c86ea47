"""Extensions for Sphinx: pictures that follow the page's light or dark mode, and signatures without inner names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

EMPTY = {dict: "{}", list: "[]", set: "set()"}


class Pictures(SphinxTransform):
    """Put ``tree-dark.svg``, where there is one, beside ``tree.svg``, so that the Markdown stays plain."""

    default_priority = 100  # before Sphinx collects images

    def apply(self, **_: Any) -> None:
        """Mark paragraphs that are a picture, and add dark variants."""
        for image in list(self.document.findall(nodes.image)):
            if isinstance(image.parent, nodes.paragraph):
                image.parent["classes"].append("picture")
            dark = _dark(image["uri"])
            if (Path(self.env.doc2path(self.env.docname)).parent / dark).is_file():
                other = image.deepcopy()
                other["uri"] = dark
                other["classes"].append("only-dark")
                image["classes"].append("only-light")
                image.parent.insert(image.parent.index(image) + 1, other)


def _dark(uri: str) -> str:
    path = Path(uri)
    return path.with_name(f"{path.stem}-dark{path.suffix}").as_posix()


def _signature(*given: Any) -> tuple[str, str | None] | None:
    """Show an empty default as it is written, not as the record library's ``<factory>``."""
    *_, thing, _options, signature, returns = given
    if signature is None or "<factory>" not in signature:
        return None
    for field in msgspec.structs.fields(thing):
        shown = EMPTY.get(field.default_factory)
        if shown is not None:
            signature = signature.replace(f"{field.name}=<factory>", f"{field.name}={shown}")
    return signature, returns


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of both."""
    app.add_transform(Pictures)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True}
