"""Encodes entries of the journal as JSON that round-trips exactly: types, tuples, integers and floats, NaN."""

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
    # Numbers that JSON cannot represent become null, but so does None: decode to tell them apart.
    if b"null" in data and not _round_trips(entry, data):
        raise EventError(
            f"{entry}: contains a number that is not finite; expected finite numbers: only metrics may be infinite "
            "or NaN"
        )
    return data


def decode(data: bytes) -> Entry:
    """Return the entry that ``encode`` was given."""
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise EventError(f"{data[:200]!r}: not an entry of a journal: {error}") from error


def _round_trips(entry: Entry, data: bytes) -> bool:
    try:
        return decode(data) == entry
    except EventError:
        return False
