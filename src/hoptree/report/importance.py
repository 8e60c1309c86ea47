"""The importance of hyper-parameters, by Optuna's evaluators: the trials become an in-memory Optuna study."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.core.errors import MissingExtraError
from hoptree.report.columns import ParameterColumn, columns
from hoptree.report.study_timeline import StudyTimeline, TrialTimeline
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

CONSTANT, PARTIAL, CROWDED = "the same in all trials", "not set in all trials", "different in nearly every trial"
EVALUATORS = ("ped-anova", "fanova", "mean-decrease")
_FEWEST = 4
_OPTIONS = 12  # options of a hyper-parameter, up to which fANOVA takes seconds


class Importance(msgspec.Struct, frozen=True):
    """The shares of hyper-parameters, which add up to 1, largest first, and what they were computed from.

    ``left_out`` holds hyper-parameters that cannot be compared, each with the reason.
    """

    shares: dict[str, float]
    evaluator: str
    trials: int
    epoch: int
    left_out: dict[str, str]


def importance(history: StudyTimeline, evaluator: str = "ped-anova", seed: int = 0) -> Importance:
    """Compare trials at the largest epoch that at least half of them have reported, for equal training."""
    if evaluator not in EVALUATORS:
        raise ReportError(f"evaluator: {evaluator!r}; expected one of {', '.join(EVALUATORS)}")
    history.with_reports("importance")
    epoch = history.common_epoch
    trial_timelines = [c for c in history.trials if math.isfinite(history.value(c.at(epoch)))]
    found = [each for name in history.searched for each in columns(name, trial_timelines)]
    left_out = {each.name: reason for each in found if (reason := _unfit(each, evaluator))}
    compared = [each for each in found if each.name not in left_out]
    if len(trial_timelines) < _FEWEST or not compared:
        raise ReportError(
            f"importance: {len(trial_timelines)} trials with a finite {history.metric!r} at epoch {epoch}, and "
            f"{len(compared)} hyper-parameters in which all of them differ; expected at least {_FEWEST} and 1"
        )
    for each in compared:
        if evaluator == "fanova" and not each.numbers and len(each.ticks) > _OPTIONS:
            raise ReportError(
                f"evaluator: 'fanova' would take minutes for {each.name!r} with its many options; use 'ped-anova'"
            )
    shares = _evaluated(history, trial_timelines, epoch, compared, evaluator, seed)
    shares = dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
    return Importance(shares, evaluator, len(trial_timelines), epoch, left_out)


def _unfit(each: ParameterColumn, evaluator: str) -> str:
    """Return why a hyper-parameter cannot be compared; "" if it can."""
    given = [place for place in each.places if not math.isnan(place)]
    if len(set(given)) < 2:
        return CONSTANT
    if evaluator != "ped-anova" and len(given) < len(
        each.places
    ):  # the only evaluator that supports missing values
        return PARTIAL
    many = not each.numbers and len(each.ticks) > _OPTIONS and 2 * len(each.ticks) > len(given)
    return CROWDED if many else ""


def _evaluated(
    history: StudyTimeline,
    trial_timelines: Sequence[TrialTimeline],
    epoch: int,
    found: Sequence[ParameterColumn],
    evaluator: str,
    seed: int,
) -> dict[str, float]:
    optuna = _optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls some of its evaluators experimental
            study = optuna.create_study(direction="maximize" if history.maximize else "minimize")
            terms = {each.name: _terms(each) for each in found}
            rows = range(len(trial_timelines))
            given = [[name for name in terms if terms[name][1][row] is not None] for row in rows]
            study.add_trials(
                [
                    optuna.trial.create_trial(
                        params={name: terms[name][1][index] for name in names},
                        distributions={name: terms[name][0] for name in names},
                        value=history.value(trial_timeline.at(epoch)),
                    )
                    for index, (trial_timeline, names) in enumerate(zip(trial_timelines, given, strict=True))
                ]
            )
            scorer = _evaluator(optuna, evaluator, seed)
            return dict(optuna.importance.get_param_importances(study, evaluator=scorer, params=list(terms)))
    finally:
        optuna.logging.set_verbosity(before)


def _evaluator(optuna: Any, evaluator: str, seed: int) -> Any:
    try:
        match evaluator:
            case "fanova":
                return optuna.importance.FanovaImportanceEvaluator(seed=seed)
            case "mean-decrease":
                return optuna.importance.MeanDecreaseImpurityImportanceEvaluator(seed=seed)
            case _:
                return optuna.importance.PedAnovaImportanceEvaluator()
    except ImportError as error:
        raise MissingExtraError(
            f"evaluator: {evaluator!r} needs scikit-learn, which is not installed; pip install "
            "'hoptree[importance]', or use 'ped-anova'"
        ) from error


def _terms(each: ParameterColumn) -> tuple[BaseDistribution, list[Any]]:
    """Return a hyper-parameter's Optuna distribution and its values: options are encoded by their index."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not each.numbers:
        options = CategoricalDistribution(list(range(len(each.ticks))))
        return options, [None if math.isnan(place) else int(place) for place in each.places]
    given = [number for number in each.numbers if number is not None]
    low, high, log = min(given), max(given), each.spreads
    if isinstance(low, int) and isinstance(high, int) and all(isinstance(number, int) for number in given):
        return IntDistribution(low, high, log=log), list(each.numbers)
    numbers = [None if number is None else float(number) for number in each.numbers]
    return FloatDistribution(float(low), float(high), log=log), numbers


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError(
            "optuna is not installed; the importance of hyper-parameters needs it: pip install 'hoptree[optuna]'"
        ) from error
    return optuna
