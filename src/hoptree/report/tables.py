"""Tables and quantities as people read them."""

import io
import math
import re
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hoptree.report.timeline import ReportError

NOTHING = "\N{EN DASH}"
_UNIT = r"(?:%|x|B|[kMGTPE]B|µs|ms|s|min|h|d)"
_QUANTITY = re.compile(
    rf"(?:[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?{_UNIT})?(?: |$))+|{NOTHING}|[-+]?(?:nan|inf)"
)


def duration(seconds: float) -> str:
    """Say a length of time in at most two units; what is not finite is a dash.

    >>> [duration(s) for s in (0, 0.00042, 0.0315, 3.21, 59.97, 250, 7380, 100_000, float("nan"))]
    ['0 s', '420 µs', '31.5 ms', '3.2 s', '1 min', '4 min 10 s', '2 h 3 min', '1 d 4 h', '–']
    """
    if not math.isfinite(seconds):
        return NOTHING
    if seconds <= 0:
        return f"-{duration(-seconds)}" if seconds else "0 s"
    if seconds < 0.9995e-3:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if round(seconds) < 3600:
        return _two(round(seconds), 60, "min", "s")
    if round(seconds / 60) < 24 * 60:
        return _two(round(seconds / 60), 60, "h", "min")
    return _two(round(seconds / 3600), 24, "d", "h")


def _two(total: int, base: int, large: str, small: str) -> str:
    whole, rest = divmod(total, base)
    return f"{whole:,} {large} {rest} {small}" if rest else f"{whole:,} {large}"


def count(n: int) -> str:
    """Say a number of things.

    >>> count(12345), count(7)
    ('12,345', '7')
    """
    return f"{n:,}"


def size(n: float) -> str:
    """Say a number of bytes, in powers of 1000 as disks and networks are sold.

    >>> [size(n) for n in (0, 999, 1_000, 1_234_567_890, 999_960, 5e18)]
    ['0 B', '999 B', '1.0 kB', '1.2 GB', '1.0 MB', '5.0 EB']
    """
    if abs(n) < 999.5:
        return f"{n:.0f} B"
    value = n / 1000
    for unit in ("kB", "MB", "GB", "TB", "PB"):
        if abs(value) < 999.95:
            return f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:,.1f} EB"


def percent(share: float) -> str:
    """Say a share of a whole.

    >>> percent(0.934)
    '93 %'
    """
    return f"{100 * share:.0f} %"


def text_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[object]],
    title: str | None = None,
    width: int | None = None,
) -> str:
    """Draw a table for people: columns of numbers and quantities to the right, the rest to the left.

    It is as wide as it needs to be, or at most `width`; then long texts are folded.

    >>> print(text_table(["trial", "lr", "time"], [["a", 0.1, "3.2 s"], ["b", 0.00312345, "4 min 10 s"]]))
     trial         lr         time
    ───────────────────────────────
     a            0.1        3.2 s
     b       0.003123   4 min 10 s
    """
    table = Table(
        title=Text(title) if title else None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    table.show_edge = False
    for row in rows:
        if len(row) != len(columns):
            raise ReportError(
                f"row {row!r}: {len(row)} cells; expected {len(columns)}, one for each of {columns!r}"
            )
    cells = [[_cell(value) for value in row] for row in rows]
    for i, name in enumerate(columns):
        number = any(row[i] != NOTHING for row in cells) and all(_QUANTITY.fullmatch(row[i]) for row in cells)
        table.add_column(Text(name), justify="right" if number else "left", overflow="fold")
    for line in cells:
        table.add_row(*(Text(cell) for cell in line))
    return to_text(table, width=width or 100_000)


def _cell(value: object) -> str:
    match value:
        case None:
            return NOTHING
        case bool():
            return "yes" if value else "no"
        case int():
            return count(value)
        case float():
            return f"{value:.4g}"
        case _:
            return str(value)


def printable(name: str) -> str:
    """Replace what cannot be printed, since names come from users and may not break a picture.

    >>> printable("gpu" + chr(10) + "0")
    'gpu?0'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def to_text(renderable: Table | Text, width: int, colour: bool = False) -> str:
    """Return what rich would print: never wider than `width`, and the same on every terminal."""
    out = io.StringIO()
    console = Console(
        file=out,
        width=width,
        height=100,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
        no_color=not colour,
        legacy_windows=False,
        highlight=False,
        _environ={},
    )
    console.print(renderable, no_wrap=isinstance(renderable, Text), overflow="crop", crop=True)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
