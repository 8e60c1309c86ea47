"""What can be wrong with data; every message names the column, the argument or the file."""

from hoptree.core.errors import HoptreeError


class DataError(HoptreeError, ValueError):
    """Data that cannot become a dataset, or a dataset that is not what its manifest says."""


class DataChangedError(DataError):
    """A dataset that was whole once and is not what its manifest says any more."""
