"""Bundles: a study as a file that another machine trains again."""

from __future__ import annotations

import json
import re
import shutil
import zipfile
from pathlib import Path

import msgspec
import pytest

from hoptree.bundle.bundle import Bundle, BundleError, read_bundle
from hoptree.bundle.check import differences
from hoptree.ui import export_commands
from hoptree.ui.programs import ProgramError, program
from tests.exports.finished_study import PROGRAM, done, hoptree, invoke
from tests.system.plain import study as plain_study


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Path:
    told = hoptree(folder, "export", "tiny", "--bundle", "tiny.zip")
    assert "6 trials, 4 with a fingerprint" in told
    return folder / "tiny.zip"


def elsewhere(bundle: Path, tmp_path: Path, change: tuple[str, str] = ("", "")) -> Path:
    """Take a bundle and the program to another folder, where there is no store."""
    shutil.copy(bundle, tmp_path)
    (tmp_path / "tiny.py").write_text(PROGRAM.read_text().replace(*change) if change[0] else PROGRAM.read_text())
    return tmp_path


def test_a_bundle_has_all_that_bits_depend_on(folder: Path, bundle: Path) -> None:
    about = read_bundle(bundle).about
    assert (about.study, about.spec.seed) == ("tiny", 0)
    assert {"python", "hoptree", "torch", "torch build", "numpy", "platform", "cpu flags", "threads"} <= set(
        about.spec.environments[0]
    )
    assert [trial.number for trial in about.trials if trial.fingerprint] == [0, 1, 4, 5]
    assert [sorted(trial.visits[:2]) for trial in about.trials if trial.visits] == [[0, 1]] * 4
    shown = json.loads(done(folder, "show", "tiny", "--trial", "5", "--json"))
    assert about.trials[5].fingerprint == shown["fingerprint"]
    hoptree(folder, "export", "tiny", "--bundle", "again.zip")
    assert (folder / "again.zip").read_bytes() == bundle.read_bytes()


@pytest.mark.slow
def test_a_bundle_is_verified_on_another_machine(bundle: Path, tmp_path: Path) -> None:
    told = hoptree(elsewhere(bundle, tmp_path), "verify", "tiny.zip", "--program", "tiny.py")
    assert told.startswith("Code, data, seed and environment are the same")
    assert told.count("same bits\n") == 4
    assert told.endswith("4 of 4 trials: same bits. Reproduced.\n")
    assert not (tmp_path / ".hoptree" / "journal.sqlite").exists()


@pytest.mark.slow
def test_other_code_is_named(bundle: Path, tmp_path: Path) -> None:
    place = elsewhere(bundle, tmp_path, ('optimizer="sgd"', 'optimizer="adam"'))
    told = hoptree(place, "verify", "tiny.zip", "0", "--program", "tiny.py", code=1)
    assert "trial 0: there" in told
    assert re.search(r"accuracy 0\.\d+ there, 0\.\d+ here", told)
    assert "0 of 1 trials: same bits. The most likely reason is the trainer" in told


@pytest.mark.slow
def test_other_data_and_seeds_are_named(bundle: Path, tmp_path: Path) -> None:
    place = elsewhere(bundle, tmp_path, ("default_rng(0)", "default_rng(1)"))
    told = json.loads(hoptree(place, "verify", "tiny.zip", "1", "--program", "tiny.py", "--json", code=1))
    assert [each["what"] for each in told["differences"]] == ["data"]
    assert told["trials"][0]["same"] is False
    assert "most likely reason is the data" in told["verdict"]


@pytest.mark.slow
def test_another_build_is_named_though_bits_agree(bundle: Path, tmp_path: Path) -> None:
    place = elsewhere(bundle, tmp_path)
    with zipfile.ZipFile(bundle) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    about = json.loads(parts["bundle.json"])
    about["spec"]["environments"][0]["torch build"] = "2.13.0+cu130, settings 0123456789ab"
    with zipfile.ZipFile(tmp_path / "tiny.zip", "w") as file:
        file.writestr("bundle.json", json.dumps(about))
        file.writestr("journal.jsonl", parts["journal.jsonl"])
    told = hoptree(place, "verify", "tiny.zip", "--program", "tiny.py")
    assert "torch build" in told
    assert "Reproduced, despite the differences." in told


