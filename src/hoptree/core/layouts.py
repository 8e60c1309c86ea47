"""Layouts: how the workers of a run hold a model. A layout changes time and memory, and never the bits."""

from __future__ import annotations

from typing import Final, final

import msgspec

SINGLE: Final = "single"  # one worker has the model
DATA: Final = "data"  # each worker has a copy, and computes some shards of every batch
SHARDED: Final = "sharded"  # parameters and optimizer state are divided among the workers
PIPELINE: Final = "pipeline"  # consecutive layers are on consecutive workers
_OPTIONS: Final = ("offload", "checkpoint")


@final
class Layout(msgspec.Struct, frozen=True, order=True):
    """A layout with its options; journals, messages and profiles have it by ``name``.

    With ``offload``, parameters and optimizer state that are not in use are in a mapped file instead of memory.
    With ``checkpoint``, activations are computed again for the backward pass instead of being kept.

    >>> Layout("pipeline", offload=True).name
    'pipeline+offload'
    >>> Layout.parse("single+offload+checkpoint")
    Layout(kind='single', offload=True, checkpoint=True)
    """

    kind: str = SINGLE
    offload: bool = False
    checkpoint: bool = False

    @property
    def name(self) -> str:
        """The kind, followed by the options that are on."""
        return "+".join([self.kind, *(option for option in _OPTIONS if getattr(self, option))])

    @classmethod
    def parse(cls, name: str) -> Layout:
        """Return the layout with a name; raise ``ValueError`` for an option that does not exist."""
        kind, *options = name.split("+")
        if not kind or any(option not in _OPTIONS for option in options):
            raise ValueError(f"layout: {name!r}; expected a kind with options, such as 'pipeline+offload'")
        return cls(kind, **dict.fromkeys(options, True))

    @property
    def is_whole(self) -> bool:
        """Whether each worker has all parameters while it trains."""
        return self.kind in (SINGLE, DATA)
