"""The messages of the troubleshooting page are messages of the code."""

import ast
import re
from collections.abc import Iterator

from tests.docs.pages import DOCS, ROOT

ROW = re.compile(r"^\| `([^`]+(?:``[^`]+)*)` \|", re.MULTILINE)


def texts() -> Iterator[str]:
    """Yield every text of the package, with a mark for what is filled in."""
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "\0" for part in node.values)
                yield "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield re.sub("%[sd]", "\0", node.value)


def test_messages_are_those_of_the_code() -> None:
    page = (DOCS / "troubleshooting.md").read_text()
    known = "\1".join(texts())
    messages = ROW.findall(page)
    assert len(messages) > 40
    pattern = {message: r"[^\1]*?".join(map(re.escape, message.split("…"))) for message in messages}
    assert [message for message in messages if not re.search(pattern[message], known)] == []
