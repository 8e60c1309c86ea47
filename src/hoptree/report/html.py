"""Tables and facts as HTML for notebooks: plain elements that follow the page's light or dark style."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from hoptree.report.tables import NOTHING


def html_table(columns: Sequence[str], rows: Iterable[Sequence[object]], best: int | None = None) -> str:
    """Return a table; the row ``best`` is bold.

    >>> html_table(["trial", "loss"], [[0, 0.51234]])
    '<table><thead><tr><th>trial</th><th>loss</th></tr></thead><tbody><tr><td>0</td><td>0.5123</td></tr></tbody></table>'
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = []
    for place, row in enumerate(rows):
        style = ' style="font-weight:bold"' if place == best else ""
        cells = "".join(f"<td>{_cell(value)}</td>" for value in row)
        body.append(f"<tr{style}>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """Return names with their values, under a title."""
    left = ' style="text-align:left"'  # notebooks align to the right by default
    rows = "".join(
        f"<tr><th{left}>{escape(name)}</th><td{left}>{_cell(value)}</td></tr>" for name, value in facts.items()
    )
    return f"<div><b>{escape(title)}</b><table>{rows}</table></div>"


def html_bar(fraction: float) -> str:
    """Return a progress bar."""
    return f'<progress value="{min(1.0, max(0.0, fraction)):.4f}" max="1" style="width:20em"></progress>'


def html_text(text: str) -> str:
    """Return preformatted text."""
    return f'<pre style="white-space:pre-wrap">{escape(text)}</pre>'


def _cell(value: object) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, float):
        return f"{value:.4g}"
    return escape(str(value)).replace("\n", "<br>")
