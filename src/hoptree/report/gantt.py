"""Gantt charts of a timeline: `terminal` for a terminal, `figure` and `save` for a page."""

from hoptree.report.gantt_figure import figure, save
from hoptree.report.gantt_text import terminal

__all__ = ["figure", "save", "terminal"]
