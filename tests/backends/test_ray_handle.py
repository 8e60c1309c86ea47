"""How the end of an actor is told from what its calls fail with."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, OutOfMemoryError

from hoptree.backends.ray_handle import RayWorkerHandle
from hoptree.backends.worker_handle import WorkerExit


class Ended:
    """In place of an actor that Ray has ended: every call fails with Ray's reason."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        return self

    def remote(self, *_: object) -> Any:
        return self

    def future(self) -> Future[Any]:
        answer: Future[Any] = Future()
        answer.set_exception(self._reason)
        return answer


LOW = "1 worker(s) were killed due to the node running low on memory."


@pytest.mark.parametrize(
    ("reason", "death"),
    [
        (
            OutOfMemoryError(f"{LOW}\nobjects spillable: 0"),
            WorkerExit(f"was ended by Ray, since its node ran out of memory: {LOW}", "user"),
        ),
        (NodeDiedError("the node is unreachable"), WorkerExit("was on a node that is gone", None)),
    ],
)
def test_errors_of_ray_that_tell_of_an_end(reason: Exception, death: WorkerExit) -> None:
    """They are not errors about the actor, and were taken for a node that cannot work, or a fault to try again."""
    member = RayWorkerHandle("s-n-0", "n", Ended(reason), {}, lambda _: None, echo=True)
    member.begin(b"", None)
    assert member.news() == [None]
    assert member.reap() == death
