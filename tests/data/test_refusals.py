"""Bad input raises an error by name, with what was expected, before anything is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hoptree import HoptreeError
from hoptree.data import DataError, Dataset

X = np.zeros((100, 4), np.float32)
Y = np.zeros(100, np.int64)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": X, "y": Y[:90]}, r"y: 90 rows, but x has 100"),
        ({}, "no columns; give at least one array by name"),
        ({"x": X[:0]}, "no rows"),
        ({"x": np.array([1, None])}, r"x: row 0 holds 1 \(int\) .* expected strings only"),
        ({"x": ["a", 1]}, r"x: row 1 holds 1 \(int\)"),
        ({"x": np.array([["a", "b"]] * 9)}, r"x: strings of shape \[2\]"),
        ({"x": [[1, 2], [3]]}, "x: cannot be read as an array"),
        ({"x": 3}, "x: a single int; expected an array"),
        ({"x": X.astype(complex)}, "x: values of type complex128; expected booleans"),
        ({"x": Y.astype("M8[s]")}, r"x: values of type datetime64\[s\]"),
        ({"x": [b"a", b"b"]}, "x: values of type bytes8"),
        ({"x": X[:, :0]}, r"x: rows of shape \[0\] hold no values"),
        ({"x": ["\ud800"] * 9}, "x: a string is not valid Unicode"),
        ({"x": X, "partitions": 0}, "partitions: 0; expected a whole number, at least 1"),
        ({"x": X, "partitions": 2.0}, r"partitions: 2\.0; expected a whole number"),
        ({"x": X, "partitions": True}, "partitions: True; expected a whole number"),
        ({"x": X, "partitions": 81}, "partitions: 81 given, but only 80 rows are left"),
        ({"x": X, "seed": -1}, "seed: -1; expected a whole number, at least 0"),
        ({"x": X, "valid": 1.0}, r"valid: 1\.0; expected a fraction"),
        ({"x": X, "valid": -0.1}, r"valid: -0\.1; expected a fraction"),
        ({"x": X, "valid": float("nan")}, "valid: nan; expected a fraction"),
        ({"x": X, "valid": (X, Y)}, "valid: a tuple; expected a fraction of the rows, or a mapping"),
        ({"x": X, "valid": {}}, "valid: no columns"),
        ({"x": X, "valid": {"x": X[:0]}}, "valid: no rows"),
        ({"x": X, "y": Y, "valid": {"x": X}}, "valid: no column y"),
        ({"x": X, "valid": {"x": X, "y": Y}}, "valid: also has y"),
        (
            {"x": X, "valid": {"x": X.astype(float)}},
            r"valid: x is float64\[4\], but float32\[4\] in the training data",
        ),
        ({"x": X, "valid": {"x": X[:, :3]}}, r"valid: x is float32\[3\], but float32\[4\]"),
    ],
)
def test_refused_by_name(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Dataset.from_arrays(**{"partitions": 2, "to": tmp_path / "d", **arguments})
    assert list(tmp_path.iterdir()) == []


def test_errors_are_ours_and_value_errors() -> None:
    assert issubclass(DataError, HoptreeError)
    assert issubclass(DataError, ValueError)


def test_a_path_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/precious").touch()
    with pytest.raises(DataError, match="exists and is not a dataset; give a path that is free"):
        Dataset.from_arrays(partitions=2, to=tmp_path / "mine", x=X)
    Dataset.from_arrays(partitions=2, to=tmp_path / "d", x=X)
    with pytest.raises(DataError, match="holds another dataset; give another path"):
        Dataset.from_arrays(partitions=3, to=tmp_path / "d", x=X)
    assert Dataset.open(tmp_path / "d").partitions == 2
