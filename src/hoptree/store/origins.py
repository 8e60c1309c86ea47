"""Origins: the conditions under which a variant's states were trained, compared before they are reused."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, final

import msgspec

from hoptree.store.errors import StoreError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Row

    from hoptree.store.database import Database

Platform: TypeAlias = dict[str, str]


@final
class VariantOrigin(msgspec.Struct, frozen=True):
    """One variant of a root: what its states depend on besides code, data, seed and values.

    ``observations`` are digests by subject, ``probes`` hashes by the values of a config as JSON. A variant with a
    ``study`` belongs to that study; others do not reuse its states.
    """

    variant: str
    root: str
    platform: Platform
    number: int = 0
    study: str = ""
    created: float = 0.0
    observations: dict[str, str] = {}
    probes: dict[str, str] = {}


class OriginDamagedError(StoreError):
    """The record of an origin differs from what was written."""


class OriginConflictError(StoreError):
    """An observation contradicts an earlier one of the same variant: the content of ``subject`` has changed."""

    def __init__(self, variant: str, subject: str) -> None:
        super().__init__(f"variant {variant}: the content of {subject} has changed")
        self.subject = subject


@final
class Origins:
    """The origins of a store."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def find(self, root: str, platform: Platform | None = None) -> list[VariantOrigin]:
        """Return the shared origins of a root (and a platform), oldest first."""
        found = self._database.read(lambda connection: self._of(connection, root))
        return [origin for origin in found if platform is None or origin.platform == platform]

    def get(self, variant: str) -> VariantOrigin | None:
        """Return the origin of a variant."""
        return self._database.read(lambda connection: self._get(connection, variant))

    def add(self, origin: VariantOrigin) -> bool:
        """Add a new origin; return False if another driver has meanwhile added one with its number.

        Raise an error if a stored origin has its name but is not found by its root: that record is damaged.
        """
        from sqlalchemy import insert

        from hoptree.store.tables import ORIGINS

        new = msgspec.structs.replace(origin, created=self._clock())

        def work(connection: Connection) -> bool:
            self._database.lock(connection, f"origins {origin.root}")
            same = self._get(connection, origin.variant)
            if same is not None:
                _check_same(same, origin)
                return False
            known = self._of(connection, origin.root) if not origin.study else []
            if any((one.platform, one.number) == (origin.platform, origin.number) for one in known):
                return False
            connection.execute(insert(ORIGINS).values(_values(new)))
            return True

        return self._database.write(work, remember=False)

    def extend(
        self, origin: VariantOrigin, observations: Mapping[str, str], probes: Mapping[str, str]
    ) -> VariantOrigin:
        """Add observations and probes, and return all of them; raise an error if they contradict earlier ones.

        An origin that was removed because no study used it is added again.
        """
        from sqlalchemy import insert, update

        from hoptree.store.tables import ORIGINS

        variant = origin.variant

        def work(connection: Connection) -> VariantOrigin:
            self._database.lock(connection, f"origin {variant}")
            known = self._get(connection, variant)
            if known is None:
                known = origin
                connection.execute(insert(ORIGINS).values(_values(origin)))
            new = msgspec.structs.replace(
                known,
                observations=_joined(variant, known.observations, observations),
                probes=_joined(variant, known.probes, probes),
            )
            if new != known:
                connection.execute(update(ORIGINS).where(ORIGINS.c.variant == variant).values(_values(new)))
            return new

        return self._database.write(work)

    def _of(self, connection: Connection, root: str) -> list[VariantOrigin]:
        from sqlalchemy import select

        from hoptree.store.tables import ORIGINS

        chosen = select(ORIGINS).where(ORIGINS.c.root == root, ORIGINS.c.study == "")
        rows = connection.execute(chosen.order_by(ORIGINS.c.created, ORIGINS.c.number, ORIGINS.c.variant)).all()
        return [_origin(row) for row in rows]

    def _get(self, connection: Connection, variant: str) -> VariantOrigin | None:
        from sqlalchemy import select

        from hoptree.store.tables import ORIGINS

        row = connection.execute(select(ORIGINS).where(ORIGINS.c.variant == variant)).first()
        return None if row is None else _origin(row)


def _check_same(stored: VariantOrigin, new: VariantOrigin) -> None:
    """Raise an error if a stored origin differs from a new one in what its name was made of."""
    for field in ("root", "platform", "number", "study"):
        found, expected = getattr(stored, field), getattr(new, field)
        if found != expected:
            raise OriginDamagedError(
                f"hoptree_origins: the {field} of variant {stored.variant} is {found!r}; expected {expected!r}, "
                "from which its name was made: the record is damaged; restore the store from a backup, or forget "
                "the studies that use it and run them again"
            )


def _joined(variant: str, known: Mapping[str, str], new: Mapping[str, str]) -> dict[str, str]:
    for subject, digest in new.items():
        if known.get(subject, digest) != digest:
            raise OriginConflictError(variant, subject)
    return {**known, **new}


def _values(origin: VariantOrigin) -> dict[str, Any]:
    values = msgspec.structs.asdict(origin)
    for name in ("platform", "observations", "probes"):
        values[name] = msgspec.json.encode(values[name], order="sorted").decode()
    return values


def _origin(row: Row[Any]) -> VariantOrigin:
    texts = {
        name: msgspec.json.decode(getattr(row, name), type=dict[str, str])
        for name in ("platform", "observations", "probes")
    }
    return VariantOrigin(row.variant, row.root, number=row.number, study=row.study, created=row.created, **texts)
