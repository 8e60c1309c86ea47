"""The pilot: what a forecast learns from a short real run, and that nothing of it stays."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import pytest

import hoptree as ht
from hoptree.backends import local
from hoptree.core.events import TrialAsked
from hoptree.core.lineage import Values, config_items, history, segments
from hoptree.forecast import pilot
from hoptree.forecast.expected_results import ExpectedResults
from hoptree.forecast.measured import Measured
from hoptree.forecast.pilot import PilotLook, PilotPlan, look, run_pilot
from hoptree.record.record import Record
from tests.study.test_study import tiny_study
from tests.system.plain import Plain, study


def model(hp: dict[str, Any]) -> Any:
    from torch import nn

    if hp["shape"] == "flat":
        return nn.Linear(4, 3)
    return nn.Sequential(nn.Linear(4, hp["width"]), nn.Linear(hp["width"], 3))


def asked(*configs: dict[str, Any]) -> list[TrialAsked]:
    return [TrialAsked(number, config_items(config), 1) for number, config in enumerate(configs)]


def values_of(event: TrialAsked) -> Values:
    return segments(history(dict(event.config)), partitions=1, units=1)[0].values


def plan(mine: ht.Study, workers: int = 2, epochs: float = 1.0) -> PilotPlan:
    return PilotPlan([mine], workers, epochs, begun=0.0)


def test_nothing_of_it_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (scratch := tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    stores: list[Path] = []
    folders = local.slot_folders_of_study

    def note(store: Path, name: str) -> list[Path]:
        stores.append(store)
        return folders(store, name)

    monkeypatch.setattr(pilot, "slot_folders_of_study", note)
    mine = study(tmp_path, "fine", "raise")
    forecast = mine.explain(workers=2)
    assert forecast.basis == "a timing run of 1 config"
    assert forecast.pilot_seconds > 0
    assert not (tmp_path / "store").exists()
    assert list(scratch.glob("hoptree-pilot-*")) == []
    assert stores
    assert [path for store in stores for path in folders(store, mine.name) if path.exists()] == []


def test_all_configs_that_can_be_trained_are_measured(tmp_path: Path) -> None:
    mine = study(tmp_path)
    trials = asked(*({"lr": 0.1, "act": act, "nap": nap} for act in ("fine", "raise") for nap in (0.0, 0.01)))
    run = run_pilot(plan(mine), [[trial] for trial in trials], look(plan(mine), trials))
    steps = list(Record(run.settings).replay(run.entries))
    assert run.data.rows == run.data.all_rows == 24
    assert steps[-1].now > 0
    measured = Measured()
    assert measured.try_out(plan(mine), trials)
    slow, fast = (measured.unit(values_of(trials[number])) for number in (1, 0))
    assert slow > 0.01
    assert slow > fast


def test_times_of_a_part_of_the_data_are_scaled_to_all_of_it(tmp_path: Path) -> None:
    mine = study(tmp_path)
    trials = asked({"lr": 0.1, "nap": 0.002})
    run = run_pilot(plan(mine), [trials], look(plan(mine), trials))
    part = msgspec.structs.replace(run, data=run.data._replace(all_rows=320, all_valid_rows=160))
    whole, scaled = Measured(), Measured()
    whole.learn_pilot(run, mine.goal)
    scaled.learn_pilot(part, mine.goal)
    values = values_of(trials[0])
    assert scaled.formula.of(values) == pytest.approx(10 * whole.formula.of(values), rel=0.02)
    assert scaled.state_bytes(values) == whole.state_bytes(values)
    assert scaled.evaluation(values) > whole.evaluation(values)
    assert (scaled.start, scaled.opening, scaled.closing) == (whole.start, run.opening, run.closing)
    assert whole.start < 60.0
    assert run.opening > 0
    assert run.closing > 0


def test_nothing_is_trained_that_was_measured_before(tmp_path: Path) -> None:
    mine = study(tmp_path, "fine")
    mine.run(workers=1, quiet=True)
    again = study(tmp_path, "fine", name="again", epochs=9).explain(workers=1)
    assert (again.pilot_seconds, again.basis) == (0.0, "4 measured units")


def test_values_that_the_code_never_reads_do_not_matter(tmp_path: Path) -> None:
    space = {"lr": ht.choice(0.1, 0.2, 0.3), "shape": ht.choice("flat", "deep"), "width": ht.choice(4, 8)}
    forecast = tiny_study(tmp_path, model, space=space).explain(workers=2)
    assert forecast.basis == "a timing run of 4 configs"  # not 12: the rate does not matter


def test_names_are_those_of_all_kinds_of_configs(tmp_path: Path) -> None:
    mine = tiny_study(tmp_path, model)
    flat, deep = ({"lr": 0.1, "shape": shape, "width": 8} for shape in ("flat", "deep"))
    assert look(plan(mine), asked(flat)).names == {"shape"}
    assert look(plan(mine), asked(flat, deep)).names == {"shape", "width"}
    assert look(plan(mine), asked({"lr": 0.1})).names is None  # it cannot be built


def test_a_group_of_studies_is_tried_out_with_all_its_goals(tmp_path: Path) -> None:
    first = study(tmp_path, "fine")
    wrong = ht.Study(
        "wrong", trainer=Plain(), data=first.data, space={"lr": 0.1}, search=ht.Grid(epochs=1), maximize="los",
        store=tmp_path / "store",
    )  # fmt: skip
    with pytest.raises(ht.RefusedError, match="did you mean 'loss'"):
        run_pilot(PilotPlan([first, wrong], 1, 1.0, 0.0), [asked({"lr": 0.1})], PilotLook(0.0, None))


def test_simulated_searches_prefer_what_was_good_in_the_pilot() -> None:
    values = [values_of(event) for event in asked(*({"lr": 10.0**-power, "width": 8} for power in range(12)))]
    known = ExpectedResults([(each, abs(number - 3.0)) for number, each in enumerate(values)])

    def mean(number: int) -> float:
        return fmean(known.level(values[number], f"key {number}", salt) for salt in range(50))

    assert mean(3) < mean(7) < mean(11)
    assert known.level(values[3], "key", 1) != known.level(values[3], "key", 2)
    assert known.level(values[3], "key", 1) == known.level(values[3], "key", 1)
    unknown = ExpectedResults([(each, math.nan) for each in values[:5]])  # too few
    assert unknown.level(values[3], "key", 1) == unknown.level(values[9], "key", 1)
