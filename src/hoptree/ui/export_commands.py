"""``hoptree export``: write a study for other programs and machines; and verify a bundle."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from hoptree.core.errors import WorkloadError
from hoptree.ui.common import in_a_store, interruptible, print_json, stdout_kept_for_json, study_argument
from hoptree.ui.exit_codes import FAILED

if TYPE_CHECKING:
    from hoptree.bundle.check import Difference, TrialComparison
    from hoptree.store import Store

_WEIGHTS = (".safetensors", ".pt")
_FOLDERS = ("tensorboard", "mlflow")  # kinds that write a folder
_TAKES = {"reports": ("csv", "parquet"), "dark": ("html",), "trial": ("weights",), "program": ("optuna",)}
KINDS = ("csv", "parquet", "tensorboard", "mlflow", "html", "optuna")


@click.command(name="export", short_help="Write a study for other programs, or as a bundle.")
@study_argument
@click.option("--to", metavar="PATH", help="The file or folder to write; the suffix selects the format.")
@click.option("--as", "kind", type=click.Choice(KINDS), help="The format, if the suffix does not tell.")
@click.option("--bundle", type=click.Path(dir_okay=False, path_type=Path), help="A .zip for `hoptree verify`.")
@click.option("--reports", is_flag=True, help="For csv and parquet: a row per report instead of per trial.")
@click.option("--trial", type=int, help="For weights: this trial.  [default: the best]")
@click.option("--dark", is_flag=True, help="For html: a dark page.")
@click.option("--program", metavar="FILE[:NAME]", help="For optuna: the code.  [default: what it was run with]")
@in_a_store
def export_command(
    name: str,
    to: str | None,
    kind: str | None,
    bundle: Path | None,
    reports: bool,
    trial: int | None,
    dark: bool,
    program: str | None,
    location: str,
    journal: str | None,
) -> None:
    """Write a study for other programs, or as a bundle that reproduces it on another machine.

    \b
    --to trials.csv, trials.parquet  a row per trial
    --to report.html                 plots, trials, how to reproduce it: one file
    --to FOLDER --as tensorboard     curves and a table of hyper-parameters
    --to FOLDER --as mlflow          an experiment, a run per trial, in SQLite
    --to sqlite:///optuna.db         an Optuna storage; any URL of Optuna's
    --to best.safetensors, best.pt   the weights of the best model, or of --trial
    --bundle FILE.zip                for `hoptree verify` on another machine

    \b
    Examples:
      hoptree export digits --to report.html
      hoptree export digits --to runs --as tensorboard
      hoptree export digits --bundle digits.zip
    """  # noqa: D301 click needs the real character
    from hoptree.ui.studies_view import reading

    if (to is None) == (bundle is None):
        raise WorkloadError("export: give either --to or --bundle; for example --to report.html")
    form = "a bundle" if to is None else _form(to, kind)
    _check_options(form, {"reports": reports, "dark": dark, "trial": trial, "program": program})
    with reading(location, journal) as store:
        if bundle is not None:
            click.echo(_bundled(store, name, bundle))
            return
        assert to is not None
        match form:
            case "optuna":
                wrote = _mirrored(store, name, to, program, location, journal)
            case "weights":
                wrote = str(_weights(store, name, Path(to), trial))
            case _:
                options = {"reports": reports} if reports else {"dark": dark} if dark else {}
                wrote = str(_written(store, name, Path(to), form, options))
    click.echo(f"wrote {wrote}")


def _form(to: str, kind: str | None) -> str:
    """Return the format to write, by the suffix or by --as."""
    from hoptree.exports import kind_of

    suffix = Path(to).suffix
    by_suffix = "optuna" if "://" in to else "weights" if suffix in _WEIGHTS else kind_of(to)
    if by_suffix is None and kind is None:
        raise WorkloadError(
            f"--to: the format of {to} is unknown; expected .csv, .parquet, .html, .safetensors or .pt, "
            "an Optuna storage such as sqlite:///optuna.db, or a folder with --as tensorboard or --as mlflow"
        )
    if by_suffix is not None and kind not in (None, by_suffix):
        raise WorkloadError(f"--as: {kind}, but {to} means {by_suffix}; leave --as out, or change --to")
    return kind or by_suffix or ""


def _check_options(form: str, given: dict[str, Any]) -> None:
    """Raise an error for options that do not apply to the format."""
    for option, value in given.items():
        if value is not None and value is not False and form not in _TAKES[option]:
            raise WorkloadError(f"--{option}: does not apply to {form}, only to {' and '.join(_TAKES[option])}")


def _check_writable(path: Path) -> None:
    """Raise an error if a file cannot be written, because the libraries that write it report that differently."""
    if path.is_dir():
        raise WorkloadError(f"--to: {path} is a folder; expected a file")
    there = path if path.exists() else path.absolute().parent
    if there.exists() and not os.access(there, os.W_OK):
        raise WorkloadError(f"--to: no write permission for {there}; give another path")


def _written(store: Store, name: str, path: Path, kind: str, options: dict[str, Any]) -> Path:
    from hoptree.exports import export
    from hoptree.record.load_timeline import load_timeline

    if kind not in _FOLDERS:
        _check_writable(path)
    return export(load_timeline(store, name), kind, path, **options)


def _mirrored(store: Store, name: str, to: str, target: str | None, location: str, journal: str | None) -> str:
    """Write an Optuna storage. The parameters' ranges are only in the program, so it is loaded."""
    from hoptree.record.load_timeline import find_recorded_study
    from hoptree.record.spec import StudySpec, refuse_changes
    from hoptree.ui.programs import ProgramError, program, recorded_program

    url = to if "://" in to else f"sqlite:///{to}"
    spec = StudySpec.read(find_recorded_study(store, name).spec)
    with program(target or recorded_program(spec, name), name) as study:
        if study.name != name:
            raise ProgramError(f"--program: it defines the study {study.name!r}; expected {name!r}")
        if not spec.members:
            refuse_changes(name, spec, study.spec, accept=True)
        study.keep_in(location, journal)
        study.mirror(url)
    return url


