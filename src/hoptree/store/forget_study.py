"""Removes a study from a store, except what another study needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import msgspec

from hoptree.store import exact_json
from hoptree.store.errors import StudyMissingError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from hoptree.store.database import Database
    from hoptree.store.states import StateAccess

_CHUNK = 500  # names per statement: SQLite accepts 999 or more


@final
class RemovedStudy(msgspec.Struct, frozen=True):
    """What was removed with a study: the numbers of entries, reports and states, and the bytes of the states."""

    study: str
    entries: int
    reports: int
    states: int
    freed: int


def forget(database: Database, states: StateAccess, study: str) -> RemovedStudy:
    """Remove a study in one transaction, then the files of the states that no other study needs.

    Its states are those that it holds, and those that it trained and no study holds. The row of its lease stays,
    because tokens must only grow. The caller must hold the study's lease.
    """
    from sqlalchemy import delete, func, select

    from hoptree.store.tables import CLAIMS, ENTRIES, REPORTS, REQUESTS, SNAPSHOTS, STATES, STUDIES, WANTS

    with database.writing() as connection:
        members = _exclusive_members(connection, study)
        if not connection.execute(delete(STUDIES).where(STUDIES.c.name == study)).rowcount:
            raise StudyMissingError(f"{study}: no such study in {database.where}; nothing was removed")
        count = select(func.count()).select_from(ENTRIES).where(ENTRIES.c.study == study)
        entries = int(connection.execute(count).scalar_one())
        reports = _release_reports(connection, study)
        keys = _release_states(connection, study)
        _delete(connection, REPORTS, reports)
        _delete(connection, STATES, keys)
        for table in (ENTRIES, SNAPSHOTS, REQUESTS, CLAIMS, WANTS):
            connection.execute(delete(table).where(table.c.study == study))
        connection.execute(delete(REQUESTS).where(REQUESTS.c.study.in_(members)))
        _delete_unused_origins(connection)
    freed = [states.delete(key) for key in keys]
    return RemovedStudy(study, entries, len(reports), sum(map(bool, freed)), sum(freed))


def _exclusive_members(connection: Connection, study: str) -> list[str]:
    """Return the members of a group that belong to no other study or group: their requests are removed too."""
    from sqlalchemy import select

    from hoptree.store.tables import STUDIES

    specs = {
        name: exact_json.load(spec) for name, spec in connection.execute(select(STUDIES.c.name, STUDIES.c.spec))
    }
    members = specs.pop(study, {}).get("members", ())
    others = {*specs, *(member for spec in specs.values() for member in spec.get("members", ()))}
    return [member for member in members if member not in others]


def _delete_unused_origins(connection: Connection) -> None:
    """Delete the origins of variants that no study uses: none of their states exists anymore."""
    from sqlalchemy import delete, select

    from hoptree.store.tables import ORIGINS, STUDIES

    specs = connection.execute(select(STUDIES.c.spec)).scalars()
    used = {variant for spec in specs for variant in exact_json.load(spec).get("variants", ())}
    known = connection.execute(select(ORIGINS.c.variant)).scalars().all()
    for variant in known:
        if variant not in used:
            connection.execute(delete(ORIGINS).where(ORIGINS.c.variant == variant))


def _release_reports(connection: Connection, study: str) -> list[str]:
    """Release the reports of a study, and return those that no other study made or used."""
    from sqlalchemy import delete, exists, select

    from hoptree.store.tables import REPORT_HOLDS

    other = REPORT_HOLDS.alias()
    others = exists().where(other.c.key == REPORT_HOLDS.c.key, other.c.study != study)
    keys = (
        connection.execute(select(REPORT_HOLDS.c.key).where(REPORT_HOLDS.c.study == study, ~others)).scalars().all()
    )
    connection.execute(delete(REPORT_HOLDS).where(REPORT_HOLDS.c.study == study))
    return list(keys)


def _release_states(connection: Connection, study: str) -> list[str]:
    """Release the states of a study, and return those that no other study holds; the others get a new owner."""
    from sqlalchemy import delete, exists, func, select, union, update

    from hoptree.store.tables import HOLDS, STATES

    other = HOLDS.alias()
    held = exists().where(other.c.key == HOLDS.c.key, other.c.study != study)
    others = exists().where(other.c.key == STATES.c.key, other.c.study != study)
    keys = union(  # a state may be held before it is in the ledger
        select(HOLDS.c.key).where(HOLDS.c.study == study, ~held),
        select(STATES.c.key).where(STATES.c.study == study, ~others),
    )
    released = connection.execute(keys).scalars().all()
    owner: Any = select(func.min(other.c.study)).where(other.c.key == STATES.c.key, other.c.study != study)
    connection.execute(update(STATES).where(STATES.c.study == study, others).values(study=owner.scalar_subquery()))
    connection.execute(delete(HOLDS).where(HOLDS.c.study == study))
    return sorted(released)


def _delete(connection: Connection, table: Table, keys: list[str]) -> None:
    from sqlalchemy import delete

    for start in range(0, len(keys), _CHUNK):
        connection.execute(delete(table).where(table.c.key.in_(keys[start : start + _CHUNK])))
