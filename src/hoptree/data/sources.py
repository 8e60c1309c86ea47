"""Sources for files of any supported format; the suffix decides."""

from __future__ import annotations

import glob
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from hoptree.data.arrays import ArraySource
from hoptree.data.build import DataSource
from hoptree.data.errors import DataError
from hoptree.data.files import FileSource, Paths, folder_files
from hoptree.data.formats import ARROW, CSV, PARQUET

NPZ: Final = (".npz",)
ENDINGS: Final = PARQUET + ARROW + CSV + NPZ


def find_files(given: Paths, what: str = "files") -> list[Path]:
    """Return the files that match a path, a folder, a glob or a list of these; each may occur only once."""
    patterns = [given] if isinstance(given, str | os.PathLike) else given
    if not isinstance(patterns, Sequence) or not all(isinstance(one, str | os.PathLike) for one in patterns):
        raise DataError(f"{what}: a {type(given).__name__}; expected a path, a folder, a glob or a list of these")
    if not patterns:
        raise DataError(f"{what}: an empty list; expected at least one file")
    paths = [path for pattern in patterns for path in _matches(Path(pattern), what)]
    seen: set[Path] = set()
    for path in paths:
        if path.suffix not in ENDINGS:
            raise DataError(f"{path}: ends in {path.suffix or 'nothing'}; expected {', '.join(ENDINGS)}")
        if path.resolve() in seen:
            raise DataError(f"{path}: given twice; its rows would count twice: give every file once")
        seen.add(path.resolve())
    return paths


def source_of(paths: Sequence[Path]) -> DataSource:
    """Return the rows of files, in their order; an .npz file must be the only one, as it is read into memory."""
    for path in paths:
        if path.suffix in NPZ:
            if len(paths) > 1:
                raise DataError(
                    f"{path}: one of {len(paths)} files; an .npz file holds all columns by itself: give it alone, "
                    f"or write the arrays as Parquet files"
                )
            return ArraySource(_load(path), what=str(path))
    return FileSource(paths)


def check_disjoint(train: Sequence[Path], valid: Sequence[Path]) -> None:
    """Raise an error if a validation file is also trained on: its metrics would be too good."""
    common = {path.resolve() for path in train} & {path.resolve() for path in valid}
    if common:
        raise DataError(
            f"valid: {min(common)} is among the files to train on; expected other files: move it to another "
            f"folder, or give a fraction of the rows"
        )


def _matches(path: Path, what: str) -> list[Path]:
    if path.is_dir():
        return folder_files(path, what)
    if path.exists():
        return [path]
    matches = [Path(match) for match in sorted(glob.glob(str(path), recursive=True))]
    if not matches:
        raise DataError(f"{path}: no such file; expected a file, a folder, or a glob such as 'data/*.parquet'")
    return matches


def _load(path: Path) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: cannot be read ({error}); expected arrays of numbers or text, as numpy.savez writes them"
        ) from error
