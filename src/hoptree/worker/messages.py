"""What driver and worker say to each other over a private channel, as msgpack."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hoptree.core.actions import Evaluate, Origin, RunUnit
from hoptree.core.events import Fault, Metrics
from hoptree.core.schedules import Scalar, Value


class _Message(msgspec.Struct, frozen=True, tag=True):
    pass


class StateSource(msgspec.Struct, frozen=True):
    """A state by its name; ``slot`` is where it lies in shared memory ("": look for it)."""

    key: str
    slot: str = ""


class Rehearse(_Message, frozen=True):
    """Try the first of some configs that can be built, trained and evaluated, on a few examples.

    ``later`` are the values that each comes to by its schedules, if any has some. With ``all_kinds`` each config is
    tried, as long as that takes little time, and only what would not be reproducible counts. ``changing`` are
    configs with schedules, of which the changes are tried as well.
    """

    configs: list[dict[str, Scalar]]
    later: list[dict[str, Scalar]] = []
    all_kinds: bool = False
    changing: list[dict[str, Value]] = []


class TrainUnit(_Message, frozen=True):
    """Run a unit from ``source`` (None: the untrained model); the state after it is named ``target``."""

    action: RunUnit
    origin: Origin
    source: StateSource | None
    target: str
    shuffle_seed: int


class EvaluateState(_Message, frozen=True):
    """Evaluate a stored state."""

    action: Evaluate
    origin: Origin
    source: StateSource


class CancelRun(_Message, frozen=True):
    """Give up a run: before it begins, or in the middle of it."""

    run: int


class DumpStack(_Message, frozen=True):
    """Say what the run under way is doing: it takes too long."""


class FreeSlot(_Message, frozen=True):
    """A slot's state is needed no more."""

    slot: str


class HoldPartitions(_Message, frozen=True):
    """Have these partitions from now on, and no others."""

    partitions: tuple[int, ...]


class Quit(_Message, frozen=True):
    """End as soon as nothing runs."""


class WorkerReady(_Message, frozen=True):
    """A worker is ready: its trainer is loaded, and it has the partitions that it was to have.

    ``platform`` is what else changes bits there.
    """

    pid: int
    partitions: tuple[int, ...]
    platform: dict[str, str] = {}


class FirstUnitStarted(_Message, frozen=True):
    """The first unit of a worker begins: what its code needs is loaded, and the model is there."""

    run: int


class PartitionsHeld(_Message, frozen=True):
    """A worker has other partitions now."""

    partitions: tuple[int, ...]


class WorkerLeaving(_Message, frozen=True):
    """A worker is to leave: its machine is not needed any more."""


class SetupRefused(_Message, frozen=True):
    """A worker cannot work with what it was given: the trainer or the data cannot be loaded here."""

    reason: str


class RehearsalResult(_Message, frozen=True):
    """What a rehearsal found: the names of the metrics, or why every config failed.

    ``seconds`` is what a unit would take at that pace: a few examples are slow, so it is rather too much.
    ``unread`` are names that nothing asked for. ``probes`` are the hashes of what came out, by the values, and
    ``parts`` what the first of them is made of, so that what differs can be named. ``refused`` says why results
    would not be reproducible, and ``refused_change`` why a schedule cannot be followed: then nothing may be
    trained, whatever else passed.
    """

    metrics: list[str]
    reasons: list[str]
    seconds: float = 0.0
    unread: list[str] = []
    probes: list[tuple[dict[str, Scalar], str]] = []
    refused: str = ""
    parts: dict[str, str] = {}
    refused_change: str = ""


class InputsObserved(_Message, frozen=True):
    """What the user's code has read that nobody knew of, and its content; before the news of what read it.

    ``then`` are these news, encoded, where a worker can only answer once.
    """

    observations: dict[str, str]
    then: bytes = b""


class UnitTrained(_Message, frozen=True):
    """A unit is done and its state lies in a slot."""

    run: int
    slot: str
    size: int
    seconds: float


class StateMetrics(_Message, frozen=True):
    """A state's metrics are known."""

    run: int
    metrics: Metrics
    seconds: float = 0.0


class RunFailed(_Message, frozen=True):
    """A unit or an evaluation raised; ``reason`` carries the user's own traceback.

    With ``lost`` the state that it starts from is nowhere to be found, or damaged.
    """

    run: int
    reason: str
    fault: Fault
    lost: bool = False


class StorageFull(_Message, frozen=True):
    """There is no room for a state, neither in memory nor on disk: nobody can go on."""

    reason: str


class RunCancelled(_Message, frozen=True):
    """A run was given up."""

    run: int


class Stack(_Message, frozen=True):
    """Where in the user's code a run is."""

    stack: str


WorkerCommand: TypeAlias = (
    Rehearse | TrainUnit | EvaluateState | CancelRun | DumpStack | FreeSlot | HoldPartitions | Quit
)
WorkerMessage: TypeAlias = (
    WorkerReady
    | FirstUnitStarted
    | PartitionsHeld
    | WorkerLeaving
    | SetupRefused
    | RehearsalResult
    | InputsObserved
    | UnitTrained
    | StateMetrics
    | RunFailed
    | StorageFull
    | RunCancelled
    | Stack
)

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_command = msgspec.msgpack.Decoder(WorkerCommand).decode
decode_news = msgspec.msgpack.Decoder(WorkerMessage).decode
