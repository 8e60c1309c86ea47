"""Requests: what users ask of a study while it runs or afterwards, for its driver to handle.

They are stored by study, and a study may have several journals: its own, and those of groups it was run with. So a
request about a trial identifies the trial by its number in the study, the ``key`` of its history, and the epochs
that it was ``granted`` when the request was made. A request of an older version has the number only.

The table and its column are named ``wishes`` and ``wish``: these names are on disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, final

import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import ConfigItems

if TYPE_CHECKING:
    from hoptree.store.database import Database


class _Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The base of requests. Tags are on disk: they stay when a class is renamed."""


class AddTrial(_Request, frozen=True, tag="Add"):
    """Train another config."""

    config: ConfigItems
    until: int
    every: int


class CloneTrial(_Request, frozen=True, tag="Clone"):
    """Train another config from a trial's state after an epoch."""

    trial: int
    at: int
    config: ConfigItems
    until: int
    every: int
    key: str = ""


class ExtendTrial(_Request, frozen=True, tag="Prolong"):
    """Train a trial for longer."""

    trial: int
    until: int
    key: str = ""
    granted: int = 0


class StopTrial(_Request, frozen=True, tag="GiveUp"):
    """Stop a trial."""

    trial: int
    key: str = ""
    granted: int = 0


class RetryTrial(_Request, frozen=True, tag="Retry"):
    """Train a failed trial again; ``retries`` counts the earlier retries."""

    trial: int
    key: str = ""
    retries: int = 0


UserRequest: TypeAlias = AddTrial | CloneTrial | ExtendTrial | StopTrial | RetryTrial


class UnreadableRequest(msgspec.Struct, frozen=True):
    """A request of another version that this one cannot decode, and the reason."""

    text: str
    reason: str


_DECODER: msgspec.json.Decoder[UserRequest] = msgspec.json.Decoder(UserRequest)


@final
class RequestTable:
    """The requests of all studies, in the order in which they were made."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def make(self, study: str, *requests: UserRequest) -> int:
        """Insert requests, all or none, and return the number of the last; this needs no lease."""
        from sqlalchemy import func, insert, select

        from hoptree.store.tables import REQUESTS

        try:
            texts = [msgspec.json.encode(request).decode() for request in requests]
        except (TypeError, ValueError, OverflowError) as error:  # a lone surrogate is a ValueError
            raise WorkloadError(
                f"config: {error}; expected numbers, booleans and text that UTF-8 can encode"
            ) from None
        with self._database.writing() as connection:
            self._database.lock(connection, REQUESTS.name)
            last = connection.execute(select(func.max(REQUESTS.c.number))).scalar() or 0
            rows = [
                {"number": number, "study": study, "wish": text}
                for number, text in enumerate(texts, start=last + 1)
            ]
            if rows:
                connection.execute(insert(REQUESTS), rows)
        return last + len(rows)

    def after(self, study: str, number: int) -> list[tuple[int, UserRequest | UnreadableRequest]]:
        """Return the requests of a study with a larger number than the given one."""
        from sqlalchemy import select

        from hoptree.store.tables import REQUESTS

        chosen = select(REQUESTS.c.number, REQUESTS.c.wish).where(
            REQUESTS.c.study == study, REQUESTS.c.number > number
        )
        rows = self._database.read(lambda connection: connection.execute(chosen.order_by(REQUESTS.c.number)).all())
        return [(row.number, _read(row.wish)) for row in rows]


def _read(text: str) -> UserRequest | UnreadableRequest:
    try:
        return _DECODER.decode(text)
    except (msgspec.MsgspecError, ValueError) as error:
        return UnreadableRequest(text, str(error))
