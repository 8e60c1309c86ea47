"""The formulas of table 2 of the Cerebro paper."""

from hoptree.report.traffic import Traffic


def test_the_formulas_of_the_paper() -> None:
    k, m, p, state, data, rows, batch = 5, 16, 8, 1_000, 1_000_000, 80_000, 100
    traffic = Traffic.count(
        7, epochs=k * m, models=m, partitions=p, state=state, data=data, batches=rows / p / batch
    )
    assert traffic.hopped == 7
    assert traffic.model_hopper == k * m * p * state + m * state
    assert traffic.task_parallelism == p * data + m * state
    assert traffic.bulk_synchronous == 2 * k * m * p * state
    assert traffic.parameter_server == 2 * k * m * p * state * 100
    assert traffic.all_reduce == k * m * p * state * 100
