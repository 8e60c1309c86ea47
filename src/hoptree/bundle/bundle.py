"""A reproducible bundle: one zip file with all that another machine needs to train a study again and compare.

It holds `bundle.json` (what the study is made of, where it was run, its trials with their visits and fingerprints)
and `journal.jsonl` (the events, from which configs, branches and orders are rebuilt). Neither code nor data is in
it: their fingerprints are.
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
from hoptree.record.load_timeline import find
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.store.journal import Recorded

FORMAT = 2
_MOMENT = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip file knows: equal studies give equal bundles
_FILES = ("bundle.json", "journal.jsonl")


class BundleError(HoptreeError):
    """A file that is no bundle, or one of another format."""


class BundledTrial(msgspec.Struct, frozen=True):
    """A trial: how far it came, in which order it visited the partitions, and the bits that came out.

    ``fingerprint`` is "" where no state was stored, or it was damaged. ``metrics`` that are no finite numbers are
    spelled.
    """

    number: int
    config: dict[str, str]
    state: str
    epochs: int
    metrics: dict[str, float | str]
    visits: list[int]
    fingerprint: str


class About(msgspec.Struct, frozen=True):
    """What a bundle says of its study."""

    format: int
    study: str
    spec: StudySpec
    trials: list[BundledTrial]


@final
class Bundle:
    """A bundle that was read: what it says, and the record that its journal makes."""

    def __init__(self, about: About, record: Record) -> None:
        self.about = about
        self.record = record

    def trial(self, number: int) -> Trial:
        """Return a trial of the record by the number under which the study shows it."""
        return _own(self.record, self.about.spec, self.about.study)[number]


def write_bundle(store: Store, name: str, path: str | Path) -> About:
    """Write the bundle of a study, and return what it says."""
    path = Path(path)
    if path.suffix != ".zip":
        raise BundleError(f"{path}: suffix is {path.suffix!r}; expected .zip, for example {name}.zip")
    if not path.absolute().parent.is_dir():
        raise BundleError(f"{path}: there is no folder {path.absolute().parent}; make it first")
    known = find(store, name)
    spec = StudySpec.read(known.spec)
    record = Record(spec.settings)
    lines: list[bytes] = []
    for _ in record.replay(_noted(store.journal.read(known.name), lines)):
        pass
    about = About(
        FORMAT,
        name,
        spec,
        [_bundled(store, record, trial, n) for n, trial in enumerate(_own(record, spec, name))],
    )
    contents = (msgspec.json.format(msgspec.json.encode(about), indent=2), b"\n".join(lines) + b"\n")
    aside = path.with_name(f".{path.name}.partial")
    with zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as bundle:
        for file, content in zip(_FILES, contents, strict=True):
            bundle.writestr(zipfile.ZipInfo(file, _MOMENT), content, zipfile.ZIP_DEFLATED)
    aside.replace(path)
    return about


def read_bundle(path: str | Path) -> Bundle:
    """Read a bundle; nothing in it is run."""
    from hoptree.store import decode
    from hoptree.store.journal import Recorded

    try:
        with zipfile.ZipFile(path) as bundle:
            described, journal = (bundle.read(file) for file in _FILES)
        format_ = msgspec.json.decode(described).get("format")
        if format_ != FORMAT:
            raise BundleError(
                f"{path}: a bundle of format {format_}; this Hoptree reads {FORMAT}; use the one that wrote it"
            )
        about = msgspec.json.decode(described, type=About)
        lines = (msgspec.json.decode(line, type=_Line) for line in journal.splitlines())
        entries = (Recorded(number, line.now, decode(bytes(line.entry))) for number, line in enumerate(lines, 1))
        record = Record(about.spec.settings).read(entries)
    except FileNotFoundError:
        raise BundleError(
            f"{path}: there is no such bundle; hoptree export NAME --bundle FILE.zip writes one"
        ) from None
    except (OSError, KeyError, zipfile.BadZipFile, msgspec.MsgspecError, AttributeError) as error:
        raise BundleError(f"{path}: not a bundle ({error}); expected what hoptree export --bundle writes") from None
    return Bundle(about, record)


class _Line(msgspec.Struct, array_like=True):
    now: float
    entry: msgspec.Raw


def _noted(entries: Iterator[Recorded], lines: list[bytes]) -> Iterator[Recorded]:
    """Pass entries on, and keep each as a line: its time, and the entry as the store has it."""
    from hoptree.store import encode

    for recorded in entries:
        lines.append(msgspec.json.encode(_Line(recorded.now, msgspec.Raw(encode(recorded.entry)))))
        yield recorded


def _own(record: Record, spec: StudySpec, name: str) -> list[Trial]:
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
