"""How much each hyper-parameter matters, by Optuna's evaluators: the trials become a study in its memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from hoptree.core.errors import MissingExtraError
from hoptree.report.chronicle import Chronicle, Course
from hoptree.report.columns import column
from hoptree.report.timeline import ReportError

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

EVALUATORS = ("ped-anova", "fanova", "mean-decrease")
_FEWEST = 4
_OPTIONS = 12  # of a hyper-parameter, up to which fANOVA takes seconds


class Importance(msgspec.Struct, frozen=True):
    """Shares of the hyper-parameters, which add up to 1, the largest first; and what they were computed from.

    ``left_out`` are hyper-parameters that only some trials have: their share cannot be compared.
    """

    shares: dict[str, float]
    evaluator: str
    trials: int
    epoch: int
    left_out: tuple[str, ...]


def importance(chronicle: Chronicle, evaluator: str = "ped-anova", seed: int = 0) -> Importance:
    """Compare trials at the largest epoch that at least half of them have reported: equal work for all."""
    if evaluator not in EVALUATORS:
        raise ReportError(f"evaluator: {evaluator!r}; expected one of {', '.join(EVALUATORS)}")
    chronicle.with_reports("importance")
    epoch = chronicle.common_epoch
    courses = [c for c in chronicle.courses if math.isfinite(chronicle.value(c.at(epoch)))]
    searched = chronicle.searched
    conditional = evaluator == "ped-anova"  # the only one that can compare what not all trials have
    everywhere = [n for n in searched if conditional or all(n in course.config for course in courses)]
    everywhere = [n for n in everywhere if len({repr(c.config[n]) for c in courses if n in c.config}) > 1]
    if len(courses) < _FEWEST or not everywhere:
        raise ReportError(
            f"importance: {len(courses)} trials with a finite {chronicle.metric!r} at epoch {epoch}, and "
            f"{len(everywhere)} hyper-parameters in which all of them differ; expected at least {_FEWEST} and 1"
        )
    crowded = [name for name in everywhere if len(column(name, courses).ticks) > _OPTIONS]
    if evaluator == "fanova" and any(column(name, courses).kind == "options" for name in crowded):
        raise ReportError(
            f"evaluator: 'fanova' would take minutes for {crowded[0]!r} with its many options; take 'ped-anova'"
        )
    found = _evaluated(chronicle, courses, epoch, everywhere, evaluator, seed)
    shares = dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))
    return Importance(shares, evaluator, len(courses), epoch, tuple(n for n in searched if n not in everywhere))


def _evaluated(
    chronicle: Chronicle, courses: Sequence[Course], epoch: int, names: Sequence[str], evaluator: str, seed: int
) -> dict[str, float]:
    optuna = _optuna()
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls some of its evaluators experimental
            study = optuna.create_study(direction="maximize" if chronicle.maximize else "minimize")
            terms = {name: _terms(name, [c for c in courses if name in c.config]) for name in names}
            study.add_trials(
                [
                    optuna.trial.create_trial(
                        params={name: terms[name][1][course.number] for name in names if name in course.config},
                        distributions={name: terms[name][0] for name in names if name in course.config},
                        value=chronicle.value(course.at(epoch)),
                    )
                    for course in courses
                ]
            )
            judge = _judge(optuna, evaluator, seed)
            return dict(optuna.importance.get_param_importances(study, evaluator=judge, params=list(names)))
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
            f"evaluator: {evaluator!r} needs scikit-learn, which is not installed; pip install scikit-learn, or "
            "take 'ped-anova'"
        ) from error


def _terms(name: str, courses: Sequence[Course]) -> tuple[BaseDistribution, dict[int, Any]]:
    """Return a hyper-parameter as Optuna knows it, and its values by trial: options are told by their index."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    each = column(name, courses)
    values: list[Any] = [course.config[name] for course in courses]
    numbers = [course.number for course in courses]
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        options = CategoricalDistribution(list(range(len(each.ticks))))
        return options, dict(zip(numbers, map(int, each.places), strict=True))
    low, high, log = min(values), max(values), each.kind == "log"
    if all(isinstance(value, int) for value in values):
        return IntDistribution(low, high, log=log), dict(zip(numbers, values, strict=True))
    return FloatDistribution(float(low), float(high), log=log), dict(zip(numbers, map(float, values), strict=True))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError(
            "optuna is not installed; the importance of hyper-parameters needs it: pip install 'hoptree[optuna]'"
        ) from error
    return optuna
