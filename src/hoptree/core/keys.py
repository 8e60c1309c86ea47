"""Keys: the hashes that identify lineages, states and all else that is stored, and seeds derived from them.

A key is a hash of a canonical encoding, never of a ``repr``: every value is encoded as a type tag and its content,
lengths first, so values of different types or structure never have the same bytes, and the names of classes, the
order of dictionaries and the text of floats do not matter. Every hash begins with the version of the encoding and
the purpose of the hash, so no two purposes share a key.

Stored states are found by these keys, and all randomness of training is derived from them.
``tests/golden/keys.json`` pins them. To change what a key covers, add a new version and keep this one for stored
data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any, TypeAlias

from hoptree.core.errors import WorkloadError
from hoptree.core.lineage import Content, History, Phase, Values
from hoptree.core.schedules import Form, Schedule
from hoptree.core.settings import Order

VERSION = 1

Encodable: TypeAlias = (
    "bool | int | float | str | bytes | Sequence[Encodable] | Mapping[str, Encodable] "
    "| Form | Values | Phase | Schedule | None"
)


# --- keys ---------------------------------------------------------------------------------------------------


def study_root(trainer: str, data: str, seed: int) -> str:
    """Return the fingerprint of a study, where all its lineages begin: its trainer, its data and its seed."""
    return identity("study", trainer, data, seed)


def root_key(fingerprint: str, partitions: int, order: Order) -> str:
    """Return the key of a tree of lineages; trees of free and of strict order never share keys."""
    return identity("root", fingerprint, partitions, order)


def lineage_key(parent: str, start: int, values: Values) -> str:
    """Return the key of a segment: a hash over everything that led to it."""
    return identity("lineage", parent, start, values)


def state_key(lineage: str, unit: int, private_tree: str = "") -> str:
    """Return the key of the state after a unit; ``private_tree`` separates variants and unshared trials.

    >>> state_key("a", 1) == identity("state", "a", 1, "")
    True
    """
    content = _STATE + _text(lineage) + _whole(unit) + _text(private_tree)
    return blake2b(content, digest_size=16).hexdigest()


def history_key(history: History) -> str:
    """Return the hash of a trial's phases, which identifies the trial in every journal of its study."""
    return identity("history", *history)


def identity(purpose: str, *parts: Encodable) -> str:
    """Return 128 bits in hex for a purpose and the parts, in order.

    >>> identity("example", 1) == identity("example", 1.0)
    False
    """
    return blake2b(_separator(purpose) + _sequence(parts), digest_size=16).hexdigest()


# --- seeds ---------------------------------------------------------------------------------------------------


def unit_seed(lineage: str, unit: int) -> int:
    """Return the random seed of a unit, in 63 bits: a function of its lineage only.

    >>> unit_seed("a", 1) == seed("unit", "a", 1)
    True
    """
    return _seed(_UNIT + _text(lineage) + _whole(unit))


def build_seed(lineage: str) -> int:
    """Return the random seed with which the untrained model of a lineage is built."""
    return seed("build", lineage)


def shuffle_seed(study_seed: int, epoch: int, partition: int) -> int:
    """Return the seed that permutes the examples of a unit: the same in every trial of a study."""
    return _seed(_SHUFFLE + _whole(study_seed) + _whole(epoch) + _whole(partition))


def shard_seed(unit_seed: int, batch: int, shard: int) -> int:
    """Return the seed of a shard of a batch of a unit, whichever device computes it.

    >>> shard_seed(5, 1, 2) == seed("shard", 5, 1, 2)
    True
    """
    return _seed(_SHARD + _whole(unit_seed) + _whole(batch) + _whole(shard))


def rotation(lineage: str, partitions: int) -> int:
    """Return the partition with which the epochs of a lineage begin in strict order."""
    return seed("rotation", lineage) % partitions


def seed(purpose: str, *parts: Encodable) -> int:
    """Return a random seed of 63 bits, derived from a purpose and the parts."""
    return _seed(_separator(purpose) + _sequence(parts))


def fraction(purpose: str, *parts: Encodable) -> float:
    """Return a number of at least 0 and below 1, derived from a purpose and the parts."""
    return (seed(purpose, *parts) >> 10) * 2.0**-53


# --- the encoding -------------------------------------------------------------------------------------------


