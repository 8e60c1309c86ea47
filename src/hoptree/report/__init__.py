"""Pictures, traces and tables for people: functions of what happened on the workers over time."""

from hoptree.report import gantt
from hoptree.report.tables import count, duration, percent, size, text_table
from hoptree.report.timeline import KINDS, ReportError, Span, Timeline
from hoptree.report.trace import perfetto, save_trace

__all__ = [
    "KINDS",
    "ReportError",
    "Span",
    "Timeline",
    "count",
    "duration",
    "gantt",
    "percent",
    "perfetto",
    "save_trace",
    "size",
    "text_table",
]
