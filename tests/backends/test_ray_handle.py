"""How an actor ended is derived from the errors of its calls."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from ray.exceptions import NodeDiedError, OutOfMemoryError

from hoptree.backends.ray_handle import RayWorkerHandle
from hoptree.backends.ray_states import StateReferences
from hoptree.backends.worker_handle import WorkerExit


class Ended:
    """In place of an actor that Ray has killed: every call fails with Ray's reason."""

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
    ("reason", "expected"),
    [
        (
            OutOfMemoryError(f"{LOW}\nobjects spillable: 0"),
            WorkerExit(f"was killed by Ray, since its node ran out of memory: {LOW}", "memory"),
        ),
        (NodeDiedError("the node is unreachable"), WorkerExit("was on a node that was lost", None)),
    ],
)
def test_errors_of_ray_that_report_an_exit(reason: Exception, expected: WorkerExit) -> None:
    """They are no actor errors, and were once taken for an unusable node, or a failure to retry."""
    worker = RayWorkerHandle("s-n-0", "n", Ended(reason), StateReferences(), lambda _: None, echo=True)
    worker.set_up(b"", None)
    assert worker.messages() == [None]
    assert worker.reap() == expected
