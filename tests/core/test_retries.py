"""A failed trial that is trained again: what it owes, what it costs, and what its attempts are."""

from __future__ import annotations

from hoptree.core.actions import EndTrial, Report
from hoptree.core.events import KnownResults, TrialRetried, UnitFailed
from tests.core.driver import Driver


def one_worker(partitions: int = 1, **settings: int | bool) -> Driver:
    driver = Driver(partitions, **settings)
    driver.join("w")
    return driver


def failed(epochs: int = 3, after: int = 1, **more: int) -> Driver:
    """Return a trial that failed after some epochs, each of one unit."""
    driver = one_worker(retries=0, ahead=False)
    driver.ask(0, 0.1, until=epochs, every=1, **more)
    for _ in range(after):
        driver.train("w")
        driver.evaluate("w")
    driver.fail("w", "no memory")
    assert driver.ending(0) == "failed"
    return driver


def test_a_retried_trial_has_its_reports_due_again_and_ends_again() -> None:
    driver = failed(epochs=3, after=1)
    before = len(driver.endings)
    driver.step(TrialRetried(0))
    assert (driver.ending(0), driver.engine.trials[0].reason, driver.engine.live) == (None, "", 1)
    driver.finish()
    assert driver.reports == [(0, 1), (0, 2), (0, 3)]  # the first is not told twice
    assert driver.endings[before:] == [(0, "complete", "")]
    assert driver.engine.live == 0


def test_a_retried_trial_may_fail_and_be_retried_again() -> None:
    driver = failed()
    for count in (1, 2):
        driver.step(TrialRetried(0))
        assert driver.fail("w", "still none") == [EndTrial(0, "failed", "still none")]
        assert driver.engine.trials[0].retries == count
    driver.step(TrialRetried(0))
    driver.finish()
    assert driver.ending(0) == "complete"


def test_a_retried_trial_gets_all_its_attempts_again() -> None:
    driver = one_worker(retries=1, ahead=False)
    driver.ask(0, 0.1)
    driver.ask(1, 0.1, until=2)  # shares the unit that fails
    driver.fail("w")
    driver.fail("w")
    assert (driver.ending(0), driver.ending(1)) == ("failed", "failed")
    driver.step(TrialRetried(0))
    driver.fail("w")
    assert driver.ending(0) is None
    driver.finish()
    assert (driver.ending(0), driver.ending(1)) == ("complete", "failed")
    driver.step(TrialRetried(1))
    driver.finish()
    assert driver.ending(1) == "complete"
    assert driver.units() == [0, 1]


def test_attempts_after_system_faults_are_reset() -> None:
    driver = one_worker(retries=0, patience=1, ahead=False)
    driver.ask(0, 0.1)
    driver.fail("w", "preempted", "system")  # one of two
    driver.fail("w", "no memory")
    driver.step(TrialRetried(0))
    driver.fail("w", "preempted", "system")
    assert driver.ending(0) is None


def test_requests_with_a_known_report_are_answered_at_once() -> None:
    driver = failed(epochs=2, after=0)
    driver.ask(1, 0.1, until=2, every=1)
    driver.finish()
    trained = len(driver.trained)
    actions = driver.step(TrialRetried(0))
    assert actions == [Report(0, 1, {"loss": 0.5}), Report(0, 2, {"loss": 0.5}), EndTrial(0, "complete")]
    assert len(driver.trained) == trained


def test_what_the_store_holds_is_not_trained() -> None:
    driver = failed(epochs=3, after=0)
    driver.stored.add((1, 2))
    driver.step(TrialRetried(0, KnownResults((2,), ((1, {"loss": 0.3}), (2, {"loss": 0.2})))))
    assert driver.reports == [(0, 1), (0, 2)]
    driver.finish()
    assert driver.units() == [2]
    assert driver.ending(0) == "complete"


def test_a_failed_evaluation_is_due_even_if_later_ones_are_not() -> None:
    driver = Driver(1, retries=0, ahead=False)
    driver.join("a")
    driver.join("b")
    driver.ask(0, 0.1, until=3, every=1)
    driver.train("a")  # goes on with the evaluation; the other one trains
    (run,) = driver.queues["b"]
    driver.train("b")
    driver.evaluate("b")
    assert driver.reports == [(0, 2)]
    evaluation = driver.queues["a"].pop(0)
    driver.evaluating.discard(evaluation.run)
    driver.step(UnitFailed(evaluation.run, "a", "no metric"))
    assert driver.ending(0) == "failed"
    driver.finish()
    driver.step(TrialRetried(0))
    driver.finish()
    assert sorted(driver.reports) == [(0, 1), (0, 2), (0, 3)]
    assert run.unit == 1


def test_only_failed_trials_are_retried() -> None:
    driver = one_worker()
    driver.ask(0, 0.1)
    driver.finish()
    assert driver.step(TrialRetried(0)) == []
    driver.ask(1, 0.2, until=2)
    driver.step(TrialRetried(1))
    assert driver.engine.live == 1
    driver.stop(1)
    driver.finish()
    assert driver.step(TrialRetried(1)) == []
    assert (driver.ending(0), driver.ending(1)) == ("complete", "stopped")


def test_epochs_that_were_granted_meanwhile_are_trained_when_it_is_retried() -> None:
    driver = failed(epochs=2, after=1)
    assert driver.extend(0, 4) == []
    assert driver.ending(0) == "failed"
    driver.step(TrialRetried(0))
    driver.finish()
    assert driver.reports == [(0, 1), (0, 2), (0, 3), (0, 4)]
    assert (driver.ending(0), driver.engine.trials[0].until) == ("complete", 4)
