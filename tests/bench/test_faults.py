"""The campaign of faults: undisturbed runs find nothing, disturbed ones heal, and what differs is found."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bench.faults.campaign import KINDS, Told, report
from bench.faults.driver import Ended
from bench.faults.reference import Reference, compare
from bench.faults.run import Finding

ROOT = Path(__file__).parents[2]
TRIED = ("undisturbed", "driver-killed", "worker-killed", "state-deleted")


def trial(act: str = "fine", **changes: Any) -> dict[str, Any]:
    whole = {
        "config": {"act": act, "lr": "0.1"},
        "ending": "complete",
        "curve": {"1": {"loss": "0x1.8p-1"}, "2": {"loss": "0x1.0p-1"}},
        "fingerprint": "abc",
        "error": "",
        "error_length": 0,
    }
    return {**copy.deepcopy(whole), **changes}


@pytest.mark.slow
def test_runs_with_faults_end_with_the_results_of_the_run_without() -> None:
    kinds = [part for kind in TRIED for part in ("--kind", kind)]
    command = [sys.executable, "-m", "bench.faults", *kinds, "--runs", str(len(TRIED)), "--seed", "3"]
    search = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": search}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Orphans: 0; silent differences: 0." in done.stdout
    for kind in TRIED:
        assert f"{kind} --seed" in done.stdout
    assert done.stdout.count("as the reference, ") == len(TRIED)


def test_equal_trials_do_not_differ() -> None:
    assert compare([trial()], Reference([trial()], 6), {}) == ([], [], False)


def test_other_bits_and_other_metrics_are_silent_differences() -> None:
    reference = Reference([trial()], 6)
    assert compare([trial(fingerprint="abd")], reference, {}).silent
    assert compare([trial(curve={"1": {"loss": "0x1.8p-1"}})], reference, {}).silent
    assert compare([trial(config={"act": "fine", "lr": "0.2"})], reference, {}).silent
    assert compare([trial(), trial()], reference, {}).silent


def test_a_study_with_open_trials_continues() -> None:
    reference = Reference([trial(), trial()], 6)
    assert compare([trial(), trial(ending="running")], reference, {}).open
    assert compare([trial()], reference, {}).open
    assert not compare([trial(), trial()], reference, {}).open


def test_a_trial_may_fail_only_through_its_own_fault_and_with_a_reason() -> None:
    reference, free = Reference([trial("raises")], 6), {"raises": {"failed"}}
    failed = trial("raises", ending="failed", error="ValueError: no", error_length=14)
    assert compare([failed], reference, free) == ([], [], False)
    assert compare([failed], reference, {}).failed
    assert compare([{**failed, "error": ""}], reference, free).failed
    assert compare([{**failed, "error_length": 60_000_000}], reference, free).failed
    assert compare([trial("raises")], reference, free).failed  # it should have failed


def test_a_trial_with_fault_prone_code_that_completes_has_the_reference_bits() -> None:
    reference, free = Reference([trial("forks")], 6), {"forks": {"failed", "complete"}}
    assert compare([trial("forks")], reference, free) == ([], [], False)
    assert compare([trial("forks", fingerprint="abd")], reference, free).silent


def test_a_refusal_is_clear_if_it_has_a_class_of_hoptree_and_no_traceback() -> None:
    assert Ended(1, "study: 3 trials\nStudyHeldError: study: held by process 3; wait\n").refusal.startswith("Study")
    assert not Ended(1, "Traceback (most recent call last):\n  …\nStudyHeldError: study: held\n").refusal
    assert not Ended(1, "ProtocolError: this cannot have happened\n").refusal
    assert not Ended(1, "").refusal


def test_the_report_counts_and_says_how_to_repeat() -> None:
    fine = Told("driver-killed", 3, 1.0, 2, 1, False, [], [], "")
    refused = fine._replace(kind="journal-cut", seed=4, refused=True)
    wrong = fine._replace(seed=5, findings=[Finding("difference", "trial 0"), Finding("orphan", "sleep")])
    text = report([fine, refused, wrong])
    assert "3 disturbed runs" in text
    assert "Orphans: 1; silent differences: 1." in text
    assert "| kills | driver-killed | 2 | 1 | 0 |" in text
    assert "| damage | journal-cut | 1 | 0 | 1 |" in text
    assert "`python -m bench.faults --kind driver-killed --seed 5 --runs 1`: difference: trial 0" in text


def test_every_kind_has_a_name_of_its_own() -> None:
    assert len(KINDS) > 60
