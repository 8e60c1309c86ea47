"""The study: what users define and run; its methods delegate to modules of this folder and of lower layers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final

from hoptree.backends.heartbeats import LIMIT
from hoptree.core.errors import WorkloadError
from hoptree.core.events import Metrics
from hoptree.core.plain_values import plain
from hoptree.core.schedules import Config
from hoptree.core.settings import DEFAULT_POLICY, Order, Settings
from hoptree.driver.request_validation import addition, changed, clone, extension, retry_requests, stop_request
from hoptree.record.error_format import brief_errors
from hoptree.record.record import Record
from hoptree.record.results import Results, Savings
from hoptree.record.spec import StudySpec
from hoptree.search.protocol import Procedure, Search
from hoptree.search.space import Space
from hoptree.search.stable_repr import stable_text
from hoptree.search.widening import SearchVersion, is_wider, searches
from hoptree.store.ledger import parse_size
from hoptree.store.requests import UserRequest
from hoptree.study.arguments import as_procedures, check_arguments, parse_goal
from hoptree.study.definition import read_record, study_spec
from hoptree.study.outcome import study_results
from hoptree.study.verification import Verification, verify

if TYPE_CHECKING:
    from hoptree.backends.choice import Where
    from hoptree.core.policy_choice import PolicyChoice
    from hoptree.data import Dataset
    from hoptree.elastic.instance import Instance
    from hoptree.forecast.forecast import Forecast
    from hoptree.forecast.profile_report import ProfileReport
    from hoptree.forecast.study_plan import StudyPlan
    from hoptree.mirror import Mirror, WandB
    from hoptree.progress.display import Display
    from hoptree.record.disk_usage import DiskUsage
    from hoptree.report.study_timeline import StudyTimeline
    from hoptree.store import Store
    from hoptree.trainers.base import Trainer

__all__ = ["Study", "Verification"]


@final
class Study:
    """One model selection: trainer, dataset, space, search, goal.

    ``store`` is the folder of states and journal. ``journal`` is the URL of a PostgreSQL database that holds the
    journal instead; ``states`` is the folder or URL that holds the states instead, such as s3://BUCKET/PATH.
    States that no study needs are kept while all states of the store take less than ``keep``. With ``save_every``,
    the state after every so many epochs is saved, and kept in the same way. With ``order="free"`` a trial visits
    the partitions of an epoch in any order: workers wait less, but results depend on when workers were free. With
    ``reuse="never"`` this study reuses nothing that another study has trained, and no other study reuses its
    states: for code that does not give the same bits twice.
    """

    def __init__(
        self,
        name: str,
        *,
        trainer: Trainer,
        data: Dataset,
        space: Space,
        search: Procedure | Sequence[Procedure],
        maximize: str | None = None,
        minimize: str | None = None,
        seed: int = 0,
        store: str | Path = ".hoptree",
        journal: str | None = None,
        states: str | None = None,
        order: Order = "strict",
        share: bool = True,
        keep: str | float = "10 GB",
        save_every: int = 0,
        reuse: Literal["always", "never"] = "always",
    ) -> None:
        with brief_errors(Path(store)):
            self.goal = parse_goal(maximize, minimize)
            self.seed = plain(seed)
            self.keep = parse_size(keep)
            check_arguments(name, self.seed, share, save_every, reuse)
        self.name = name
        file = sys._getframe(1).f_code.co_filename  # the file that defines the study
        self._program = str(Path(file).absolute()) if Path(file).is_file() else ""
        self.trainer = trainer
        self.data = data
        self.space = space
        self.search = search
        self._store = Path(store)
        self._journal = journal
        self._states = states
        self.share = share
        self.save_every = save_every
        self.reuse: Literal["always", "never"] = reuse
        self.settings = Settings(
            data.partitions, order, retries=0
        )  # units are pure: an error would be raised again
        with brief_errors(Path(store)):
            self.searches()  # raises if the space cannot be searched, before anything runs
            stable_text(search)  # raises if the search could not be recognised when the study is resumed

    def run(
        self,
        workers: int | None = None,
        *,
        backend: Where = "local",
        memory_per_worker: str | float | None = None,
        replicate_idle: str | float | None = None,
        accept_changes: bool = False,
        same_platform: bool = False,
        unit_limit: float | None = None,
        heartbeat_limit: float = LIMIT,
        time_limit: str | float | None = None,
        deadline: str | float | None = None,
        budget: float | None = None,
        instance: Instance | None = None,
        mirror: str | WandB | None = None,
        quiet: bool = False,
        display: Display | None = None,
        policy: PolicyChoice = DEFAULT_POLICY,
    ) -> Results:
        """Train what is missing, and return the results; a finished study trains nothing.

        ``workers`` defaults to the number of GPUs if the trainer uses them, else to the number of cores over its
        threads. ``backend`` is where to train: "local" (processes of this machine), "ray" (the cluster at
        ``RAY_ADDRESS``, or a new local one), ``ht.Ray(…)``, the name of a backend that an installed package
        registers, or the settings of your own backend. ``memory_per_worker``, such as "2 GB", limits the memory of
        a local worker, and reserves it on Ray; results do not depend on it. With ``replicate_idle``, such as
        "2 GB", an idle Ray node takes copies of partitions, of at most this size, where its workers can then help
        to train (``ht.Torch(shards=…)``); it has no effect on local workers, because they hold all partitions.

        If the search extends the earlier one, only what is new is trained. If code, data, files or platform differ
        from what the store holds under this name, an error is raised, unless ``accept_changes``: then complete
        trials stay as they are, and everything trained from now on starts from the beginning. If workers have
        different processors, a warning is logged; with ``same_platform`` only the most frequent kind trains. After
        ``unit_limit`` seconds a unit counts as hung and its trial fails (by default 20 times its expected longest
        time, and at least 10 minutes). After ``heartbeat_limit`` seconds without a heartbeat a worker counts as
        stopped: its unit goes to another worker, and no trial fails. ``mirror`` is the URL of an Optuna storage,
        or ``ht.WandB(…)``, that is updated while the study runs; see ``mirror``. A terminal or a notebook shows
        the run live, and a log gets a few lines; ``quiet`` shows nothing, and ``display`` shows it elsewhere.

        When ``time_limit`` (such as "30 min", or seconds) is over, running units finish and are saved, the results
        have the best so far, and the next run goes on from there. Towards the end a search starts no new trial
        that could not report in time. With ``instance``, the terms of a node, nodes come and go as ``plan`` says:
        at least cost for a ``deadline``, such as "2 h", or as fast as possible within a ``budget`` in dollars.

        ``policy`` decides which ready unit runs first: "first-come", "longest-path", "random", "breadth-first",
        "most-children", a ``Policy``, or the ``starts`` of a solved schedule (with ``order="free"``). It changes
        when units are trained but not the results, so you may resume a study with another one.
        """
        from hoptree.driver.options import RunOptions
        from hoptree.study.run_studies import drive_studies

        options = RunOptions(
            workers=workers,
            backend=backend,
            memory_per_worker=memory_per_worker,
            replicate_idle=replicate_idle,
            accept_changes=accept_changes,
            same_platform=same_platform,
            unit_limit=unit_limit,
            heartbeat_limit=heartbeat_limit,
            time_limit=time_limit,
            deadline=deadline,
            budget=budget,
            instance=instance,
            mirror=mirror,
            quiet=quiet,
            display=display,
            policy=policy,
        )
        return drive_studies([self], options)[0]

    def explain(
        self, workers: int | None = None, *, accept_changes: bool = False, instance: Instance | None = None
    ) -> Forecast:
        """Return a forecast of what is left to train, and of the time and memory that takes; print it to see all.

        Raise an error where ``run`` would. Times come from what the store has measured with this trainer and data,
        or else from a pilot: workers train some configs for a few seconds, in a temporary store. The same searches
        and the same engine then run in a simulation. After a run, the forecast also compares what was expected with
        what happened. With an ``instance`` it says what the rest costs on nodes with so many workers in all.
        """
        from hoptree.study.explain_studies import StudyExplainer

        return StudyExplainer([self]).explain(workers, accept_changes=accept_changes, instance=instance)

    def plan(
        self,
        *,
        instance: Instance,
        deadline: str | float | None = None,
        budget: float | None = None,
        accept_changes: bool = False,
    ) -> StudyPlan:
        """Return the plan of nodes with which ``run`` would meet a deadline at least cost; print it to see all.

        With a ``budget`` in dollars it is the fastest that costs no more, and without either the cheapest. It is
        compared with the best fixed cluster, over a range of deadlines. Each figure is said to be given, measured
        or assumed. Nothing is provisioned.
        """
        from hoptree.study.plan_studies import StudyPlanner

        return StudyPlanner([self], instance).plan(deadline, budget, accept_changes=accept_changes)

    def profile(
        self, workers: int | None = None, *, again: bool = False, memory_per_worker: str | float | None = None
    ) -> ProfileReport:
        """Measure what a unit takes in each layout, on one worker and on several, and keep it for later runs.

        Workers of this machine train a few batches of each architecture: alone, and with ``ht.Torch(shards=…)`` in
        gangs of 2, 4 … up to ``workers``, until more are not faster. What the store has already is not measured
        ``again``. Nothing of the study is trained or changed; runs then start with the widths that pay. With
        ``memory_per_worker``, as in ``run``, layouts that do not fit are found too.
        """
        from hoptree.driver.options import RunOptions
        from hoptree.study.profile_study import profile_study

        memory = RunOptions(memory_per_worker=memory_per_worker).memory_bytes
        return profile_study(self, workers, again=again, memory=memory)

    def evaluate(
        self, config: Config, epoch: int, workers: int | None = None, *, backend: Where = "local"
    ) -> Metrics:
        """Return the metrics of a config after an epoch.

        Return at once if any study in the store has reported them. Otherwise request a trial in this study. If a
        driver runs the study, it trains the trial and this call waits for the report; the policy decides when,
        which may be late while all workers are busy with longer trials. If none does, this call trains it with
        ``workers``, from the deepest stored state, and asks the searches for nothing; trials that an interrupt has
        left open go on until the report is there.
        """
        from hoptree.study.evaluate_config import evaluate

        return evaluate(self, config, epoch, workers, backend)

    def ledger(self) -> DiskUsage:
        """Return the states on disk that belong to this study; prints as a table.

        For all studies of a store: ``hoptree.record.disk_usage.disk_usage(store)``.
        """
        from hoptree.record.disk_usage import disk_usage

        with self.open_store(create=False) as store:
            return disk_usage(store).of(self.name)

    def results(self) -> Results:
        """Return the results that the store holds of this study, without training anything."""
        with self.open_store(create=False) as store:
            record = self._read_record(store)
            return self.outcome(store, record, Savings.count(record.state, units=0, bytes_hopped=0))

    def mirror(self, where: str | WandB) -> None:
        """Write the trials of this study to an Optuna storage or to Weights & Biases.

        ``where`` is a database URL, such as ``sqlite:///optuna.db``, for optuna-dashboard; or ``ht.WandB(…)``.
        Trials that are there already are updated; the guide says how states and values are translated.
        """
        from hoptree.study.mirroring import write_mirror

        with self.open_store(create=False) as store:
            record = self._read_record(store)
        write_mirror(self, record, where)

    def open_mirror(self, where: str | WandB) -> Mirror:
        """Open the mirror of this study, or create it."""
        from hoptree.study.mirroring import open_mirror

        return open_mirror(self, where)

    def study_timeline(self) -> StudyTimeline:
        """Return the timeline of this study from its journal, from which plots are made."""
        from hoptree.record.load_timeline import load_timeline

        with self.open_store(create=False) as store:
            return load_timeline(store, self.name, self.goal)

    def export(self, kind: str, path: str | Path, **options: Any) -> Path:
        """Write the results of this study to a file for other programs; see ``Results.export``."""
        return self.results().export(kind, path, **options)

    def verify(self, trial: int | None = None) -> list[Verification]:
        """Retrain complete trials (or one), each in a fresh process, and compare fingerprints."""
        return list(self.verifications(trial))

    def verifications(self, trial: int | None = None) -> Iterator[Verification]:
        """Yield what ``verify`` returns, each as soon as it is done."""
        with self.open_store(create=False) as store:
            self.data.check()
            yield from verify(self, store, self._read_record(store), trial)

    def searches(self, versions: Sequence[SearchVersion] = ()) -> list[Search]:
        """Return the searches of this study in their initial state: one for each procedure.

        ``versions`` are those that it was started and continued with, if it was extended since.
        """
        procedures = as_procedures(self.search)
        if not procedures:
            raise WorkloadError("search: none given; expected one or more procedures, such as Grid(epochs=10)")
        return searches(procedures, self.space, self.goal, self.seed, versions)

    def widens(self, versions: Sequence[SearchVersion]) -> bool:
        """Return whether its search is wider than the last version, or the same; raise if it is no extension."""
        return is_wider(as_procedures(self.search), self.space, self.goal, self.seed, versions)

    # --- user requests ----------------------------------------------------------------------------------

    def add(self, config: Config, epochs: int, every: int = 1, *, like: int | None = None) -> None:
        """Train another config: at once if the study runs, else in its next run.

        ``config`` is the whole config or, with ``like``, what differs from the config of that trial. The trial
        reports after every ``every`` epochs, or with 0 only at the end.
        """
        if like is not None:
            self._request(lambda record: addition(changed(record, self.name, like, config), epochs, every))
            return
        request = addition(config, epochs, every)
        with self.open_store() as store:  # trials can be added before the first run
            store.requests.make(self.name, request)

    def clone(self, trial: int, at: int, config: Config, epochs: int, every: int = 1) -> None:
        """Train a new trial that follows another one up to the epoch ``at``, and changed values from there on.

        ``config`` has the changed values; the others are those that the trial ended with.
        """
        self._request(lambda record: clone(record, self.name, trial, at, config, epochs, every))

    def extend(self, trial: int, epochs: int) -> None:
        """Train a trial up to a later epoch."""
        self._request(lambda record: extension(record, self.name, trial, epochs))

    def stop(self, trial: int) -> None:
        """Stop a running trial; a trial that completes before the driver reads this stays complete."""
        self._request(lambda record: stop_request(record, self.name, trial))

    def interrupt(self) -> None:
        """Stop the run of this study, in this process or in another, within seconds, as Ctrl-C would.

        Running units finish and are saved, and the next run resumes the study. Raise an error if nobody runs it.
        """
        with self.open_store(create=False) as store:
            store.ask_to_stop(self.name)

    def retry(self, trial: int | None = None) -> None:
        """Train all failed trials (or one) again: at once if the study runs, else in its next run.

        Each resumes from the deepest stored state, and is trained up to its last requested epoch. A run with
        changed code or data and ``accept_changes`` retries all failed trials by itself.
        """
        with self.open_store(create=False) as store:
            store.requests.make(self.name, *retry_requests(self._read_record(store), self.name, trial))

    def _request(self, make: Callable[[Record], UserRequest]) -> None:
        with self.open_store(create=False) as store:
            store.requests.make(self.name, make(self._read_record(store)))

    @property
    def store(self) -> Path:
        """The folder of the study's states and journal."""
        return self._store.absolute()

    def keep_in(self, store: str | Path, journal: str | None = None) -> None:
        """Use another store than the one that the program names."""
        self._store, self._journal, self._states = Path(store), journal, None

    def __repr__(self) -> str:
        direction = "maximize" if self.goal.maximize else "minimize"
        return f"study {self.name!r}: {direction} {self.goal.metric}, {self.search!r}, in {self.store}"

    def _repr_html_(self) -> str:
        """Return the study's definition and results as HTML for a notebook."""
        from hoptree.study.html import study_html

        return study_html(self)

    # --- store and definition ----------------------------------------------------------------------------

    def open_store(self, create: bool = True) -> Store:
        """Open the store of this study."""
        from hoptree.store import Store

        return Store(self._store, create, journal_url=self._journal, states=self._states)

    def _read_record(self, store: Store) -> Record:
        return read_record(self, store)

    def outcome(self, store: Store, record: Record, savings: Savings) -> Results:
        """Return the results of this study from a record."""
        return study_results(self, store, record, savings)

    @property
    def spec(self) -> StudySpec:
        """The definition of the study, as stored in the catalog."""
        return study_spec(self, self._program)
