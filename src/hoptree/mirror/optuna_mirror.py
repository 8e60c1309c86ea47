"""A mirror in an Optuna storage: a Hoptree study as an Optuna study, for optuna-dashboard.

| state in Hoptree | state in Optuna |
|---|---|
| running, or extended | running |
| complete, last value finite | complete, with that value |
| stopped | pruned, with its last value |
| failed, or the last value is not finite | fail |

Trial numbers are the same in both. Only differences are written, so a study can be mirrored repeatedly. A complete
trial may be extended later; Optuna's API does not support that, so ``_reopen`` writes to Optuna's tables directly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, final

from hoptree.core.errors import MissingExtraError, WorkloadError
from hoptree.mirror.parameters import Parameters, config_text
from hoptree.mirror.trial_snapshot import TrialSnapshot
from hoptree.search.optuna_methods import quiet
from hoptree.search.parse_space import Space
from hoptree.search.protocol import Goal
from hoptree.store.errors import StoreUnreachableError

if TYPE_CHECKING:
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial, TrialState

_MARK = "hoptree"  # the attribute that marks a mirror, to distinguish it from other Optuna studies
_TABLES = "v3.2.0.a"  # the version of Optuna's tables that `_reopen` changes
_LONGEST = 2_000  # characters of an error that are shown: its end, where the reason is


class _Picture(NamedTuple):
    """A trial in Optuna's terms."""

    state: TrialState
    value: float | None
    curve: dict[int, float]
    attributes: dict[str, Any]


