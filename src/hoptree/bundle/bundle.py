"""A reproducible bundle: one zip file with all that another machine needs to retrain a study and compare.

It holds `bundle.json` (the study's definition, the environments it was run in, its trials with their visits and
fingerprints) and `journal.jsonl` (the events, from which configs, branches and orders are rebuilt). It holds the
fingerprints of code and data, but neither of them.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, final

import msgspec

from hoptree.core.errors import HoptreeError
from hoptree.core.metrics import spelled
from hoptree.core.plan import Trial
from hoptree.record.load_timeline import find_recorded_study
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.store.journal import Recorded

FORMAT = 2
_MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest time of the zip format: equal studies give equal bundles
_FILES = ("bundle.json", "journal.jsonl")


class BundleError(HoptreeError):
    """The file is not a bundle, or has another format."""


class BundledTrial(msgspec.Struct, frozen=True):
    """A trial: how far it was trained, in which order it visited the partitions, and the fingerprint of its state.

    ``fingerprint`` is "" if no state was stored, or it was damaged. ``metrics`` that are not finite are written as
    text.
    """

    number: int
    config: dict[str, str]
    state: str
    epochs: int
    metrics: dict[str, float | str]
    visits: list[int]
    fingerprint: str


class About(msgspec.Struct, frozen=True):
    """The description of a study in a bundle."""

    format: int
    study: str
    spec: StudySpec
    trials: list[BundledTrial]


@final
class Bundle:
    """A bundle that was read: its description, and the record that its journal leads to."""

    def __init__(self, about: About, record: Record) -> None:
        self.about = about
        self.record = record

    def trial(self, number: int) -> Trial:
        """Return a trial of the record by the number under which the study shows it."""
        return _own_trials(self.record, self.about.spec, self.about.study)[number]


def write_bundle(store: Store, name: str, path: str | Path) -> About:
    """Write the bundle of a study, and return its description."""
    path = Path(path)
    if path.suffix != ".zip":
        raise BundleError(f"{path}: suffix is {path.suffix!r}; expected .zip, for example {name}.zip")
    if not path.absolute().parent.is_dir():
        raise BundleError(f"{path}: the folder {path.absolute().parent} does not exist; create it first")
    known = find_recorded_study(store, name)
    spec = StudySpec.read(known.spec)
    record = Record(spec.settings)
    lines: list[bytes] = []
    for _ in record.replay(_copy_lines(store.journal.read(known.name), lines)):
        pass
    about = About(
        FORMAT,
        name,
        spec,
        [_bundled(store, record, trial, n) for n, trial in enumerate(_own_trials(record, spec, name))],
    )
    contents = (msgspec.json.format(msgspec.json.encode(about), indent=2), b"\n".join(lines) + b"\n")
    partial = path.with_name(f".{path.name}.partial")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as bundle:
        for file, content in zip(_FILES, contents, strict=True):
            bundle.writestr(zipfile.ZipInfo(file, _MOMENT), content, zipfile.ZIP_DEFLATED)
    partial.replace(path)
    return about


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle, without running anything in it."""
    from hoptree.store import decode
    from hoptree.store.journal import Recorded

    try:
        with zipfile.ZipFile(path) as bundle:
            described, journal = (bundle.read(file) for file in _FILES)
        format_ = msgspec.json.decode(described).get("format")
        if format_ != FORMAT:
            raise BundleError(
                f"{path}: bundle format {format_}; this version of Hoptree reads {FORMAT}; use what wrote it"
            )
        about = msgspec.json.decode(described, type=About)
        lines = (msgspec.json.decode(line, type=_Line) for line in journal.splitlines())
        entries = (Recorded(number, line.now, decode(bytes(line.entry))) for number, line in enumerate(lines, 1))
        record = Record(about.spec.settings).read(entries)
    except FileNotFoundError:
        raise BundleError(
            f"{path}: the file does not exist; hoptree export NAME --bundle FILE.zip writes a bundle"
        ) from None
    except (OSError, KeyError, zipfile.BadZipFile, msgspec.MsgspecError, AttributeError) as error:
        raise BundleError(
            f"{path}: not a bundle ({error}); expected a file that hoptree export --bundle has written"
        ) from None
    return Bundle(about, record)


class _Line(msgspec.Struct, array_like=True):
    now: float
    entry: msgspec.Raw


def _copy_lines(entries: Iterator[Recorded], lines: list[bytes]) -> Iterator[Recorded]:
    """Yield the entries unchanged, and append each as a line: its time, and the entry as stored."""
    from hoptree.store import encode

    for recorded in entries:
        lines.append(msgspec.json.encode(_Line(recorded.now, msgspec.Raw(encode(recorded.entry)))))
        yield recorded


def _own_trials(record: Record, spec: StudySpec, name: str) -> list[Trial]:
    return [trial for trial in record.trials if name not in spec.members or trial.study == name]


def _bundled(store: Store, record: Record, trial: Trial, number: int) -> BundledTrial:
    curve = trial.curve
    metrics = curve[max(curve)] if curve else {}
    return BundledTrial(
        number=number,
        config={name: str(value) for name, value in trial.history[-1].config},
        state=trial.ending or "running",
        epochs=trial.done,
        metrics={**spelled(metrics)},
        visits=[unit.partition for unit in record.units(trial)] if trial.done else [],
        fingerprint=_fingerprint(store, record, trial),
    )


def _fingerprint(store: Store, record: Record, trial: Trial) -> str:
    from hoptree.store import StateDamagedError, StateMissingError, fingerprint

    place = record.place(trial) if trial.ending == "complete" else None
    if place is None:
        return ""
    try:
        return fingerprint(store.states.get(place.node.state_key(place.unit))[0])
    except (StateDamagedError, StateMissingError):
        return ""
