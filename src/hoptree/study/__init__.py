"""Studies: what users create, run and look at."""

from hoptree.study.study import Study

__all__ = ["Study"]
