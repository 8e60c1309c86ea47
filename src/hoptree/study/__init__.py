"""Studies: what users define, run and inspect."""

from hoptree.study.study import Study

__all__ = ["Study"]
