"""The common style of all figures: light or dark, with the same colours and frames."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from hoptree.core.errors import MissingExtraError
from hoptree.report.tables import printable
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap, Normalize
    from matplotlib.figure import Figure

_FORMATS: dict[str, dict[str, Any]] = {
    # No date and no version: equal figures give equal files.
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


_TITLE, _SMALLER = 8.6, 13.6  # characters per inch of a title, and of the caption below it


class Theme(msgspec.Struct, frozen=True):
    """The colours of a page. ``few`` holds seven colours that the colour-blind can distinguish (Okabe and Ito)."""

    dark: bool
    page: str
    track: str
    ink: str
    muted: str
    grid: str
    down: str
    failed: str
    best: str
    few: tuple[str, ...]


_FEW = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
LIGHT = Theme(
    False,
    "#ffffff",
    "#f3f4f6",
    "#1f2430",
    "#667085",
    "#d0d5dd",
    "#c4c9d2",
    "#c4281c",
    "#d55e00",
    (*_FEW, "#000000"),
)
DARK = Theme(
    True, "#14171c", "#1e232b", "#e6e9ef", "#98a2b3", "#3a4250", "#4a5363", "#ff5a4d", "#ff7b3a", (*_FEW, "#f0e442")
)


def theme_of(dark: bool) -> Theme:
    """Return the colours of a light or a dark page."""
    return DARK if dark else LIGHT


def matplotlib() -> tuple[Any, Any]:
    """Return matplotlib's styles and its figures, without pyplot and its global state."""
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError(
            "matplotlib is not installed; figures need it: pip install 'hoptree[plot]' "
            "(the terminal chart works without it)"
        ) from error
    return style, Figure


@contextmanager
def drawing(dark: bool, width: float = 10.0, height: float = 5.6) -> Iterator[tuple[Figure, Theme]]:
    """Yield an empty page of the given size in inches, independent of the user's matplotlib style."""
    style, figure_class = matplotlib()
    theme = theme_of(dark)
    with style.context("default"):
        page: Figure = figure_class(figsize=(width, height), dpi=144, facecolor=theme.page)
        page.set_layout_engine("constrained", w_pad=0.12, h_pad=0.08)
        yield page, theme


