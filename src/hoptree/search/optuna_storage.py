"""An Optuna storage whose finished trials can be changed, for losses that become comparable later.

Optuna's in-memory storage rejects changes to a finished trial, and filling a new storage for every config takes
longer than the proposal. This class keeps the list of trials itself and inherits everything else. The number of a
trial is its id, and there is one study.
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
    """The trials so far: any trial can be replaced, and the last ones can be removed."""

    def __init__(self) -> None:
        super().__init__()
        self._trials: list[FrozenTrial] = []

    @property
    def count(self) -> int:
        """The number of trials."""
        return len(self._trials)

    def put(self, trial: FrozenTrial) -> None:
        """Replace the trial of the same number, or add it at the end."""
        self._trials[trial.number : trial.number + 1] = [trial]

    def remove_from(self, first: int) -> None:
        """Remove the trials from a number on."""
        del self._trials[first:]

    # --- Optuna's storage interface ---------------------------------------------------------------------

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """Add a running trial, and return its id."""
        number = len(self._trials)
        assert template_trial is None, "add existing trials with put"
        self.put(frozen(number, TrialState.RUNNING))
        return number

    def get_trial(self, trial_id: int) -> FrozenTrial:
        """Return the current version of a trial."""
        return self._trials[trial_id]

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return the trials in the given states, in order."""
        found = [trial for trial in self._trials if states is None or trial.state in states]
        return copy.deepcopy(found) if deepcopy else found

    def get_trial_id_from_study_id_trial_number(self, study_id: int, trial_number: int) -> int:
        """Return the number, which is the id."""
        return trial_number

    def get_trial_number_from_id(self, trial_id: int) -> int:
        """Return the id, which is the number."""
        return trial_id

    def get_trial_param(self, trial_id: int, param_name: str) -> float:
        """Return a parameter in Optuna's internal representation."""
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
        """Set a parameter."""
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
        """Set the state and the values of a trial."""
        self._change(trial_id, state=state, **({} if values is None else {"values": list(values)}))
        return True

    def set_trial_intermediate_value(self, trial_id: int, step: int, intermediate_value: float) -> None:
        """Set the loss at a step."""
        before = self._trials[trial_id].intermediate_values
        self._change(trial_id, intermediate_values={**before, step: intermediate_value})

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a user attribute."""
        self._change(trial_id, user_attrs={**self._trials[trial_id].user_attrs, key: value})

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        """Set a system attribute: samplers keep their state there."""
        self._change(trial_id, system_attrs={**self._trials[trial_id].system_attrs, key: value})

    def _change(self, trial_id: int, **fields: Any) -> None:
        """Replace a trial by a changed copy, so that references to the old one stay valid."""
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
    system_attributes: Mapping[str, Any] | None = None,
    losses: Mapping[int, float] | None = None,
) -> FrozenTrial:
    """Return a trial for ``put``, without timestamps."""
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
        system_attrs=dict(system_attributes or {}),
        intermediate_values=dict(losses or {}),
    )
