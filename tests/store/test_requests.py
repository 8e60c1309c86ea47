"""User requests in both databases."""

from __future__ import annotations

import threading
from collections.abc import Callable

from hoptree.store import Store
from hoptree.store.requests import StopTrial


def test_simultaneous_requests_are_all_carried_out(open_store: Callable[..., Store]) -> None:
    users = {name: open_store() for name in "abcd"}
    begin = threading.Barrier(len(users), timeout=900)  # who fails leaves the others alone
    numbers: list[int] = []

    def make(name: str) -> None:
        for trial in range(10):
            begin.wait()
            numbers.append(users[name].requests.make("study", StopTrial(trial)))

    threads = [threading.Thread(target=make, args=name) for name in users]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(numbers) == list(range(1, 41))
    assert [number for number, _ in users["a"].requests.after("study", 0)] == sorted(numbers)
