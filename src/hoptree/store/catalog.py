"""The catalog: which studies a store holds, what each was made of, and how far it came."""

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
    """A study as the catalog knows it; ``spec`` is what its driver registered, ``format`` how it is stored."""

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
        """Enter a new study; its name must be free."""
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
                f"{name}: this study is in {self._database.where} already; resume it, or choose another name"
            ) from None
        return record

    def find(self, name: str) -> StudyRecord | None:
        """Return a study, or None if there is none of that name."""
        from sqlalchemy import select

        from hoptree.store.tables import STUDIES

        chosen = select(STUDIES).where(STUDIES.c.name == name)
        row = self._database.read(lambda connection: connection.execute(chosen).first())
        if row is None:
            return None
        record = _record(row)
        if record.format != FORMAT:
            raise StoreVersionError(
                f"{name} in {self._database.where}: described in format {record.format}; this Hoptree reads "
                f"{FORMAT}; upgrade Hoptree, or give the study another name"
            )
        return record

    def all(self) -> list[StudyRecord]:
        """Return all studies in the order in which they were registered, those of other formats too."""
        from sqlalchemy import select

        from hoptree.store.tables import STUDIES

        chosen = select(STUDIES).order_by(STUDIES.c.created, STUDIES.c.name)
        rows = self._database.read(lambda connection: connection.execute(chosen).all())
        return [_record(row) for row in rows]

    def set_status(self, name: str, status: Status) -> None:
        """Note how far a study came."""
        if status not in get_args(Status):
            raise StoreError(f"status: {status!r}; expected one of {', '.join(get_args(Status))}")
        self._update(name, {"status": status})

    def set_spec(self, name: str, spec: dict[str, Any]) -> None:
        """Replace a study's spec: for a user who says to go on with what changed."""
        self._update(name, {"spec": exact_json.dump(spec, "spec")})

    def withdraw(self, name: str) -> None:
        """Take a registration back that nothing has come of; what users have wished for stays."""
        from sqlalchemy import delete

        from hoptree.store.tables import STUDIES

        gone = delete(STUDIES).where(STUDIES.c.name == name)
        self._database.write(lambda connection: connection.execute(gone).rowcount)

    def _update(self, name: str, values: dict[str, str]) -> None:
        from sqlalchemy import update

        from hoptree.store.tables import STUDIES

        change = update(STUDIES).where(STUDIES.c.name == name).values(values)
        if not self._database.write(lambda connection: connection.execute(change).rowcount):
            raise StudyMissingError(f"{name}: no such study in {self._database.where}; register it first")


def check_name(name: str) -> str:
    """Return a study's name if databases, shells and people can all handle it."""
    if not isinstance(name, str) or not name.isprintable() or not 1 <= len(name.strip()) == len(name) <= 200:
        raise StoreError(
            f"study: the name {name!r}; expected 1 to 200 printable characters without spaces at the ends"
        )
    return name


def _record(row: Row[Any]) -> StudyRecord:
    return StudyRecord(row.name, row.created, row.format, exact_json.load(row.spec), row.status)
