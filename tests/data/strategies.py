"""Columns of every kind, with a row number to identify rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from hoptree.data import Dataset
from hoptree.data.manifest import DTYPES

Columns = dict[str, np.ndarray[Any, Any]]
NUMBERS = [name for name in DTYPES if name != "string"]


@st.composite
def columns(draw: st.DrawFn, *, least: int = 1, most: int = 40) -> Columns:
    rows = draw(st.integers(least, most))
    found: Columns = {"row": np.arange(rows)}
    for index in range(draw(st.integers(0, 3))):
        if draw(st.booleans()):
            shape = draw(hnp.array_shapes(max_dims=2, max_side=3)) if draw(st.booleans()) else ()
            dtype = np.dtype(draw(st.sampled_from(NUMBERS)))
            found[f"c{index}"] = draw(hnp.arrays(dtype, (rows, *shape)))
        else:
            text = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
            found[f"c{index}"] = np.array(draw(st.lists(text, min_size=rows, max_size=rows)), dtype=object)
    return found


def everything(dataset: Dataset) -> Columns:
    """All rows, validation first, then the partitions in order."""
    parts = [dataset.partition(index) for index in range(dataset.partitions)]
    valid = dataset.valid()
    parts = parts if valid is None else [valid, *parts]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def same(left: Columns, right: Columns) -> None:
    assert list(left) == list(right)
    for name, values in left.items():
        assert values.dtype == right[name].dtype
        assert values.shape == right[name].shape
        if values.dtype == object:
            assert values.tolist() == right[name].tolist()
        else:
            assert values.tobytes() == right[name].tobytes()  # bit by bit, NaN included
