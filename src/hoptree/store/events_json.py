"""Events as JSON, and back again exactly: types, tuples, whole and broken numbers, NaN."""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import Any, Literal, get_args

import msgspec

from hoptree.core.events import Event, StateEvaluated
from hoptree.store.errors import EventError


class _StateEvaluated(msgspec.Struct, frozen=True, tag="StateEvaluated", omit_defaults=True):
    """How metrics are written: JSON has no NaN and no infinity, but a model that diverged reports them."""

    run: int
    worker: str
    metrics: dict[str, float | Literal["nan", "inf", "-inf"]]
    seconds: float = 0.0


_KINDS: list[Any] = [_StateEvaluated if kind is StateEvaluated else kind for kind in get_args(Event)]
_ENCODER = msgspec.json.Encoder()
_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(reduce(or_, _KINDS))


def encode(event: Event) -> bytes:
    """Return an event as one line of JSON.

    >>> from hoptree.core.events import TrialExtended
    >>> encode(TrialExtended(3, until=10))
    b'{"type":"TrialExtended","trial":3,"until":10}'
    """
    wire: object = event
    if isinstance(event, StateEvaluated):
        metrics: Any = {name: _spelled(value) for name, value in event.metrics.items()}
        wire = _StateEvaluated(event.run, event.worker, metrics, event.seconds)
    try:
        data = _ENCODER.encode(wire)
    except (TypeError, ValueError, OverflowError) as error:  # a lone surrogate is a ValueError
        raise EventError(
            f"{type(event).__name__}: {error}; expected numbers, truth values and text that UTF-8 can encode"
        ) from error
    # Whatever number JSON cannot hold becomes null; a None is written so too, hence the second look.
    if b"null" in data and not _comes_back(event, data):
        raise EventError(
            f"{event}: holds a number that is not finite; expected finite numbers: only metrics may be others"
        )
    return data


def decode(data: bytes) -> Event:
    """Return the event that ``encode`` was given."""
    try:
        wire = _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise EventError(f"{data[:200]!r}: not an event: {error}") from error
    if isinstance(wire, _StateEvaluated):
        metrics = {name: float(value) for name, value in wire.metrics.items()}
        return StateEvaluated(wire.run, wire.worker, metrics, wire.seconds)
    event: Event = wire
    return event


def _comes_back(event: Event, data: bytes) -> bool:
    try:
        return decode(data) == event
    except EventError:
        return False


def _spelled(value: float) -> float | str:
    return value if math.isfinite(value) else str(float(value))