@final
class OptunaMirror:
    """Writes trials to the Optuna storage at a database's URL, under the name of their study.

    ``identity`` distinguishes studies of the same name: the mirror of another study raises an error.
    """

    def __init__(self, url: str, name: str, identity: str, space: Space, goal: Goal) -> None:
        if not isinstance(url, str) or "://" not in url:
            raise WorkloadError(
                f"mirror: {url!r}; expected the URL of a database, for example 'sqlite:///optuna.db'"
            )
        if find_spec("optuna") is None:
            raise MissingExtraError("mirror: needs optuna, which is not installed; pip install 'hoptree[optuna]'")
        self._url = url
        self._goal = goal
        self._parameters = Parameters(space)
        self._places: dict[int, int] = {}
        self._storage = _open(url)
        try:
            self._study = self._find(name, identity)
            self._known = self._read()
        except BaseException:
            self.close()
            raise

    def show(self, trials: Sequence[TrialSnapshot]) -> None:
        """Write the changes of some trials; new trials must be written in the order of their numbers."""
        for trial in sorted(trials, key=lambda trial: trial.number):
            if trial.number >= len(self._known):
                self._add(trial)
            else:
                self._update(self._known[trial.number], trial)

    def close(self) -> None:
        """Close the database."""
        self._storage.remove_session()
        self._storage.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the study --------------------------------------------------------------------------------------

    def _find(self, name: str, identity: str) -> int:
        """Return the id of the study in the storage; create it if it does not exist."""
        import optuna

        with quiet():
            study = optuna.create_study(
                storage=self._storage,
                study_name=name,
                direction="maximize" if self._goal.maximize else "minimize",
                load_if_exists=True,
            )
            known = study.user_attrs.get(_MARK)
            if known is None and not study.get_trials(deepcopy=False):
                study.set_user_attr(_MARK, identity)
                study.set_metric_names([self._goal.metric])
                for constant, value in self._parameters.constants.items():
                    study.set_user_attr(constant, value)
            elif known != identity:
                whose = "no mirror" if known is None else "the mirror of another study of this name"
                raise WorkloadError(
                    f"mirror: the study {name!r} in {_shown_url(self._url)} is {whose}; use another database, or "
                    "delete that study with optuna.delete_study"
                )
            return self._storage.get_study_id_from_name(name)

    def _read(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study, deepcopy=False)

    # --- trials -----------------------------------------------------------------------------------------

    def _add(self, trial: TrialSnapshot) -> None:
        from optuna.trial import FrozenTrial

        if self._storage.get_n_trials(self._study) != len(self._known):
            self._known = self._read()  # another process mirrors it too
            if trial.number < len(self._known):
                self._update(self._known[trial.number], trial)
                return
        assert trial.number == len(self._known), f"trial {trial.number} comes after {len(self._known)} trials"
        picture = self._picture(trial)
        params = self._parameters.values(trial.config)
        now = datetime.now()
        begun = now if trial.begun is None else datetime.fromtimestamp(trial.begun)
        ended = now if trial.ended is None else datetime.fromtimestamp(trial.ended)
        added = FrozenTrial(
            number=trial.number,
            trial_id=-1,
            state=picture.state,
            value=picture.value,
            datetime_start=begun,
            datetime_complete=ended if picture.state.is_finished() else None,
            params=params,
            distributions={name: self._parameters.distributions[name] for name in params},
            user_attrs={"config": config_text(trial.config), **picture.attributes},
            system_attrs={},
            intermediate_values=picture.curve,
        )
        self._storage.create_new_trial(self._study, added)
        self._known.append(self._storage.get_trial(self._place(trial.number)))

    def _update(self, known: FrozenTrial, trial: TrialSnapshot) -> None:
        new = self._picture(trial)
        steps = {
            step: value for step, value in new.curve.items() if not _same(known.intermediate_values, step, value)
        }
        notes = {key: value for key, value in new.attributes.items() if not _same(known.user_attrs, key, value)}
        if not steps and not notes and (known.state, known.value) == (new.state, new.value):
            return
        place = self._place(trial.number)
        if known.state.is_finished():
            self._reopen(place)
        for step, value in steps.items():
            self._storage.set_trial_intermediate_value(place, step, value)
        for key, note in notes.items():
            self._storage.set_trial_user_attr(place, key, note)
        if new.state.is_finished():
            self._storage.set_trial_state_values(place, new.state, None if new.value is None else [new.value])
        self._known[trial.number] = self._storage.get_trial(place)

    def _place(self, number: int) -> int:
        """Return the id of a trial in the storage."""
        if number not in self._places:
            found = self._storage.get_trial_id_from_study_id_trial_number(self._study, number)
            self._places[number] = found
        return self._places[number]

    def _reopen(self, place: int) -> None:
        """Reopen a finished trial; Optuna has no call for it, so change tables whose version `_open` checks."""
        from sqlalchemy import text

        with self._storage.engine.begin() as connection:
            values = {"trial": place}
            connection.execute(text("DELETE FROM trial_values WHERE trial_id = :trial"), values)
            connection.execute(
                text("UPDATE trials SET state = 'RUNNING', datetime_complete = NULL WHERE trial_id = :trial"),
                values,
            )

    def _picture(self, trial: TrialSnapshot) -> _Picture:
        from optuna.trial import TrialState

        metric = self._goal.metric
        curve = {epoch: float(metrics.get(metric, math.nan)) for epoch, metrics in sorted(trial.curve.items())}
        last = curve[max(curve)] if curve else math.nan
        value = last if math.isfinite(last) else None
        error = trial.error
        match trial.state:
            case "running":
                return _Picture(TrialState.RUNNING, None, curve, {})
            case "complete" if value is not None:
                state = TrialState.COMPLETE
            case "stopped":
                state = TrialState.PRUNED
            case _:
                state = TrialState.FAIL
                value, error = None, error or f"{metric} is {last}"
        attributes: dict[str, Any] = {"epochs": max(curve, default=0)}
        for name, number in trial.metrics.items():
            if name != metric:
                attributes[f"metric.{name}"] = float(number) if math.isfinite(number) else str(number)
        return _Picture(state, value, curve, attributes | ({"error": error[-_LONGEST:]} if error else {}))


def _open(url: str) -> RDBStorage:
    from optuna.exceptions import StorageInternalError
    from optuna.storages import RDBStorage
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    try:
        storage = RDBStorage(url)
        tables = storage.get_current_version()
    except ArgumentError as error:
        raise WorkloadError(
            f"mirror: {_shown_url(url)}: {error}; expected the URL of a database, for example 'sqlite:///optuna.db'"
        ) from None
    except (ImportError, RuntimeError, StorageInternalError, SQLAlchemyError) as error:
        raise StoreUnreachableError(f"mirror: {_shown_url(url)} cannot be opened: {error}") from None
    if tables != _TABLES:
        storage.remove_session()
        storage.engine.dispose()
        raise WorkloadError(
            f"mirror: {_shown_url(url)} has Optuna's tables of version {tables}; expected version {_TABLES}: "
            "pip install 'hoptree[optuna]' takes an Optuna that has them"
        )
    return storage


def _shown_url(url: str) -> str:
    """Return a URL without its password."""
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return repr(url)


def _same(known: dict[Any, Any], key: Any, value: Any) -> bool:
    """Return whether two values are equal; NaN equals itself."""
    before = known.get(key)
    if isinstance(before, float) and isinstance(value, float) and math.isnan(before):
        return math.isnan(value)
    return bool(before == value)
