"""The bare bound: tensors in memory, a permutation by epoch, ``index_select`` by batch; nothing is saved."""

from __future__ import annotations

from typing import Any

from bench.speed.contestants import plain


def train(data: Any, config: Any) -> float:
    from bench.speed import workload

    return workload.train(data, config)


if __name__ == "__main__":
    plain.run("bench.speed.contestants.bare", train)