def _weights(store: Store, name: str, path: Path, trial: int | None) -> Path:
    from hoptree.ui.studies_view import find_study

    _check_writable(path)
    view = find_study(store, name)
    best = view.results.best if trial is None else view.trial(trial)
    return best.save(path)


def _bundled(store: Store, name: str, path: Path) -> str:
    from hoptree.bundle.bundle import write_bundle

    about = write_bundle(store, name, path)
    stored = sum(bool(trial.fingerprint) for trial in about.trials)
    return (
        f"wrote {path}: {len(about.trials)} trials, {stored} with a fingerprint to compare\n"
        f"On another machine: hoptree verify {path.name} --program FILE"
    )


# --- verifying a bundle -----------------------------------------------------------------------------------


def is_bundle(name: str) -> bool:
    """Return whether the argument of `hoptree verify` is a bundle instead of a study's name."""
    return name.endswith(".zip")


def verify_bundle(path: str, trial: int | None, target: str | None, as_json: bool) -> None:
    """Train a bundle's trials again with a program, and print what matches, what differs, and the likely reason."""
    from hoptree.bundle.bundle import read_bundle
    from hoptree.bundle.check import compare, differences, to_compare
    from hoptree.ui.programs import ProgramError, program

    bundle = read_bundle(path)
    to_compare(bundle, trial)
    if target is None:
        file = Path(bundle.about.spec.program).name or "FILE"
        raise ProgramError(f"{path}: a bundle holds no code; give it as --program FILE (it was run with {file})")
    with (
        interruptible("Interrupted."),
        stdout_kept_for_json(as_json),
        program(target, bundle.about.study) as study,
    ):
        found = differences(bundle, study)
        if not as_json:
            click.echo(_differences_table(found))
        compared: list[TrialComparison] = []
        for each in compare(bundle, study, trial):
            compared.append(each)
            if not as_json:
                click.echo(_trial_line(each))
    if as_json:
        outcome = {"study": bundle.about.study, "differences": found, "trials": [_row(each) for each in compared]}
        print_json({**outcome, "verdict": verdict(found, compared)})
    else:
        click.echo(verdict(found, compared))
    if not all(each.same for each in compared):
        sys.exit(FAILED)


def _row(each: TrialComparison) -> dict[str, Any]:
    """Return a trial for JSON; metrics that are not finite, which a bundle holds as strings, become null."""
    row: dict[str, Any] = {**msgspec.to_builtins(each), "same": each.same}
    for side in ("metrics_there", "metrics_here"):
        row[side] = {name: None if isinstance(value, str) else value for name, value in row[side].items()}
    return row


def _differences_table(found: list[Difference]) -> str:
    from hoptree.report.tables import text_table
    from hoptree.ui.study_tables import short, terminal_width

    if not found:
        return "Code, data, seed and environment are the same as in the original run."
    hashes = ("trainer", "data")
    rows = [
        [each.what, *(short(v) if each.what in hashes else v for v in (each.there, each.here))] for each in found
    ]
    return text_table(["differs", "there", "here"], rows, width=terminal_width())


def _trial_line(each: TrialComparison) -> str:
    from hoptree.ui.study_tables import short

    prints = f"there {short(each.stored)}, here {short(each.trained)}"
    if each.same:
        return f"trial {each.trial}: {prints}: same bits"
    pairs = [
        f"{name} {each.metrics_there[name]:.6g} there, {value:.6g} here"
        for name, value in each.metrics_here.items()
        if isinstance(value, float) and isinstance(each.metrics_there.get(name), float)
    ]
    return "\n  ".join([f"trial {each.trial}: {prints}: differs", *(["; ".join(pairs)] if pairs else [])])


def verdict(found: list[Difference], compared: list[TrialComparison]) -> str:
    """Return one sentence on whether the bundle was reproduced, and the likely reason if not."""
    same = sum(each.same for each in compared)
    counted = f"{same} of {len(compared)} trials: same bits."
    if same == len(compared):
        return f"{counted} Reproduced{', despite the differences' if found else ''}."
    from hoptree.bundle.check import EXPLAIN_NOTHING

    reasons = [each for each in found if each.what not in EXPLAIN_NOTHING]
    if not reasons:
        return (
            f"{counted} {'No recorded difference explains this' if found else 'Nothing recorded differs'}, so look "
            "for code that is not deterministic: unseeded random numbers, time, the order of sets or files."
        )
    first, *rest = reasons
    others = f" Also different: {', '.join(each.what for each in rest)}." if rest else ""
    return f"{counted} The most likely reason is the {first.what}: {first.reason}.{others}"