def encode(value: Encodable) -> bytes:
    r"""Return the canonical bytes of a value: equal for equal values of equal types, and for these only.

    A list counts as a tuple, 0.0 and -0.0 are one value as in schedules, and the order of a mapping is ignored.
    Raise an error for NaN, which equals nothing, and for text that UTF-8 cannot encode.

    >>> encode(1), encode(True), encode("1")
    (b'i\x00\x00\x00\x01\x01', b'T', b's\x00\x00\x00\x011')
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        raise TypeError(
            f"a key of {value!r}, a {type(value).__qualname__}; expected None, a boolean, a number, text, bytes, a "
            "sequence, a mapping, a form, values, a phase or a schedule: pass what it is made of"
        )
    return encoder(value)


def _seed(content: bytes) -> int:
    return int.from_bytes(blake2b(content, digest_size=16).digest()[:8], "big") >> 1


@cache
def _separator(purpose: str) -> bytes:
    """Return the prefix of all hashed content; a purpose holds no NUL, so no prefix begins with another."""
    return f"hoptree/{VERSION}/{purpose}\0".encode("ascii")


def _count(length: int) -> bytes:
    return length.to_bytes(4, "big")


def _bool(value: bool) -> bytes:
    return b"T" if value else b"F"


def _int(value: int) -> bytes:
    content = value.to_bytes((value + (value < 0)).bit_length() // 8 + 1, "big", signed=True)
    return b"i" + _count(len(content)) + content


def _float(value: float) -> bytes:
    if value != value:
        raise WorkloadError("a key of NaN, which equals nothing; expected a number")
    return b"f" + _BITS.pack(value + 0.0)  # -0.0 becomes 0.0


def _str(value: str) -> bytes:
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise WorkloadError(
            f"a key of {value!r}, which UTF-8 cannot encode; expected text without lone surrogates"
        ) from None
    return b"s" + _count(len(content)) + content


def _bytes(value: bytes) -> bytes:
    return b"b" + _count(len(value)) + value


def _sequence(value: Sequence[Encodable]) -> bytes:
    return b"(" + _count(len(value)) + b"".join(map(encode, value))


def _mapping(value: Mapping[str, Encodable]) -> bytes:
    for name in value:
        if type(name) is not str:
            raise TypeError(f"a key of a mapping with the name {name!r}; expected names that are text")
    pairs = sorted((_str(name), encode(item)) for name, item in value.items())
    return b"{" + _count(len(pairs)) + b"".join(name + item for name, item in pairs)


def _tagged(tag: bytes, *parts: bytes) -> bytes:
    """Encode an object under a tag that stays the same when its class is renamed."""
    return b"<" + _count(len(tag)) + tag + _count(len(parts)) + b"".join(parts)


def _form(form: Form) -> bytes:
    """Leave out ``type``: it follows from the numbers, which are encoded with their types."""
    return _tagged(b"form", _str(form.kind), _sequence(form.numbers))


def _content(content: Content) -> bytes:
    parts = [_form(part) if isinstance(part, Form) else _float(float(part)) for part in content]
    return _tagged(b"content", *parts)


def _values(values: Values) -> bytes:
    pairs = sorted((_str(name), _content(content)) for name, content in values.items)
    return _tagged(b"values", *(name + content for name, content in pairs))


def _phase(phase: Phase) -> bytes:
    return _tagged(b"phase", _int(phase.start), _mapping(dict(phase.config)))


def _schedule(schedule: Schedule) -> bytes:
    return _tagged(b"schedule", _str(schedule.kind), _sequence(schedule.arguments))


_BITS = Struct(">d")
_ENCODERS: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda _: b"N",
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    tuple: _sequence,
    list: _sequence,
    dict: _mapping,
    Form: _form,
    Values: _values,
    Phase: _phase,
    Schedule: _schedule,
}
# These are computed for every unit, mostly with parts that were seen before.
_STATE = _separator("state") + b"(" + _count(3)
_UNIT = _separator("unit") + b"(" + _count(2)
_SHUFFLE = _separator("shuffle") + b"(" + _count(3)
_SHARD = _separator("shard") + b"(" + _count(3)
_text = lru_cache(maxsize=4096)(_str)
_whole = lru_cache(maxsize=4096)(_int)