def test_the_reasons_for_different_bits(bundle: Path, folder: Path) -> None:
    from hoptree.bundle.check import Difference, TrialComparison

    same = TrialComparison(0, "aa", "aa", {}, {})
    other = TrialComparison(1, "aa", "bb", {"loss": 1.0}, {"loss": 1.1})
    build = Difference("torch build", "a", "b", "another build of torch rounds differently")
    assert export_commands.verdict([], [same]) == "1 of 1 trials: same bits. Reproduced."
    assert "Nothing recorded differs" in export_commands.verdict([], [same, other])
    assert "the torch build: another build of torch rounds" in export_commands.verdict([build], [other])
    with program(str(folder / "tiny.py")) as study:
        found = read_bundle(bundle)
        assert differences(found, study) == []
        study.seed = 7
        seed = differences(found, study)
        assert [each.what for each in seed] == ["seed"]
    assert "No recorded difference explains this" in export_commands.verdict(seed, [other])


@pytest.mark.parametrize(
    ("there", "expected"),
    [
        ({}, ["trainer"]),  # the same environment: only the code can be another
        ({"code": "0"}, ["trainer"]),
        ({"threads": "4"}, ["threads"]),
        ({"device": "cuda"}, ["device"]),
        ({"torch": "2.12.0"}, ["torch"]),
        ({"libraries": "torch-2.13.0+cpu hoptree-0.1.0 timm-1.0"}, ["libraries"]),
        ({"code": "0", "threads": "4"}, ["trainer", "threads"]),
        ({"code": "0", "python": "3.14.1"}, ["python", "trainer"]),  # then code cannot be compared
        ({"code": "0", "python": "3.11.99"}, ["trainer", "python"]),
    ],
    ids=str,
)
def test_why_a_trainer_differs_is_said_by_name(
    bundle: Path, folder: Path, there: dict[str, str], expected: list[str]
) -> None:
    found = read_bundle(bundle)
    (environment,) = found.about.spec.environments
    spec = msgspec.structs.replace(found.about.spec, trainer="f" * 32, environments=[{**environment, **there}])
    doctored = Bundle(msgspec.structs.replace(found.about, spec=spec), found.record)
    with program(str(folder / "tiny.py")) as study:
        assert [each.what for each in differences(doctored, study)] == expected


def test_bundles_are_refused(folder: Path, bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "no.zip").write_bytes(b"PK nonsense")
    with pytest.raises(BundleError, match="not a bundle"):
        read_bundle(tmp_path / "no.zip")
    with zipfile.ZipFile(tmp_path / "old.zip", "w") as file:
        file.writestr("bundle.json", msgspec.json.encode({"format": 99}))
        file.writestr("journal.jsonl", b"")
    with pytest.raises(BundleError, match="format 99; .* reads 2"):
        read_bundle(tmp_path / "old.zip")
    assert isinstance(invoke(folder, "verify", str(bundle)).exception, ProgramError)
    failed = invoke(folder, "verify", str(bundle), "2", "--program", str(folder / "tiny.py"))
    assert "expected a complete trial with a stored state: 0, 1, 4, 5" in str(failed.exception)
    assert "expected .zip" in str(invoke(folder, "export", "tiny", "--bundle", "x.tar").exception)


def test_orders_that_were_chosen_are_in_a_bundle(tmp_path: Path) -> None:
    """In free order the visits follow from no key: only the journal has them."""
    from hoptree.bundle.bundle import write_bundle
    from hoptree.bundle.check import compare

    study = plain_study(tmp_path, "fine", "other", order="free", epochs=3)
    study.run(workers=2)
    with study.open_store() as store:
        about = write_bundle(store, "plain", tmp_path / "plain.zip")
    assert all(sorted(trial.visits) == [0, 0, 0, 1, 1, 1] for trial in about.trials)
    assert [each.same for each in compare(read_bundle(tmp_path / "plain.zip"), study)] == [True, True]


@pytest.mark.parametrize("options", [[], ["--as", "optuna"]])
@pytest.mark.slow
def test_the_command_writes_an_optuna_storage(folder: Path, tmp_path: Path, options: list[str]) -> None:
    import optuna

    file = tmp_path / "optuna.db"
    told = hoptree(folder, "export", "tiny", "--to", str(file) if options else f"sqlite:///{file}", *options)
    assert told == f"wrote sqlite:///{file}\n"
    trials = optuna.load_study(study_name="tiny", storage=f"sqlite:///{file}").trials
    known = json.loads(hoptree(folder, "trials", "tiny", "--json"))
    assert [trial.value for trial in trials] == [trial["metrics"].get("accuracy") for trial in known]
    for trial in trials:
        assert trial.duration is not None
        assert trial.duration.total_seconds() > 0  # those of the journal, not of the export
