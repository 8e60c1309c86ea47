"""Optuna's samplers by name: their requirements, how to create them, and how to silence their log."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hoptree.core.errors import MissingExtraError, WorkloadError

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler


class Method(NamedTuple):
    """One of Optuna's samplers."""

    kind: str
    needs: tuple[str, ...]
    startup: int  # number of random configs before the sampler starts, as in Optuna
    defaults: Mapping[str, Any]


METHODS = {
    "tpe": Method("TPESampler", ("optuna",), 10, {}),
    "cma-es": Method(
        "CmaEsSampler", ("optuna", "cmaes"), 1, {"consider_pruned_trials": True, "warn_independent_sampling": False}
    ),
    "gp": Method("GPSampler", ("optuna", "scipy", "torch"), 10, {"warn_independent_sampling": False}),
    "random": Method("", (), 2**63, {}),
}


def check(method: str, options: Mapping[str, Any]) -> None:
    """Raise an error for an unknown method, an option that it does not take, or a missing package."""
    if not isinstance(method, str) or method not in METHODS:
        raise WorkloadError(f"method: {method!r}; expected one of {', '.join(METHODS)}")
    if method == "random" and options:
        raise WorkloadError(f"Optuna('random'): options {sorted(options)}; it takes none")
    if "seed" in options:
        raise WorkloadError(f"Optuna({method!r}): the option seed; the seed is the study's, leave it out")
    for package in METHODS[method].needs:
        if find_spec(package) is None:
            extra = "optuna,torch" if package == "torch" else "optuna"
            raise MissingExtraError(
                f"Optuna({method!r}): needs {package}, which is not installed; pip install 'hoptree[{extra}]'"
            )
    if method != "random":
        make(method, options, 0)


def make(method: str, options: Mapping[str, Any], seed: int) -> BaseSampler:
    """Return a new Optuna sampler; options override our defaults."""
    from optuna import samplers

    kind, _, startup, defaults = METHODS[method]
    given = {"n_startup_trials": startup, **defaults, **options, "seed": seed % 2**32}
    try:
        with quiet():
            return cast("BaseSampler", getattr(samplers, kind)(**given))
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"Optuna({method!r}): the sampler rejected {dict(options)}: {error}") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna's log, and its warnings about experimental features that we chose to use."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(before)
