"""The policy of a real run: it changes when units are trained, but not the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hoptree as ht
from hoptree.core.plan import ActiveLineage
from hoptree.core.policies import POLICIES
from hoptree.store import Store
from tests.system.plain import dataset, study

PARTITIONS = 2
RATES = {"lr": ht.choice(0.1, 0.2, ht.multistep(0.1, at=[1], gamma=0.5)), "nap": 0.0}


class Deepest(ht.Policy):
    """Ranks the most trained lineage first."""

    def rank(self, cursor: ActiveLineage, partition: int) -> float:
        return -cursor.unit


class Answers(ht.Policy):
    """Ranks by the given function."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self._answer = answer

    def rank(self, cursor: ActiveLineage, partition: int) -> float:
        return self._answer()


def raise_() -> float:
    raise LookupError("no such thing")


def fingerprints(folder: Path, **options: Any) -> list[str]:
    folder.mkdir()
    results = study(folder, space=RATES, epochs=3, data=dataset(folder)).run(workers=2, quiet=True, **options)
    return [trial.fingerprint for trial in results.trials]


def test_every_policy_trains_the_same_bits(tmp_path: Path) -> None:
    policies = [*POLICIES, Deepest()]
    found = [fingerprints(tmp_path / str(number), policy=given) for number, given in enumerate(policies)]
    assert found == [found[0]] * len(policies)
    assert len(set(found[0])) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda: float("nan"),
            r"^policy: Answers\.rank\(lineage at node \d+ unit 0, \d\) returned nan; expected a num",
        ),
        (lambda: "first", r"returned 'first'; expected a number"),
        (lambda: None, r"returned None; expected a number"),
        (lambda: True, r"returned True; expected a number"),
        (raise_, r"raised LookupError: no such thing; expected a return value"),
    ],
)
def test_a_policy_with_invalid_ranks_is_refused_before_a_worker_starts(
    tmp_path: Path, answer: Callable[[], Any], message: str
) -> None:
    mine = study(tmp_path, space=RATES)
    with pytest.raises(ht.WorkloadError, match=message):
        mine.run(workers=1, quiet=True, policy=Answers(answer))
    with Store(tmp_path / "store") as store:
        assert store.catalog.find("plain") is None
    assert len(mine.run(workers=1, quiet=True).trials) == 3


def test_an_invalid_rank_during_a_run_ends_it_and_the_study_can_be_resumed(tmp_path: Path) -> None:
    class Turns(ht.Policy):
        def rank(self, cursor: ActiveLineage, partition: int) -> float:
            return float("nan") if cursor.unit >= PARTITIONS else 0.0  # where two trials part

    mine = study(tmp_path, space=RATES, epochs=3)
    with pytest.raises(
        ht.WorkloadError, match=r"^policy: Turns\.rank\(lineage at node \d+ unit \d, \d\) returned nan"
    ):
        mine.run(workers=1, quiet=True, policy=Turns())
    assert [trial.state for trial in mine.run(workers=1, quiet=True).trials] == ["complete"] * 3


@pytest.mark.parametrize("given", ["fastest", 3, None, Deepest, [[0.0, 1.0]] * 3, [1.0]])
def test_a_value_that_is_not_a_policy_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(ht.WorkloadError, match=r"^policy: "):
        study(tmp_path, space=RATES).run(workers=1, quiet=True, policy=given)


def test_a_solved_schedule_is_followed(tmp_path: Path) -> None:
    solution = ht.optimize.solve([[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]], method="longest-path")
    mine = study(tmp_path, space=RATES, epochs=2, order="free")
    results = mine.run(workers=2, quiet=True, policy=solution.starts)
    assert [trial.state for trial in results.trials] == ["complete"] * 3
    with pytest.raises(ht.WorkloadError, match=r"^policy: starts of 2 configs; expected 3 rows of 2"):
        study(tmp_path, name="other", space=RATES, order="free").run(
            workers=1, quiet=True, policy=solution.starts[:2]
        )
