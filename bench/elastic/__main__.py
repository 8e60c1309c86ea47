"""Run all parts, or those named: `python -m bench.elastic [tables] [figures] [planning]`."""

from __future__ import annotations

import sys

from bench.elastic import figures, planning, tables

PARTS = {"tables": tables.main, "figures": figures.main, "planning": planning.main}

for name in sys.argv[1:] or PARTS:
    PARTS[name]()
