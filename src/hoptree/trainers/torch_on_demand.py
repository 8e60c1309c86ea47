"""Parameters on demand: an operation gets those that belong to another worker, and they are freed after it.

All workers of a gang do the same operations at the same time, each for a shard of its own. So the owner of a
parameter sends it when they all come to an operation that uses it, and again in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple, final

import torch
from torch.overrides import TorchFunctionMode

from hoptree.trainers.errors import GangError, TrainerError
from hoptree.trainers.torch_gang import Gang
from hoptree.trainers.torch_part import EVERY, ModelPart, dense

FAILED, FETCH, GRADIENT, BATCH = range(4)
_WHAT: Final = ("", "read", "have a gradient for", "end a batch after")
_NO_CONTENT = frozenset(
    {"__get__", "size", "dim", "numel", "stride", "is_floating_point", "is_complex", "ndimension", "requires_grad_"}
)


_flag: Any = torch.Tensor.requires_grad
_set_flag: Final = _flag.__set__


class _OtherRankError(TrainerError):
    """The code of another rank has failed; all ranks know it."""


@final
class Lockstep:
    """Lets the ranks of a gang do the same exchange at the same time; one that has failed says so instead."""

    def __init__(self, gang: Gang, names: Sequence[str]) -> None:
        self.gang = gang
        self._names = names

    def meet(self, what: int, number: int, present: bool = True) -> list[bool]:
        """Wait for all ranks; return which of them have something to exchange."""
        rows = [row.tolist() for row in self.gang.gather(torch.tensor([what, number, int(present)]))]
        if any(row[0] == FAILED for row in rows):
            raise _OtherRankError(next(text for text in self.gang.texts("") if text))
        for row in rows:
            if row[:2] != [what, number]:
                one, other = (f"{_WHAT[kind]} {self._names[place]!r}" for kind, place, _ in (rows[0], row))
                raise TrainerError(
                    f"layout: 'sharded' needs the same operations for every shard of a batch, but one shard would "
                    f"{one} while another would {other}; use layout='data', 'pipeline' or offload=True for a model "
                    "whose operations depend on the data"
                )
        return [bool(row[2]) for row in rows]

    @contextmanager
    def reported(self, explain: Callable[[Exception], Exception]) -> Iterator[None]:
        """Tell the other ranks if the code of this one fails."""
        try:
            yield
        except (GangError, _OtherRankError):
            raise
        except Exception as error:
            explained = explain(error)
            self.gang.gather(torch.tensor([FAILED, 0, 0]))
            self.gang.texts(str(explained) or type(error).__name__)
            raise explained from None


@contextmanager
def content_refused(part: ModelPart | None, name: str) -> Iterator[None]:
    """Raise an error if a user's function uses the content of a parameter that workers have divided.

    Outside a forward pass the others do not send it, and reading memory that is not there ends the process.
    """
    if part is None or part.owners is None or all(owner == EVERY for owner in part.owners):
        yield
        return
    with _Refused(part, name):
        yield


@final
class _Refused(TorchFunctionMode):
    def __init__(self, part: ModelPart, name: str) -> None:
        super().__init__()
        assert part.owners is not None
        self._part, self._name = part, name
        self._divided = {
            parameter.untyped_storage()._cdata: number
            for number, parameter in enumerate(part.parameters)
            if part.owners[number] != EVERY
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in _NO_CONTENT and func != _set_flag:
            for tensor in tensors_in((args, kwargs)):
                number = self._divided.get(tensor.untyped_storage()._cdata)
                if number is not None:
                    raise TrainerError(
                        f"{self._name}: it uses the content of {self._part.names[number]!r}, of which each worker "
                        f"has a part with layout={self._part.layout.kind!r}; change it in the model's forward, or "
                        "use layout='data' or 'single'"
                    )
        return func(*args, **kwargs)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the dense tensors in nested arguments."""
    if isinstance(value, torch.Tensor):
        if value.layout is torch.strided:
            yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from tensors_in(each)


class _Saved(NamedTuple):
    """A tensor that autograd keeps: a view of a parameter that is divided between workers."""

    number: int
    tensor: torch.Tensor | None  # on its owner
    size: Sequence[int]
    stride: Sequence[int]
    offset: int


@final
class ParametersOnDemand(TorchFunctionMode):
    """Within it, operations find the content of parameters that this worker does not own."""

    def __init__(self, part: ModelPart, lockstep: Lockstep) -> None:
        super().__init__()
        assert part.owners is not None
        self._part, self._lockstep, self._owners = part, lockstep, part.owners
        self._numbers = {
            parameter.untyped_storage()._cdata: number
            for number, parameter in enumerate(part.parameters)
            if part.owners[number] != EVERY
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with the content of its parameters."""
        kwargs = kwargs or {}
        found: dict[int, None] = {}
        if getattr(func, "__name__", "") not in _NO_CONTENT:
            for tensor in tensors_in((args, kwargs)):
                number = self._number(tensor)
                if number is not None:
                    found[number] = None
        if not found:
            return func(*args, **kwargs)
        with ExitStack() as stack:
            for number in found:
                stack.enter_context(self._content(number))
            return func(*args, **kwargs)

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Let autograd keep the names of divided parameters instead of their content."""
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack), self:
            yield

    def _number(self, tensor: torch.Tensor) -> int | None:
        return None if tensor.layout is not torch.strided else self._numbers.get(tensor.untyped_storage()._cdata)

    @contextmanager
    def _content(self, number: int) -> Iterator[None]:
        part = self._part
        if part.owns(number):
            self._lockstep.meet(FETCH, number)
            self._lockstep.gang.broadcast(dense(part.parameters[number].data), self._owners[number])
            yield
        else:
            with part.present(number) as window:  # before they meet: without memory, it is told there
                self._lockstep.meet(FETCH, number)
                self._lockstep.gang.broadcast(dense(window), self._owners[number])
                yield

    def _pack(self, tensor: torch.Tensor) -> Any:
        number = self._number(tensor)
        if number is None:
            return tensor
        own = tensor if self._part.owns(number) else None
        return _Saved(number, own, tensor.size(), tensor.stride(), int(tensor.storage_offset()))

    def _unpack(self, saved: Any) -> torch.Tensor:
        if isinstance(saved, torch.Tensor):
            return saved
        number = saved.number
        if saved.tensor is not None:
            self._lockstep.meet(FETCH, number)
            self._lockstep.gang.broadcast(dense(self._part.parameters[number].data), self._owners[number])
            tensor: torch.Tensor = saved.tensor
            return tensor
        whole = torch.empty(self._part.parameters[number].numel(), dtype=self._part.parameters[number].dtype)
        self._lockstep.meet(FETCH, number)
        self._lockstep.gang.broadcast(whole, self._owners[number])
        return whole.as_strided(saved.size, saved.stride, saved.offset)
