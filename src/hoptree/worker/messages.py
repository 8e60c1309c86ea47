"""Messages between driver and worker, as msgpack over a private channel."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from hoptree.core.actions import Evaluate, Origin, RunUnit
from hoptree.core.events import Fault, Metrics
from hoptree.core.layout_choice import LayoutOptions
from hoptree.core.schedules import Scalar, Value
from hoptree.trainers.gang import GangMember


class _Message(msgspec.Struct, frozen=True, tag=True):
    pass


class StateSource(msgspec.Struct, frozen=True):
    """A state by its key; ``slot`` is its place in shared memory ("": look for it)."""

    key: str
    slot: str = ""


class Rehearse(_Message, frozen=True):
    """Try the first of some configs that can be built, trained and evaluated, on a few examples.

    ``later`` are the last values of each config's schedules, if there are any. With ``all_kinds`` each config is
    tried while time permits, and only results that are not reproducible count. ``changing`` are configs with
    schedules, whose changes are tried as well.
    """

    configs: list[dict[str, Scalar]]
    later: list[dict[str, Scalar]] = []
    all_kinds: bool = False
    changing: list[dict[str, Value]] = []


class TrainUnit(_Message, frozen=True):
    """Train a unit from ``source`` (None: the untrained model); ``target`` is the key of the state after it.

    With ``gang`` it is trained together with other workers; all but the leader answer with ``HelpEnded``.
    """

    action: RunUnit
    origin: Origin
    source: StateSource | None
    target: str
    shuffle_seed: int
    gang: GangMember | None = None


class EvaluateState(_Message, frozen=True):
    """Evaluate a stored state."""

    action: Evaluate
    origin: Origin
    source: StateSource


class MeasureBatches(_Message, frozen=True):
    """Train some batches of a config and measure time and memory; nothing is kept.

    ``examples`` is how many to train on; with 0 the worker chooses enough to measure. With ``gang`` several workers
    train them together, and each answers; ``layout`` is the name of how the model is held.
    """

    values: dict[str, Scalar]
    examples: int = 0
    gang: GangMember | None = None
    layout: str = "single"


class CancelRun(_Message, frozen=True):
    """Cancel a run, before it starts or while it runs."""

    run: int


class DumpStack(_Message, frozen=True):
    """Report the stack of the current run, which takes too long."""


class FreeSlot(_Message, frozen=True):
    """The state in a slot is no longer needed."""

    slot: str


class HoldPartitions(_Message, frozen=True):
    """Hold these partitions from now on, and no others."""

    partitions: tuple[int, ...]


class Quit(_Message, frozen=True):
    """Exit as soon as no run is left."""


class WorkerReady(_Message, frozen=True):
    """A worker is ready: it has loaded its trainer and holds its partitions.

    ``platform`` describes everything else there that affects bits; at ``rendezvous`` others find it if it leads a
    gang.
    """

    pid: int
    partitions: tuple[int, ...]
    platform: dict[str, str] = {}
    rendezvous: str = ""


class FirstUnitStarted(_Message, frozen=True):
    """A worker starts its first unit: its code is loaded, and the model is built."""

    run: int


class PartitionsHeld(_Message, frozen=True):
    """A worker now holds other partitions."""

    partitions: tuple[int, ...]


class WorkerLeaving(_Message, frozen=True):
    """A worker has to leave: its machine is no longer needed."""


class SetupRefused(_Message, frozen=True):
    """A worker cannot be set up: it cannot load the trainer or the data."""

    reason: str


class RehearsalResult(_Message, frozen=True):
    """The result of a rehearsal: the names of the metrics, or why every config failed.

    ``seconds`` estimates the duration of a unit, rather too long since a few examples are slow. ``unread`` are
    hyperparameters that nothing read. ``probes`` are hashes of the results, with the values of their configs, and
    ``parts`` are hashes of the parts of the first one, to name what differs. ``refused`` says why results would not
    be reproducible, and ``change_error`` why a schedule cannot be followed: with either, nothing may be trained.
    ``layouts`` are the layouts that models can have, None if no config has passed, and ``layout_error`` says why
    the one that the user has fixed is impossible.
    """

    metrics: list[str]
    reasons: list[str]
    seconds: float = 0.0
    unread: list[str] = []
    probes: list[tuple[dict[str, Scalar], str]] = []
    refused: str = ""
    parts: dict[str, str] = {}
    change_error: str = ""
    layouts: LayoutOptions | None = None
    layout_error: str = ""


class BatchesMeasured(_Message, frozen=True):
    """What some batches took: ``seconds`` for a whole unit, ``peak_bytes`` of this worker; or the ``error``.

    ``architecture`` are the values that this depends on, and ``kind`` is the kind of device. ``layouts`` are those
    that the model can have. With ``too_large`` the ``error`` is that it ran out of memory.
    """

    seconds: float = 0.0
    examples: int = 0
    peak_bytes: int = 0
    architecture: dict[str, Scalar] = {}
    kind: str = ""
    error: str = ""
    layouts: LayoutOptions | None = None
    too_large: bool = False


class InputsObserved(_Message, frozen=True):
    """New inputs that the user's code has read, with their content; sent before the result of what read them.

    ``then`` is that result, encoded, where a worker can only answer once.
    """

    observations: dict[str, str]
    then: bytes = b""


class UnitTrained(_Message, frozen=True):
    """A unit is trained and its state is in a slot."""

    run: int
    slot: str
    size: int
    seconds: float


class HelpEnded(_Message, frozen=True):
    """A worker no longer trains a unit together with its leader, which reports the result."""

    run: int


class StateMetrics(_Message, frozen=True):
    """The metrics of a state."""

    run: int
    metrics: Metrics
    seconds: float = 0.0


class RunFailed(_Message, frozen=True):
    """A unit or an evaluation failed; ``reason`` has the traceback of the user's code.

    With ``lost``, the state that it starts from is missing or damaged. After the fault "memory", ``limit`` is what
    the worker may use, and ``asked`` what it asked for in vain, in bytes; 0 if unknown.
    """

    run: int
    reason: str
    fault: Fault
    lost: bool = False
    limit: int = 0
    asked: int = 0


class StorageFull(_Message, frozen=True):
    """There is no room for a state, neither in memory nor on disk, so no worker can continue."""

    reason: str


class RunCancelled(_Message, frozen=True):
    """A run was cancelled."""

    run: int


class Stack(_Message, frozen=True):
    """The stack of the current run, from the user's code on."""

    stack: str


WorkerCommand: TypeAlias = (
    Rehearse | TrainUnit | EvaluateState | MeasureBatches | CancelRun | DumpStack | FreeSlot | HoldPartitions | Quit
)
WorkerMessage: TypeAlias = (
    WorkerReady
    | FirstUnitStarted
    | PartitionsHeld
    | WorkerLeaving
    | SetupRefused
    | RehearsalResult
    | BatchesMeasured
    | InputsObserved
    | UnitTrained
    | HelpEnded
    | StateMetrics
    | RunFailed
    | StorageFull
    | RunCancelled
    | Stack
)

_encoder = msgspec.msgpack.Encoder()
encode = _encoder.encode
decode_command = msgspec.msgpack.Decoder(WorkerCommand).decode
decode_message = msgspec.msgpack.Decoder(WorkerMessage).decode