def title(page: Figure, theme: Theme, text: str, caption: str = "") -> None:
    """Write a title at the top left, and a smaller caption below it, both wrapped to the width."""
    # Matplotlib's title has one font size: empty lines make room for the caption.
    width, height = page.get_figwidth(), page.get_figheight()
    heading, smaller = headline(text, width), wrap(printable(caption), int(width * _SMALLER))
    room = "\n" * -(-len(smaller) * 3 // 4)  # four lines of the caption are as high as three of the title
    page.suptitle(
        "\n".join(heading) + room, x=0.012, ha="left", fontsize=13, weight="bold", color=theme.ink, parse_math=False
    )
    page.text(
        0.012,
        1 - (0.40 + 0.22 * (len(heading) - 1)) / height,
        "\n".join(smaller),
        ha="left",
        va="top",
        fontsize=9.5,
        color=theme.muted,
        parse_math=False,
    )


def headline(text: str, width: float) -> list[str]:
    """Wrap a title to a width in inches."""
    return wrap(printable(text), int(width * _TITLE))


def frame(axes: Axes, theme: Theme, *, x: str = "", y: str = "", grid: Literal["x", "y"] = "y") -> None:
    """Draw light axes with their names."""
    axes.set_facecolor(theme.page)
    axes.set_xlabel(x, color=theme.muted, fontsize=9.5, parse_math=False)
    axes.set_ylabel(y, color=theme.muted, fontsize=9.5, parse_math=False)
    axes.tick_params(which="both", colors=theme.grid, labelcolor=theme.ink, length=3, labelsize=9)
    axes.grid(axis=grid, color=theme.grid, linewidth=0.6, alpha=0.7, zorder=0)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(theme.grid)


def scale_of(theme: Theme) -> Colormap:
    """Return a colour map from worst to best, whose order the colour-blind can see too."""
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    ends = (0.3, 1.0) if theme.dark else (0.88, 0.0)
    return LinearSegmentedColormap.from_list("quality", colormaps["cividis"](np.linspace(*ends, 128)))


def norm_of(losses: Sequence[float]) -> Normalize:
    """Return a norm from losses to 0 (worst) to 1 (best); the worst tenth, which may be far off, is all 0."""
    import numpy as np
    from matplotlib.colors import Normalize

    finite = np.array([loss for loss in losses if math.isfinite(loss)] or [0.0])
    worst = float(np.quantile(finite, 0.9)) if len(finite) >= 20 else float(finite.max())
    best = float(finite.min())
    return Normalize(-worst, -best if best < worst else -worst + 1e-12, clip=True)


def bar(page: Figure, theme: Theme, axes: Any, losses: Sequence[float], name: str, maximize: bool) -> Colorbar:
    """Draw a colour bar for losses, labelled with values of the metric."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    mappable = ScalarMappable(norm_of(losses), scale_of(theme))
    found = page.colorbar(mappable, ax=axes, pad=0.015, fraction=0.035, aspect=32)
    sign = 1.0 if maximize else -1.0
    found.ax.yaxis.set_major_locator(MaxNLocator(6))
    found.ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{sign * value:.4g}"))
    found.ax.tick_params(colors=theme.grid, labelcolor=theme.ink, labelsize=8.5, length=3)
    found.set_label(f"{name} (best on top)", color=theme.muted, fontsize=9)
    found.outline.set_visible(False)
    return found


def value_limits(values: Sequence[float], keep: Sequence[float] = ()) -> tuple[float, float]:
    """Return the limits of an axis: they include all of a few values, and exclude outliers of many.

    ``keep`` holds values that must be visible.

    >>> value_limits([0.0, 1.0])
    (-0.05, 1.05)
    """
    import numpy as np

    finite = np.array([value for value in values if math.isfinite(value)] or [0.0])
    low, high = float(finite.min()), float(finite.max())
    if len(finite) >= 10:  # Tukey's fences, wide
        quarter, three_quarters = np.quantile(finite, [0.25, 0.75])
        fence = 3 * (three_quarters - quarter) or math.inf
        within = finite[(finite >= quarter - fence) & (finite <= three_quarters + fence)]
        low, high = float(within.min()), float(within.max())
    kept = [value for value in keep if math.isfinite(value)]
    low, high = min([low, *kept]), max([high, *kept])
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 0.05
    return low - margin, high + margin


def off_the_page(values: Sequence[float], limits: tuple[float, float]) -> str:
    """Return how many values an axis does not show.

    >>> off_the_page([0.5, 7.0, math.nan], (0.0, 1.0))
    '2 values are outside of the plot.'
    """
    beyond = sum(not limits[0] <= value <= limits[1] for value in values)
    return f"{beyond:,} value{'s are' if beyond > 1 else ' is'} outside of the plot." if beyond else ""


def listed(names: Sequence[str], most: int = 4) -> str:
    """Return the first few names, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return f"{', '.join(names[:most])}{more}"


def apart(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return places close to the wanted ones, at least ``gap`` apart, in the same order, within bounds.

    >>> apart([1.0, 1.1, 5.0], gap=1.0, low=0.0, high=9.0)
    [1.0, 2.0, 5.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    places = [0.0] * len(wanted)
    above = low - gap
    for index in order:
        above = places[index] = max(wanted[index], above + gap)
    below = high + gap
    for index in reversed(order):
        below = places[index] = min(places[index], below - gap)
    return places


def check_suffix(path: str | Path) -> Path:
    """Raise an error for an unsupported file type, before anything is drawn."""
    path = Path(path)
    if path.suffix not in _FORMATS:
        raise ReportError(
            f"{path}: suffix is {path.suffix!r}; expected {' or '.join(_FORMATS)}, "
            f"for example {path.stem or 'plot'}.svg"
        )
    return path


def save(page: Figure, path: str | Path) -> Path:
    """Write a figure as `.svg`, `.png` or `.pdf`, by the suffix; the same figure gives the same bytes."""
    path = check_suffix(path)
    try:
        path.write_bytes(rendered(page, path.suffix))
    except FileNotFoundError:
        raise ReportError(f"{path}: the folder {path.parent} does not exist; create it first") from None
    return path


def rendered(page: Figure, suffix: str) -> bytes:
    """Return a figure as the bytes of a file."""
    style, _ = matplotlib()
    out = io.BytesIO()
    with style.context(["default", {"svg.hashsalt": "hoptree", "hatch.linewidth": 0.6}]):
        page.savefig(out, format=suffix[1:], metadata=_FORMATS[suffix], facecolor=page.get_facecolor())
    return out.getvalue()
