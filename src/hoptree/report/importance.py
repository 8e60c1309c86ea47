"""How much each hyper-parameter matters, by Optuna's evaluators: the trials become a study in its memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.core.errors import MissingExtraError
from hoptree.report.chronicle import Chronicle, Course
from hoptree.report.columns import Column, columns
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

CONSTANT, PARTIAL, CROWDED = "the same in all of them", "not in all of them", "nearly another one in each of them"
EVALUATORS = ("ped-anova", "fanova", "mean-decrease")
_FEWEST = 4
_OPTIONS = 12  # of a hyper-parameter, up to which fANOVA takes seconds


class Importance(msgspec.Struct, frozen=True):
    """Shares of the hyper-parameters, which add up to 1, the largest first; and what they were computed from.

    ``left_out`` are hyper-parameters whose share cannot be compared, each with the reason.
    """

    shares: dict[str, float]
    evaluator: str
    trials: int
    epoch: int
    left_out: dict[str, str]


def importance(chronicle: Chronicle, evaluator: str = "ped-anova", seed: int = 0) -> Importance:
    """Compare trials at the largest epoch that at least half of them have reported: equal work for all."""
    if evaluator not in EVALUATORS:
        raise ReportError(f"evaluator: {evaluator!r}; expected one of {', '.join(EVALUATORS)}")
    chronicle.with_reports("importance")
    epoch = chronicle.common_epoch
    courses = [c for c in chronicle.courses if math.isfinite(chronicle.value(c.at(epoch)))]
    found = [each for name in chronicle.searched for each in columns(name, courses)]
    left_out = {each.name: reason for each in found if (reason := _unfit(each, evaluator))}
    compared = [each for each in found if each.name not in left_out]
    if len(courses) < _FEWEST or not compared:
        raise ReportError(
            f"importance: {len(courses)} trials with a finite {chronicle.metric!r} at epoch {epoch}, and "
            f"{len(compared)} hyper-parameters in which all of them differ; expected at least {_FEWEST} and 1"
        )
    for each in compared:
        if evaluator == "fanova" and not each.numbers and len(each.ticks) > _OPTIONS:
            raise ReportError(
                f"evaluator: 'fanova' would take minutes for {each.name!r} with its many options; take 'ped-anova'"
            )
    shares = _evaluated(chronicle, courses, epoch, compared, evaluator, seed)
    shares = dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
    return Importance(shares, evaluator, len(courses), epoch, left_out)


def _unfit(each: Column, evaluator: str) -> str:
    """Return why a hyper-parameter cannot be compared; nothing if it can."""
    given = [place for place in each.places if not math.isnan(place)]
    if len(set(given)) < 2:
        return CONSTANT
    if evaluator != "ped-anova" and len(given) < len(each.places):  # the only one that can compare such ones
        return PARTIAL
    many = not each.numbers and len(each.ticks) > _OPTIONS and 2 * len(each.ticks) > len(given)
    return CROWDED if many else ""


def _evaluated(
    chronicle: Chronicle, courses: Sequence[Course], epoch: int, found: Sequence[Column], evaluator: str, seed: int
) -> dict[str, float]:
    optuna = _optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls some of its evaluators experimental
            study = optuna.create_study(direction="maximize" if chronicle.maximize else "minimize")
            terms = {each.name: _terms(each) for each in found}
            rows = range(len(courses))
            given = [[name for name in terms if terms[name][1][row] is not None] for row in rows]
            study.add_trials(
                [
                    optuna.trial.create_trial(
                        params={name: terms[name][1][index] for name in names},
                        distributions={name: terms[name][0] for name in names},
                        value=chronicle.value(course.at(epoch)),
                    )
                    for index, (course, names) in enumerate(zip(courses, given, strict=True))
                ]
            )
            judge = _judge(optuna, evaluator, seed)
            return dict(optuna.importance.get_param_importances(study, evaluator=judge, params=list(terms)))
    finally:
        optuna.logging.set_verbosity(before)


def _judge(optuna: Any, evaluator: str, seed: int) -> Any:
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
            "'hoptree[importance]', or take 'ped-anova'"
        ) from error


def _terms(each: Column) -> tuple[BaseDistribution, list[Any]]:
    """Return a hyper-parameter as Optuna knows it, and its values: options are told by their index."""
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
