"""Tables and quantities as text."""

import io
import math
import re
from collections.abc import Sequence

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from hoptree.report.timeline import ReportError

NOTHING = "\N{EN DASH}"
_LONGEST = 60  # maximum columns of a cell
_SHORTEST = 16  # columns to which a cell is shortened at most, if the table is too wide
_UNIT = r"(?:%|x|B|[kMGTPE]B|µs|ms|s|min|h|d)"
_QUANTITY = re.compile(
    rf"(?:[-+]?\$?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?(?: ?{_UNIT})?(?: |$))+|{NOTHING}|[-+]?(?:nan|inf)"
)


def duration(seconds: float) -> str:
    """Return a duration in at most two units; a dash if it is not finite.

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
    """Return a number with thousands separators.

    >>> count(12345), count(7)
    ('12,345', '7')
    """
    return f"{n:,}"


def counted(n: float, thing: str) -> str:
    """Return a number with a noun in singular or plural.

    >>> counted(12345, "trial"), counted(1, "trial"), counted(2.5, "epoch")
    ('12,345 trials', '1 trial', '2.5 epochs')
    """
    return f"{n:,.6g} {thing}{'' if n == 1 else 's'}"


def size(n: float) -> str:
    """Return a number of bytes, in powers of 1000 as is usual for disks and networks.

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


def money(amount: float) -> str:
    """Return an amount of dollars; small ones with two significant digits.

    >>> [money(amount) for amount in (0, 0.00123, 0.5, 12.24, 1234.5)]
    ['$0', '$0.0012', '$0.50', '$12.24', '$1,234.50']
    """
    if not math.isfinite(amount):
        return NOTHING
    if abs(amount) >= 0.0995 or not amount:
        return f"${amount:,.2f}" if amount else "$0"
    return f"${amount:#.2g}"


def percent(share: float) -> str:
    """Return a share as a percentage.

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
    """Draw a table: numbers and quantities are aligned to the right, the rest to the left.

    It is as wide as needed, or at most `width`; then long texts are wrapped.

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


def fitted_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], width: int | None, drop: Sequence[str]
) -> str:
    """Draw a table at most ``width`` wide, in which no word and no number is broken.

    If it is too wide, long texts are shortened; then columns are left out in the order of ``drop``, and a line
    below lists them.

    >>> print(fitted_table(["trial", "lr", "note"], [[0, 0.1, "quite long"], [1, 0.2, "not"]], 20, drop=["note"]))
     trial    lr
    ─────────────
         0   0.1
         1   0.2
    <BLANKLINE>
    1 column does not fit: note
    """
    cells = [[shortened(_cell(value), _LONGEST) for value in row] for row in rows]
    names, left_out = list(columns), list[str]()
    if width is not None:
        waiting = [name for name in drop if name in names]
        while (most := _narrowed(names, cells, width)) is None and waiting:
            left_out.append(waiting.pop(0))
            index = names.index(left_out[-1])
            del names[index]
            cells = [[*row[:index], *row[index + 1 :]] for row in cells]
        if most is not None:
            cells = [[shortened(cell, room) for cell, room in zip(row, most, strict=True)] for row in cells]
    table = text_table(names, cells, width=width)
    if not left_out:
        return table
    counted = "1 column does" if len(left_out) == 1 else f"{len(left_out)} columns do"
    return f"{table}\n\n{counted} not fit: {', '.join(left_out)}"


def _narrowed(names: Sequence[str], cells: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return widths with which all columns fit; None if texts would have to be shortened too much."""
    wide = [max(map(cell_len, [name, *(row[i] for row in cells)])) for i, name in enumerate(names)]
    over = sum(wide) + 3 * len(wide) - 1 - width
    for i in sorted(range(len(wide)), key=lambda i: -wide[i]):
        if over > 0 and not all(_QUANTITY.fullmatch(row[i]) for row in cells):
            room = max(wide[i] - over, _SHORTEST, cell_len(names[i]))
            if room < wide[i]:
                over -= wide[i] - room
                wide[i] = room
    return None if over > 0 else wide


def shortened(text: str, most: int) -> str:
    """Return a text on one line of at most ``most`` columns.

    >>> shortened("a rather long text", 10), shortened("short", 10)
    ('a rather …', 'short')
    """
    line = " ".join(text.split())
    return line if cell_len(line) <= most else f"{set_cell_size(line, most - 1)}…"


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
    """Replace characters that cannot be printed, so that names from users cannot break the layout.

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
