"""What driver and worker say to each other over a private channel, as msgpack."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hoptree.core.actions import Evaluate, RunUnit
from hoptree.core.events import Fault, Metrics


class _Message(msgspec.Struct, frozen=True, tag=True):
    pass


class Train(_Message, frozen=True):
    """Run a unit; ``slot`` holds the state it starts from ("": the store has it, or it is the untrained model)."""

    action: RunUnit
    slot: str
    source_key: str
    initial: dict[str, bool | int | float | str | None]
    build_seed: int
    shuffle_seed: int


class Judge(_Message, frozen=True):
    """Evaluate a stored state."""

    action: Evaluate
    slot: str
    initial: dict[str, bool | int | float | str | None]
    build_seed: int


class Forget(_Message, frozen=True):
    """Give up a run that has not begun."""

    run: int


class FreeSlot(_Message, frozen=True):
    """A slot's state is needed no more."""

    slot: str


class Quit(_Message, frozen=True):
    """End as soon as nothing runs."""


class Hello(_Message, frozen=True):
    """A worker is ready: its data is mapped and its trainer loaded."""

    pid: int


class Trained(_Message, frozen=True):
    """A unit is done and its state lies in a slot."""

    run: int
    slot: str
    key: str
    size: int


class Judged(_Message, frozen=True):
    """A state's metrics are known."""

    run: int
    metrics: Metrics


class Failed(_Message, frozen=True):
    """A unit or an evaluation raised; ``reason`` carries the user's own traceback."""

    run: int
    reason: str
    fault: Fault


class Forgotten(_Message, frozen=True):
    """A run was given up before it began."""

    run: int


Command: TypeAlias = Train | Judge | Forget | FreeSlot | Quit
News: TypeAlias = Hello | Trained | Judged | Failed | Forgotten

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_command = msgspec.msgpack.Decoder(Command).decode
decode_news = msgspec.msgpack.Decoder(News).decode
