"""Network traffic of different methods to train many models: table 2 of the Cerebro paper."""

from __future__ import annotations

import msgspec

from hoptree.report.tables import size


class Traffic(msgspec.Struct, frozen=True):
    """Bytes that were moved, and those that other methods would have moved for the same training.

    Task parallelism copies the data to every worker, or reads it over the network in every epoch; bulk synchronous
    parallelism exchanges models once per partition, a parameter server and all-reduce with every batch.
    """

    hopped: int
    model_hopper: int
    task_parallelism: int
    remote_reads: int
    bulk_synchronous: int
    parameter_server: int
    all_reduce: int

    @classmethod
    def count(
        cls, hopped: int, *, epochs: float, models: int, partitions: int, state: int, data: int, batches: float
    ) -> Traffic:
        """Return the bytes for ``epochs`` of all models together.

        ``state`` and ``batches`` (per partition) are averages if models differ.
        """
        synchronous = 2 * epochs * partitions * state
        return cls(
            hopped=hopped,
            model_hopper=round(epochs * partitions * state + models * state),
            task_parallelism=round(partitions * data + models * state),
            remote_reads=round(epochs * data + models * state),
            bulk_synchronous=round(synchronous),
            parameter_server=round(synchronous * batches),
            all_reduce=round(synchronous * batches / 2),
        )

    def __str__(self) -> str:
        others = (
            ("task parallelism", self.task_parallelism),
            ("remote reads", self.remote_reads),
            ("bulk synchronous", self.bulk_synchronous),
            ("parameter server", self.parameter_server),
            ("all-reduce", self.all_reduce),
        )
        listed = ", ".join(f"{name} {size(moved)}" for name, moved in others)
        return f"{size(self.hopped)} hopped; other methods would move: {listed}"
