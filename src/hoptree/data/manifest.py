"""The manifest: the contents of a dataset folder, as one small JSON file that is written last.

The *fingerprint* is a digest of the content (schema, counts, seed, partitions, checksums): equal fingerprints mean
equal bytes in every file. The *source* is a digest of the input and the settings, so that building the same data
again is recognized before anything is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from io import FileIO
from math import prod
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from hoptree.data.errors import DataChangedError, DataError

NAME: Final = "manifest.json"
VERSION: Final = 1
STRING: Final = "string"
DTYPES: Final = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", STRING),
)


class Column(msgspec.Struct, frozen=True):
    """A column: numpy's name of the type (or ``string``) and the shape of one row, ``()`` for a scalar."""

    name: str
    dtype: str
    shape: tuple[int, ...] = ()

    @property
    def is_string(self) -> bool:
        """Whether rows are text of any length."""
        return self.dtype == STRING

    @property
    def size(self) -> int:
        """The number of values of a row."""
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}{list(self.shape)}" if self.shape else self.dtype


class DataFile(msgspec.Struct, frozen=True):
    """One file of a dataset, with its size and checksum."""

    name: str
    rows: int
    bytes: int
    checksum: str  # xxh3-128 of the whole file, in hexadecimal


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is known about a dataset without opening its data files."""

    format: Literal["hoptree-dataset"] = "hoptree-dataset"
    version: int = VERSION
    fingerprint: str = ""
    source: str
    seed: int
    partitions: int
    columns: tuple[Column, ...]
    train: tuple[DataFile, ...]
    valid: DataFile | None
    not_finite: dict[str, dict[str, int]] | None = None  # NaN and infinities; by "training" or "validation", column

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All data files: the partitions, then validation data."""
        return self.train if self.valid is None else (*self.train, self.valid)

    def holds(self, file: DataFile) -> str:
        """Return a description of a file's content."""
        return "the validation data" if file is self.valid else f"partition {self.train.index(file)}"

    def sealed(self) -> Manifest:
        """Return this manifest with the fingerprint of its content; derived fields are not part of it."""
        content = (self.version, self.seed, self.partitions, self.columns, self.train, self.valid)
        return msgspec.structs.replace(self, fingerprint=digest(content))


class _Header(msgspec.Struct):
    format: Literal["hoptree-dataset"]
    version: int


def same_columns(given: Sequence[Column], expected: Sequence[Column], what: str, other: str) -> None:
    """Raise an error if columns differ in name, type or shape; their order does not matter."""
    columns = {column.name: column for column in given}
    for column in expected:
        found = columns.pop(column.name, None)
        if found is None:
            raise DataError(f"{what}: no column {column.name}, but {other} has it; both need the same columns")
        if found != column:
            raise DataError(
                f"{what}: {column.name} is {found}, but {column} in {other}; convert one of them to the other's "
                f"type and shape"
            )
    if columns:
        extra = ", ".join(columns)
        raise DataError(f"{what}: also has {extra}, but {other} does not; both need the same columns")


def digest(content: Any) -> str:
    """Return a digest of any JSON content, the same in every process."""
    return blake2b(msgspec.json.encode(content), digest_size=16).hexdigest()


def checksum(path: Path) -> str:
    """Return the xxh3-128 of a file, read in bounded memory."""
    with path.open("rb", buffering=0) as file:
        return checksum_of(file)


def checksum_of(file: FileIO) -> str:
    """Return the xxh3-128 of an open file, from its beginning."""
    import xxhash

    state = xxhash.xxh3_128()
    block = memoryview(bytearray(1 << 20))
    file.seek(0)
    while count := file.readinto(block):
        state.update(block[:count])
    return str(state.hexdigest())


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, which makes the folder a dataset."""
    text = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    (folder / NAME).write_bytes(text + b"\n")


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of a dataset folder after cheap checks: version, fingerprint, every file's size."""
    path = folder / NAME
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        what = "a folder without manifest.json" if folder.is_dir() else "not a folder"
        raise DataError(
            f"{folder}: {what}; expected a dataset that Dataset.from_arrays, from_parquet or from_folder built"
        ) from None
    manifest = _parse(path, text)
    for file in manifest.files:
        _check_size(folder, file)
    return manifest


def _parse(path: Path, text: bytes) -> Manifest:
    try:
        version = msgspec.json.decode(text, type=_Header).version
        if version != VERSION:
            raise DataError(
                f"{path}: dataset format {version}; this Hoptree reads format {VERSION}: build the dataset again "
                f"with this version"
            )
        manifest = msgspec.json.decode(text, type=Manifest)
    except msgspec.DecodeError as error:
        raise DataError(f"{path}: not a manifest of a dataset ({error}); build the dataset again") from None
    if manifest.sealed().fingerprint != manifest.fingerprint or len(manifest.train) != manifest.partitions:
        raise DataChangedError(
            f"{path}: was changed: its fingerprint does not match its content; build the dataset again"
        )
    return manifest


def _check_size(folder: Path, file: DataFile) -> None:
    path = folder / file.name
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        raise DataChangedError(
            f"{path}: missing; the manifest expects {file.bytes} bytes: build the dataset again"
        ) from None
    if size != file.bytes:
        raise DataChangedError(
            f"{path}: was changed: {size} bytes, but the manifest says {file.bytes}: build the dataset again"
        )
