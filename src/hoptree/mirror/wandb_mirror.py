"""A mirror in Weights & Biases: one run for each trial, with its config, its curve by epoch, and how it ended.

A run's id is computed from the study and the trial's number, so a resumed study continues the same runs. Steps are
epochs, and each is written once. A file beside wandb's own files records what has been written; an online run is
also queried when it is continued, an offline run cannot be.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

import msgspec

from hoptree.core import keys
from hoptree.core.errors import MissingExtraError, RefusedError, WorkloadError
from hoptree.core.schedules import Config, Schedule
from hoptree.mirror.trial_snapshot import TrialSnapshot
from hoptree.search.value_kinds import text

if TYPE_CHECKING:
    import wandb

_LONGEST = 2_000  # characters of an error that are shown: its end, where the reason is
_MODES = ("online", "offline")


@final
class WandB(msgspec.Struct, frozen=True):
    """Where Weights & Biases shows a study: ``study.run(mirror=ht.WandB(project="digits"))``.

    ``mode`` is "online" or "offline" (files for ``wandb sync``), by default what ``WANDB_MODE`` says. ``folder`` is
    where it keeps its files, in a folder ``wandb``; by default where the program runs.
    """

    project: str
    entity: str | None = None
    mode: Literal["online", "offline"] | None = None
    folder: str | Path = "."

    def __post_init__(self) -> None:
        if not isinstance(self.project, str) or not self.project:
            raise WorkloadError(f"project: {self.project!r}; expected the name of a project, for example 'digits'")
        if any(sign in self.project for sign in "/\\#?%:"):
            raise WorkloadError(f"project: {self.project!r}; expected a name without / \\ # ? % and :")
        if self.mode is not None and self.mode not in _MODES:
            raise WorkloadError(f"mode: {self.mode!r}; expected 'online' or 'offline'")


class _Written(msgspec.Struct):
    """What was written to a run: the last epoch, and the state of its trial."""

    epoch: int = -1
    state: str = ""


@final
class WandbMirror:
    """Writes the trials of a study; runs stay open until their trials end."""

    def __init__(self, where: WandB, name: str, identity: str) -> None:
        if find_spec("wandb") is None:
            raise MissingExtraError("mirror: needs wandb, which is not installed; pip install 'hoptree[wandb]'")
        self._where = where
        self._name = name
        self._identity = identity
        self._mode = where.mode or os.environ.get("WANDB_MODE", "online")
        self._folder = Path(where.folder) / "wandb"
        note = keys.identity("wandb project", where.project, name, identity)[:16]
        self._note = self._folder / f"hoptree-{note}.json"
        self._runs: dict[int, wandb.Run] = {}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._written = msgspec.json.decode(self._note.read_bytes(), type=dict[str, _Written])
        except FileNotFoundError:
            self._written = {}
        except (OSError, msgspec.DecodeError) as error:
            raise WorkloadError(f"mirror: {self._note}: {error}; expected a folder for wandb's files") from None
        if self._mode == "online":
            _log_in()

    def show(self, trials: Sequence[TrialSnapshot]) -> None:
        """Write the changes of some trials."""
        if self._mode == "disabled":  # by WANDB_MODE
            return
        try:
            for trial in sorted(trials, key=lambda trial: trial.number):
                self._show(trial)
        finally:
            aside = self._note.with_suffix(".new")
            aside.write_bytes(msgspec.json.encode(self._written))
            aside.replace(self._note)

    def close(self) -> None:
        """Close the runs of unfinished trials: they continue when the study is resumed."""
        while self._runs:
            self._runs.popitem()[1].finish()

    def run_id(self, number: int) -> str:
        """Return the id of a trial's run: the same whenever and wherever the study is resumed."""
        return keys.identity("wandb run", self._name, self._identity, number)[:16]

    # --- runs -------------------------------------------------------------------------------------------

    def _show(self, trial: TrialSnapshot) -> None:
        written = self._written.setdefault(self.run_id(trial.number), _Written())
        if written.epoch >= max(trial.curve, default=-1) and written.state == trial.state:
            return
        run = self._runs.get(trial.number) or self._begin(trial, written)
        for epoch in sorted(trial.curve):
            if epoch > written.epoch:
                run.log(dict(trial.curve[epoch]), step=epoch)
                written.epoch = epoch
        error = {"error": trial.error[-_LONGEST:]} if trial.error else {}
        run.summary.update({"state": trial.state, "epochs": max(trial.curve, default=0), **error})
        if trial.state != "running":
            run.finish(exit_code=int(trial.state == "failed"))
            del self._runs[trial.number]
        written.state = trial.state

    def _begin(self, trial: TrialSnapshot, written: _Written) -> wandb.Run:
        import wandb

        run = wandb.init(
            project=self._where.project,
            entity=self._where.entity,
            dir=self._where.folder,
            id=self.run_id(trial.number),
            name=f"{self._name}-{trial.number}",
            group=self._name,
            job_type="trial",
            config=config_of(trial.config),
            resume="allow" if self._mode == "online" else None,
            reinit="create_new",  # leaves runs of the user's own program alone
            mode=self._where.mode,
            settings=wandb.Settings(
                silent=True,
                console="off",
                disable_code=True,
                disable_git=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )
        self._runs[trial.number] = run
        if self._mode == "online":
            written.epoch = run.step - 1
        return run


def config_of(config: Config) -> dict[str, Any]:
    """Return a config for wandb: numbers and texts as they are, schedules as text."""
    return {name: text(value) if isinstance(value, Schedule) else value for name, value in config.items()}


def _log_in() -> None:
    """Let wandb ask for credentials before training starts, if there is a terminal."""
    import wandb

    try:
        known = wandb.login()
    except Exception as error:  # no terminal, no network, a wrong key
        raise RefusedError(f"mirror: wandb: {error}; {_HOW}") from None
    if not known:
        raise RefusedError(f"mirror: wandb: not logged in; {_HOW}")


_HOW = "run `wandb login`, or use mode='offline'"
