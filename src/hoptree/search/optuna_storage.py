"""An Optuna storage whose past can be changed: losses become comparable only later, and proposals are taken back.

Optuna's own storage in memory refuses to change a trial that has ended. A new one for every config that is asked
for would do, but filling it takes longer than the proposal. This one keeps the trials itself, as they are; all else
is Optuna's. The number of a trial is its id, and there is one study.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Mapping, Sequence
from typing import Any, final

from optuna.distributions import BaseDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState


@final
class EditableStorage(InMemoryStorage):
    """The trials so far: trial n can be put in another's place, and the last ones be forgotten."""

    def __init__(self) -> None:
        super().__init__()
        self._trials: list[FrozenTrial] = []

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._trials)

    def put(self, trial: FrozenTrial) -> None:
        """Replace the trial of the same number, or add it at the end."""
        self._trials[trial.number : trial.number + 1] = [trial]

    def forget(self, first: int) -> None:
        """Drop the trials from a number on."""
        del self._trials[first:]

    # --- what Optuna asks for ---------------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Add a running trial, and return its id."""
        number = len(self._trials)
        assert template_trial is None, "trials that are known are put"
        self.put(frozen(number, TrialState.RUNNING))
        return number

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return a trial as it is now."""
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials in some states, in order."""
        found = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """Return the number itself."""
        return trial_number

    def get_trial_number_from_id(self, trial_id: int) -> int:
        """Return the id itself."""
        return trial_id

    def get_trial_param(self, trial_id: int, param_name: str) -> float:
        """Return a parameter as Optuna keeps it."""
        trial = self._trials[trial_id]
        return trial.distributions[param_name].to_internal_repr(trial.params[param_name])

    def get_best_trial(self, study_id: int) -> FrozenTrial:
        """Return the first of the complete trials with the lowest value: losses are minimized."""
        complete = [trial for trial in self._trials if trial.state == TrialState.COMPLETE]
        if not complete:
            raise ValueError("No trials are completed yet.")
        return min(complete, key=lambda trial: trial.values[0])

    def set_trial_param(
        self, trial_id: int, param_name: str, param_value_internal: float, distribution: BaseDistribution
    ) -> None:
        """Note a parameter."""
        trial = self._trials[trial_id]
        value = distribution.to_external_repr(param_value_internal)
        self._change(
            trial_id,
            params={**trial.params, param_name: value},
            distributions={**trial.distributions, param_name: distribution},
        )

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> bool:
        """Note how a trial stands."""
        self._change(trial_id, state=state, **({} if values is None else {"values": list(values)}))
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Note a loss on the way."""
        before = self._trials[trial_id].intermediate_values
        self._change(trial_id, intermediate_values={**before, step: intermediate_value})

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Note what somebody wants to remember."""
        self._change(trial_id, user_attrs={**self._trials[trial_id].user_attrs, key: value})

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Note what a sampler wants to remember."""
        self._change(trial_id, system_attrs={**self._trials[trial_id].system_attrs, key: value})

    def _change(self, trial_id: int, **fields: Any) -> None:
        """Put a changed copy in a trial's place: who holds the old one is not disturbed."""
        trial = copy.copy(self._trials[trial_id])
        for name, value in fields.items():
            setattr(trial, name, value)
        self._trials[trial_id] = trial


def frozen(
    number: int,
    state: TrialState,
    value: float | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    distributions: Mapping[str, BaseDistribution] | None = None,
    notes: Mapping[str, Any] | None = None,
    losses: Mapping[int, float] | None = None,
) -> FrozenTrial:
    """Return a trial for ``put``; nobody asks when it was."""
    return FrozenTrial(
        number=number,
        trial_id=number,
        state=state,
        value=value,
        datetime_start=None,
        datetime_complete=None,
        params=dict(params or {}),
        distributions=dict(distributions or {}),
        user_attrs={},
        system_attrs=dict(notes or {}),
        intermediate_values=dict(losses or {}),
    )
