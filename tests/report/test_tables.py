import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hoptree.report import ReportError, count, duration, size, text_table
from hoptree.report.tables import NOTHING, fitted_table
from tests.report.timelines import patient

CELLS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=40)


@patient
@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), max_size=6), st.integers(20, 120))
def test_a_table_is_never_wider_than_asked(rows, width):
    table = text_table(["trial", "loss", "a longer name"], rows, title="trials", width=width)
    assert max(cell_len(line) for line in table.split("\n")) <= width


def test_numbers_and_quantities_go_right_and_words_left():
    table = text_table(
        ["name", "n", "time", "key"], [["a", 12345, "3.2 s", "0a3f"], ["bcdef", None, "4 min 10 s", "1"]], title="T"
    )
    assert table.splitlines() == [
        "T",
        " name         n         time   key",
        "────────────────────────────────────",
        " a       12,345        3.2 s   0a3f",
        f" bcdef        {NOTHING}   4 min 10 s   1",
    ]


def test_a_row_of_another_length_is_refused():
    with pytest.raises(ReportError, match="1 cells; expected 2"):
        text_table(["a", "b"], [[1]])


def test_markup_in_cells_is_text():
    assert "[bold]x[/nonsense]" in text_table(["a"], [["[bold]x[/nonsense]"]])


@given(st.floats(0, 1e12))
def test_a_duration_is_within_its_rounding(seconds):
    units = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}
    parts = re.findall(r"([\d.,e+-]+) (\w+)", duration(seconds))
    assert 1 <= len(parts) <= 2
    heading = sum(float(number.replace(",", "")) * units[unit] for number, unit in parts)
    assert heading == pytest.approx(seconds, rel=0.06)


@given(st.integers(0, 10**21))
def test_a_size_is_within_its_rounding(n):
    number, unit = size(n).split()
    heading = float(number.replace(",", "")) * 1000 ** ["B", "kB", "MB", "GB", "TB", "PB", "EB"].index(unit)
    assert heading == pytest.approx(n, rel=0.06)


def test_small_things():
    assert duration(-250) == "-4 min 10 s"
    assert count(1_000_000) == "1,000,000"
    assert size(-1500) == "-1.5 kB"


NAMES = ["trial", "lr", "note", "loss"]
ROW = st.tuples(st.integers(0, 10**6), st.floats(1e-9, 1e9), st.text(max_size=90), st.floats(1e-9, 1e9))


@patient
@given(st.lists(ROW, min_size=1, max_size=6), st.integers(30, 120))
def test_a_fitted_table_breaks_no_number_and_says_what_it_leaves_out(rows, width):
    table = fitted_table(NAMES, rows, width, drop=["loss", "note", "lr"])
    lines = table.splitlines()
    assert max(map(cell_len, lines[: 2 + len(rows)])) <= width
    left_out = lines[-1].rpartition(": ")[2].split(", ") if "not fit: " in lines[-1] else []
    assert left_out == ["loss", "note", "lr"][: len(left_out)]
    for line, (trial, lr, _, loss) in zip(lines[2:], rows, strict=False):
        assert f" {trial:,}" in line
        assert "lr" in left_out or f"{lr:.4g}" in line
        assert "loss" in left_out or line.endswith(f"{loss:.4g}")


def test_long_texts_are_shortened_before_columns_go():
    table = fitted_table(["trial", "error"], [[0, "it went wrong " * 20]], 40, drop=["error"])
    assert table.splitlines()[-1] == "     0   it went wrong it went wrong i…"
    assert "it went wrong it went wrong it went wrong it went wrong it …" in fitted_table(
        ["e"], [["it went wrong " * 20]], None, []
    )
