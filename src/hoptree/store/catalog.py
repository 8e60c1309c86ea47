"""The catalog: the studies of a store with their specs and status."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final, get_args

import msgspec

from hoptree.store import exact_json
from hoptree.store.errors import StoreError, StoreVersionError, StudyExistsError, StudyMissingError

if TYPE_CHECKING:
    from sqlalchemy import Row

    from hoptree.store.database import Database

FORMAT = 1  # of a spec

Status: TypeAlias = Literal["created", "running", "stopped", "failed", "finished"]


@final
class StudyRecord(msgspec.Struct, frozen=True):
    """A study in the catalog; ``spec`` is what its driver registered, ``format`` the version of the spec."""

    name: str
    created: float
    format: int
    spec: dict[str, Any]
    status: Status


@final
class Catalog:
    """The studies of a store, by name."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def register(self, name: str, spec: dict[str, Any]) -> StudyRecord:
        """Add a new study; raise an error if its name is taken."""
        from sqlalchemy import insert
        from sqlalchemy.exc import IntegrityError

        from hoptree.store.tables import STUDIES

        record = StudyRecord(check_name(name), self._clock(), FORMAT, spec, "created")
        row = {**msgspec.structs.asdict(record), "spec": exact_json.dump(spec, "spec")}
        try:
            with self._database.writing() as connection:
                connection.execute(insert(STUDIES).values(row))
        except IntegrityError:
            raise StudyExistsError(
                f"{name}: this study exists in {self._database.where} already; resume it, or choose another name"
            ) from None
        return record

    def find(self, name: str) -> StudyRecord | None:
        """Return a study, or None if there is none with that name."""
        from sqlalchemy import select

        from hoptree.store.tables import STUDIES

        chosen = select(STUDIES).where(STUDIES.c.name == name)
        row = self._database.read(lambda connection: connection.execute(chosen).first())
        if row is None:
            return None
        record = _record(row)
        if record.format != FORMAT:
            raise StoreVersionError(
                f"{name} in {self._database.where}: stored in format {record.format}; this Hoptree reads format "
                f"{FORMAT}; upgrade Hoptree, or give the study another name"
            )
        return record

    def all(self) -> list[StudyRecord]:
        """Return all studies in the order of registration, including those of other formats."""
        from sqlalchemy import select

        from hoptree.store.tables import STUDIES

        chosen = select(STUDIES).order_by(STUDIES.c.created, STUDIES.c.name)
        rows = self._database.read(lambda connection: connection.execute(chosen).all())
        return [_record(row) for row in rows]

    def set_status(self, name: str, status: Status) -> None:
        """Set the status of a study."""
        if status not in get_args(Status):
            raise StoreError(f"status: {status!r}; expected one of {', '.join(get_args(Status))}")
        self._update(name, {"status": status})

    def set_spec(self, name: str, spec: dict[str, Any]) -> None:
        """Replace a study's spec, after the user has accepted changes."""
        self._update(name, {"spec": exact_json.dump(spec, "spec")})

    def withdraw(self, name: str) -> None:
        """Remove a registration that was never used; requests of users stay."""
        from sqlalchemy import delete

        from hoptree.store.tables import STUDIES

        statement = delete(STUDIES).where(STUDIES.c.name == name)
        self._database.write(lambda connection: connection.execute(statement).rowcount)

    def _update(self, name: str, values: dict[str, str]) -> None:
        from sqlalchemy import update

        from hoptree.store.tables import STUDIES

        change = update(STUDIES).where(STUDIES.c.name == name).values(values)
        if not self._database.write(lambda connection: connection.execute(change).rowcount):
            raise StudyMissingError(f"{name}: no such study in {self._database.where}; register it first")


def check_name(name: str) -> str:
    """Return a study's name; raise an error if it is invalid."""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name.strip()) == len(name) <= 200:
        raise StoreError(
            f"study: invalid name {name!r}; expected 1 to 200 printable characters without spaces at the ends"
        )
    return name


def _record(row: Row[Any]) -> StudyRecord:
    return StudyRecord(row.name, row.created, row.format, exact_json.load(row.spec), row.status)
