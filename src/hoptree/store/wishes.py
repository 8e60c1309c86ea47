"""Wishes: what users ask of a study while it runs or afterwards, for its driver to take up."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

import msgspec

from hoptree.core.lineage import ConfigItems

if TYPE_CHECKING:
    from hoptree.store.database import Database


class _Wish(msgspec.Struct, frozen=True, tag=True):
    pass


class Add(_Wish, frozen=True):
    """Train another config."""

    config: ConfigItems
    until: int
    every: int


class Clone(_Wish, frozen=True):
    """Train another config from where a trial was after an epoch; trials are numbered as the study shows them."""

    trial: int
    at: int
    config: ConfigItems
    until: int
    every: int


class Prolong(_Wish, frozen=True):
    """Train a trial for longer."""

    trial: int
    until: int


class GiveUp(_Wish, frozen=True):
    """Stop a trial."""

    trial: int


Wish: TypeAlias = Add | Clone | Prolong | GiveUp

_DECODER: msgspec.json.Decoder[Wish] = msgspec.json.Decoder(Wish)


@final
class Wishes:
    """The wishes of all studies, in the order in which they were made."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(self, study: str, wish: Wish) -> int:
        """Enter a wish and return its number; anybody may, whoever drives the study."""
        from sqlalchemy import func, insert, select

        from hoptree.store.tables import WISHES

        with self._database.writing() as connection:
            last = connection.execute(select(func.max(WISHES.c.number))).scalar() or 0
            row = {"number": last + 1, "study": study, "wish": msgspec.json.encode(wish).decode()}
            connection.execute(insert(WISHES).values(row))
        return last + 1

    def after(self, study: str, number: int) -> list[tuple[int, Wish]]:
        """Return the wishes of a study that came after a number."""
        from sqlalchemy import select

        from hoptree.store.tables import WISHES

        chosen = select(WISHES.c.number, WISHES.c.wish).where(WISHES.c.study == study, WISHES.c.number > number)
        with self._database.reading() as connection:
            rows = connection.execute(chosen.order_by(WISHES.c.number)).all()
        return [(row.number, _DECODER.decode(row.wish)) for row in rows]
