"""The README as a package carries it: links that are relative to a clone lead nowhere there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+://)([^)]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Sets the package's description, with the addresses of pyproject.toml."""

    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        """Read the README, and make its links absolute."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        pages, files = self.config.get("pages", ""), self.config.get("files", "")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute_links(text, pages, files)}


def absolute_links(text: str, pages: str, files: str) -> str:
    """Let relative links begin with the address of the repository's pages, and pictures with that of its files.

    Without an address a link becomes its text, and a picture is left out: better no link than a broken one.
    """

    def replace(found: re.Match[str]) -> str:
        picture, label, target = found.groups()
        base = files if picture else pages
        if not base:
            return "" if picture else label
        end = target if target.startswith("#") else f"/{target}"
        return f"{picture}[{label}]({base.rstrip('/')}{end})"

    return _RELATIVE_LINK.sub(replace, text)
