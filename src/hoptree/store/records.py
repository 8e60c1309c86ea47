"""Entries of the journal as JSON, and back again exactly: types, tuples, whole and broken numbers, NaN."""

from __future__ import annotations

import msgspec

from hoptree.core.facts import Entry
from hoptree.store.errors import EventError

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """Return an entry as one line of JSON.

    >>> from hoptree.core.events import TrialExtended
    >>> encode(Entry(TrialExtended(3, until=10)))
    b'{"event":{"fact":"trial-extended","trial":3,"until":10}}'
    """
    try:
        data = _ENCODER.encode(entry)
    except (TypeError, ValueError, OverflowError) as error:  # a lone surrogate is a ValueError
        raise EventError(
            f"{type(entry.event).__name__}: {error}; expected numbers, booleans and text that UTF-8 can encode"
        ) from error
    # Whatever number JSON cannot hold becomes null; a None is written so too, hence the second look.
    if b"null" in data and not _comes_back(entry, data):
        raise EventError(
            f"{entry}: holds a number that is not finite; expected finite numbers: only metrics may be others"
        )
    return data


def decode(data: bytes) -> Entry:
    """Return the entry that ``encode`` was given."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise EventError(f"{data[:200]!r}: not an entry of a journal: {error}") from error


def _comes_back(entry: Entry, data: bytes) -> bool:
    try:
        return decode(data) == entry
    except EventError:
        return False
