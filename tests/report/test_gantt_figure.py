import sys
import xml.etree.ElementTree as ET

import pytest

from hoptree.core.errors import MissingExtraError
from hoptree.report import ReportError, Span, Timeline, gantt
from tests.report.timelines import hopping


@pytest.mark.parametrize("dark", [False, True])
def test_svg_is_written_and_parses(tmp_path, dark):
    gantt.save(hopping(), tmp_path / "gantt.svg", dark=dark)
    assert ET.parse(tmp_path / "gantt.svg").getroot().tag.endswith("svg")


def test_png_is_written(tmp_path):
    gantt.save(hopping(), str(tmp_path / "gantt.png"))
    assert (tmp_path / "gantt.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_equal_timelines_give_equal_files(tmp_path, suffix):
    for name in ("a", "b"):
        gantt.save(hopping(), tmp_path / f"{name}.{suffix}")
    data = (tmp_path / f"a.{suffix}").read_bytes()
    assert data == (tmp_path / f"b.{suffix}").read_bytes()
    assert b"dc:date" not in data


def test_an_unknown_suffix_is_refused_before_anything_is_drawn(tmp_path):
    with pytest.raises(
        ReportError, match=r"gantt\.jpg: suffix is '\.jpg'; expected \.svg or \.png or \.pdf, .* gantt\.svg"
    ):
        gantt.save(hopping(), tmp_path / "gantt.jpg")
    assert not list(tmp_path.iterdir())


def test_without_matplotlib_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hoptree\[plot\]'"):
        gantt.figure(hopping())


def test_no_figure_is_registered_with_pyplot():
    gantt.figure(hopping())
    assert "matplotlib.pyplot" not in sys.modules or not sys.modules["matplotlib.pyplot"].get_fignums()


@pytest.mark.parametrize("timeline", [Timeline((), 0.0, ()), Timeline((), 0.0, ("w",)), Timeline((), 5.0, ("w",))])
def test_empty_timelines_are_drawn(tmp_path, timeline):
    gantt.save(timeline, tmp_path / "empty.svg")
    ET.parse(tmp_path / "empty.svg")


def test_names_of_users_are_text_not_markup(tmp_path):
    timeline = Timeline.of([Span("$x^<&\x00\n", 0, 1, "unit", 0, "_$\\frac{", 0, 0)])
    gantt.save(timeline, tmp_path / "names.svg")
    ET.parse(tmp_path / "names.svg")


@pytest.mark.parametrize(("lanes", "named"), [(16, True), (17, False)])
def test_lineages_are_named_when_they_are_few(lanes, named):
    spans = [Span("w", i, i + 1, "unit", i, f"trial {i}", 0, 0) for i in range(lanes)]
    assert bool(gantt.figure(Timeline.of(spans)).legends) is named


def test_many_spans_stay_small_in_svg(tmp_path):
    spans = [Span(f"w{w}", i, i + 0.9, "unit", i % 256, "", 0, 0) for w in range(64) for i in range(400)]
    gantt.save(Timeline.of(spans), tmp_path / "many.svg")
    assert (tmp_path / "many.svg").stat().st_size < 2_000_000
