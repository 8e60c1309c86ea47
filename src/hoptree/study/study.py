"""The study: the composition root that turns typed settings into objects and lets them run."""

from __future__ import annotations

import logging
import math
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast, final

import msgspec

from hoptree.backends.heartbeats import LIMIT
from hoptree.core.errors import StudyChangedError, WorkloadError
from hoptree.core.events import Metrics
from hoptree.core.keys import identity, study_root
from hoptree.core.lineage import beginning
from hoptree.core.plain_values import plain
from hoptree.core.plan import Trial
from hoptree.core.schedules import Config
from hoptree.core.settings import DEFAULT_POLICY, Order, Settings
from hoptree.driver.request_validation import addition, changed, clone, extension, giving_up, retrials
from hoptree.record.environment import environment
from hoptree.record.error_format import in_one_look
from hoptree.record.record import Record
from hoptree.record.results import Results, Savings, TrialResult
from hoptree.record.retrain import Retrainer
from hoptree.record.spec import StudySpec, first_version
from hoptree.report.traffic import Traffic
from hoptree.search.protocol import Goal, Procedure, Search
from hoptree.search.space import Space, describe
from hoptree.search.stable_repr import lasting_text
from hoptree.search.widening import SearchVersion, is_wider, searches
from hoptree.store.ledger import parse_size
from hoptree.store.requests import UserRequest

if TYPE_CHECKING:
    from hoptree.backends.choice import Where
    from hoptree.core.policy_choice import PolicyChoice
    from hoptree.data import Dataset
    from hoptree.forecast.forecast import Forecast
    from hoptree.mirror import Mirror, WandB
    from hoptree.progress.display import Display
    from hoptree.record.disk_usage import DiskUsage
    from hoptree.report.study_timeline import StudyTimeline
    from hoptree.store import Store
    from hoptree.trainers.base import Trainer

log = logging.getLogger("hoptree")


class Verification(msgspec.Struct, frozen=True):
    """A trial trained again in a fresh process: its fingerprint then ("": its state is gone or damaged) and now."""

    trial: int
    stored: str
    trained: str

    @property
    def holds(self) -> bool:
        """Whether the same bits came out."""
        return self.stored == self.trained


@final
class Study:
    """One model-selection job: trainer, dataset, space, search, goal.

    ``store`` is the folder of states and journal; ``journal`` the URL of a PostgreSQL database that holds the
    journal instead; ``states`` the folder or URL where the states are instead, such as s3://BUCKET/PATH. States
    that no study needs are kept while the store's states take less than ``keep``. With ``save_every`` the states
    after every so many epochs are saved, and are kept in the same way. With ``order="free"`` a trial visits the
    partitions of an epoch in any order: workers wait less, and what comes out depends on when they were free.
    With ``reuse="never"`` nothing that another study has trained is taken, and no other study takes what this one
    trains: for code that does not give the same bits twice.
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
        with in_one_look(Path(store)):
            self.goal = _goal(maximize, minimize)
            self.seed = plain(seed)
            self.keep = parse_size(keep)
            _refuse(name, self.seed, share, save_every, reuse)
        self.name = name
        file = sys._getframe(1).f_code.co_filename  # of whoever defines the study
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
        self.settings = Settings(data.partitions, order, retries=0)  # units are pure: what raised raises again
        with in_one_look(Path(store)):
            self.searches()  # refuses what cannot be searched, before anything runs
            lasting_text(search)  # and what could not be recognised when the study goes on

    def run(
        self,
        workers: int | None = None,
        *,
        backend: Where = "local",
        accept_changes: bool = False,
        same_platform: bool = False,
        unit_limit: float | None = None,
        heartbeat_limit: float = LIMIT,
        mirror: str | WandB | None = None,
        quiet: bool = False,
        display: Display | None = None,
        policy: PolicyChoice = DEFAULT_POLICY,
    ) -> Results:
        """Train what is missing, and return what was found; a finished study trains nothing.

        ``workers`` defaults to cores over the trainer's threads. ``backend`` says where: "local" (processes of
        this machine), "ray" (the cluster at ``RAY_ADDRESS``, or one that is started), ``ht.Ray(…)``, the name
        of a backend that an installed package registers, or the settings of a backend of your own.

        A search that is an extension of the one before goes on with what is new. Code, data, files or a platform
        that differ from what the store holds under this name are refused, unless ``accept_changes``: then trials
        that are complete stay as they are, and all that is trained from now on is trained from the beginning.
        Workers on unlike processors are told of; with ``same_platform`` only the most frequent kind trains.
        ``unit_limit`` are the seconds after which a unit is taken for hung and its trial fails (by default
        20 times what it may well take, and 10 minutes). ``heartbeat_limit`` are the seconds without a sign of life
        after which a worker is taken for stopped: its unit goes to another one, and no trial fails. ``mirror`` is
        the URL of an
        Optuna storage, or ``ht.WandB(…)``, that follows the study while it runs; see ``mirror``. A terminal or a
        notebook shows the run live, a log gets a few lines; ``quiet`` shows nothing, and ``display`` is where else
        to show it.

        ``policy`` says which ready unit goes first: "first-come", "longest-path", "random", "breadth-first",
        "most-children", a ``Policy``, or the ``starts`` of a solved schedule (with ``order="free"``). It changes
        when units are trained and not what comes out, so a study may go on with another one.
        """
        from hoptree.driver.options import RunOptions
        from hoptree.study.run_studies import drive_studies

        options = RunOptions(
            workers=workers,
            backend=backend,
            accept_changes=accept_changes,
            same_platform=same_platform,
            unit_limit=unit_limit,
            heartbeat_limit=heartbeat_limit,
            mirror=mirror,
            quiet=quiet,
            display=display,
            policy=policy,
        )
        return drive_studies([self], options)[0]

    def explain(self, workers: int | None = None, *, accept_changes: bool = False) -> Forecast:
        """Return what is left to train and what that takes, before it is spent; print it to see all of it.

        What ``run`` would refuse is refused here too.

        Times come from what the store has measured with this trainer and data, or else from a few batches of some
        configs, trained in this process; the same searches and the same engine then run in a simulation. After a
        run the forecast tells also what was to be expected of all of it, and what happened.
        """
        from hoptree.study.run_studies import Explanation

        return Explanation([self]).explain(workers, accept_changes=accept_changes)

    def evaluate(
        self, config: Config, epoch: int, workers: int | None = None, *, backend: Where = "local"
    ) -> Metrics:
        """Return the metrics of a config after an epoch.

        At once if any study on the store has got there. Else it is wished for, as a trial of this study: whoever
        drives the study takes it up, and this call waits for the report; if nobody does, this call trains it,
        from the deepest state that is stored, with ``workers``, and asks nothing of the searches. Trials that an
        interrupt has left open go on meanwhile, until the report is there. In a study that is driven elsewhere it
        gets its turn by the policy, which is late while all workers are busy with longer trials.
        """
        from hoptree.study.evaluate_config import evaluate

        return evaluate(self, config, epoch, workers, backend)

    def ledger(self) -> DiskUsage:
        """Return what the disk holds of this study and why; it prints as a table.

        Of all studies on a store: ``hoptree.holdings.holdings(store)``.
        """
        from hoptree.record.disk_usage import holdings

        with self.open_store(create=False) as store:
            return holdings(store).of(self.name)

    def results(self) -> Results:
        """Return what the store holds of this study, without training anything."""
        with self.open_store(create=False) as store:
            record = self._recorded(store)
            return self.outcome(store, record, Savings.count(record.state, units=0, bytes_hopped=0))

    def mirror(self, where: str | WandB) -> None:
        """Write what the store holds of this study to an Optuna storage, or to Weights & Biases.

        ``where`` is a database's URL, as ``sqlite:///optuna.db``, for optuna-dashboard; or ``ht.WandB(…)``.
        What is there already is brought up to date; see the guide for what becomes of states and values.
        """
        from hoptree.mirror import shown_trials, timed

        with self.open_store(create=False) as store:
            trials = timed(shown_trials(self._recorded(store), self.name), self.chronicle())
        with closing(self.open_mirror(where)) as mirror:
            mirror.show(trials)

    def open_mirror(self, where: str | WandB) -> Mirror:
        """Open, or begin, the mirror of this study."""
        from hoptree.mirror import OptunaMirror, WandB, WandbMirror

        first = msgspec.to_builtins(self._first_version())
        known_by = identity("mirror", first, (self.goal.metric, self.goal.maximize), self.seed)
        if isinstance(where, WandB):
            return WandbMirror(where, self.name, known_by)
        return OptunaMirror(where, self.name, known_by, self.space, self.goal)

    def _first_version(self) -> SearchVersion:
        """Return what was searched at first: a study that was widened is still the same one."""
        from hoptree.store import StoreMissingError

        present = SearchVersion.of(self._procedures(), self.space)
        try:
            with self.open_store(create=False) as store:
                return first_version(store, self.name) or present
        except StoreMissingError:
            return present

    def chronicle(self) -> StudyTimeline:
        """Return what happened in this study and when, as its journal tells it: what plots are drawn from."""
        from hoptree.record.load_timeline import tell

        with self.open_store(create=False) as store:
            return tell(store, self.name, self.goal)

    def export(self, kind: str, path: str | Path, **options: Any) -> Path:
        """Write what the store holds of this study for other programs; see ``Results.export``."""
        return self.results().export(kind, path, **options)

    def verify(self, trial: int | None = None) -> list[Verification]:
        """Train complete trials (or one) again, each alone in a fresh process, and compare fingerprints."""
        return list(self.verifications(trial))

    def verifications(self, trial: int | None = None) -> Iterator[Verification]:
        """Yield what ``verify`` returns, as it comes."""
        from hoptree.record.fresh_processes import train_in_fresh_processes
        from hoptree.store import StateDamagedError, StateMissingError, fingerprint

        with self.open_store(create=False) as store:
            self.data.check()
            record = self._recorded(store)
            own = dict(enumerate(each for each in record.trials if each.study == self.name))
            if trial is not None:
                known = own.get(trial)
                if known is None or known.ending != "complete":
                    state = "not known" if known is None else known.ending or "running"
                    raise WorkloadError(f"trial {trial} of {self.name!r}: it is {state}; expected a complete one")
            chosen = {n: each for n, each in own.items() if each.ending == "complete" and trial in (None, n)}
            soloist = self._soloist(record)
            others = [number for number, each in chosen.items() if not soloist.has_trained(each)]
            if others and len(others) == len(chosen):
                raise StudyChangedError(
                    f"study {self.name!r}: trials {others} were trained by other code, on other data or with "
                    "another seed than this program has; put back what trained them: verify trains them again"
                )
            if others:
                log.warning("trials %s were trained before code or data changed: not verified", others)
            chosen = {number: each for number, each in chosen.items() if number not in others}
            for number, result in train_in_fresh_processes(soloist, chosen):
                place = record.place(chosen[number])
                assert place is not None
                try:
                    stored = fingerprint(store.states.get(place.node.state_key(place.unit))[0])
                except (StateMissingError, StateDamagedError):
                    stored = ""
                yield Verification(number, stored, result.fingerprint)

    def searches(self, versions: Sequence[SearchVersion] = ()) -> list[Search]:
        """Return the searches of this study, at their beginning: one for each procedure.

        ``versions`` are those that it was begun and went on with, if it was widened since.
        """
        procedures = self._procedures()
        if not procedures:
            raise WorkloadError("search: none given; expected a procedure such as Grid(epochs=10), or several")
        return searches(procedures, self.space, self.goal, self.seed, versions)

    def widens(self, versions: Sequence[SearchVersion]) -> bool:
        """Return whether its search is wider than the last of some versions, or the same; refuse another one."""
        return is_wider(self._procedures(), self.space, self.goal, self.seed, versions)

    def _procedures(self) -> list[Procedure]:
        return list(self.search) if isinstance(self.search, list | tuple) else [cast("Procedure", self.search)]

    # --- changing one's mind ----------------------------------------------------------------------------

    def add(self, config: Config, epochs: int, every: int = 1, *, like: int | None = None) -> None:
        """Have another config trained: at once if the study runs, else when it runs again.

        ``config`` is the whole of it, or, with ``like``, what differs from the config of that trial. Reports are
        due after ``every`` so many epochs, or with 0 at the end only.
        """
        if like is not None:
            self._wish(lambda record: addition(changed(record, self.name, like, config), epochs, every))
            return
        wish = addition(config, epochs, every)
        with self.open_store() as store:  # a study can be added to before it has run
            store.wishes.make(self.name, wish)

    def clone(self, trial: int, at: int, config: Config, epochs: int, every: int = 1) -> None:
        """Have a new trial follow another one up to the epoch ``at``, and train with changed values from there on.

        ``config`` is what changes; the other values are those that the trial ended with.
        """
        self._wish(lambda record: clone(record, self.name, trial, at, config, epochs, every))

    def extend(self, trial: int, epochs: int) -> None:
        """Have a trial trained up to an epoch that it was not granted before."""
        self._wish(lambda record: extension(record, self.name, trial, epochs))

    def stop(self, trial: int) -> None:
        """Have a running trial given up; if it is complete before that is heard, it stays complete."""
        self._wish(lambda record: giving_up(record, self.name, trial))

    def interrupt(self) -> None:
        """Have whoever runs the study stop, in this process or in another: as Ctrl-C would, within seconds.

        What runs ends and is saved, and the study goes on when it is run again. It is an error if nobody runs it.
        """
        with self.open_store(create=False) as store:
            store.ask_to_stop(self.name)

    def retry(self, trial: int | None = None) -> None:
        """Have all failed trials (or one) trained again: at once if the study runs, else when it runs again.

        Each goes on from the deepest state that is stored, up to the epoch that it was granted. A run whose code or
        data have changed, with ``accept_changes``, retries by itself what failed before.
        """
        with self.open_store(create=False) as store:
            store.wishes.make(self.name, *retrials(self._recorded(store), self.name, trial))

    def _wish(self, make: Callable[[Record], UserRequest]) -> None:
        with self.open_store(create=False) as store:
            store.wishes.make(self.name, make(self._recorded(store)))

    @property
    def store(self) -> Path:
        """The folder in which it keeps its states."""
        return self._store.absolute()

    def keep_in(self, store: str | Path, journal: str | None = None) -> None:
        """Use another store than the one that the program names."""
        self._store, self._journal, self._states = Path(store), journal, None

    def __repr__(self) -> str:
        direction = "maximize" if self.goal.maximize else "minimize"
        return f"study {self.name!r}: {direction} {self.goal.metric}, {self.search!r}, in {self.store}"

    def _repr_html_(self) -> str:
        """Return it as a notebook shows it: what it is made of, and what the store holds of it."""
        from hoptree.report.html import html_facts
        from hoptree.store import StoreMissingError, StudyMissingError

        space = describe(self.space)
        facts: dict[str, object] = {
            "goal": f"{'maximize' if self.goal.maximize else 'minimize'} {self.goal.metric}",
            "space": "\n".join(f"{name}: {values}" for name, values in space["names"]),
            "search": repr(self.search),
            "data": f"{self.data.rows:,} rows in {self.data.partitions} partitions",
            "store": str(self.store),
        }
        try:
            return html_facts(f"study {self.name}", facts) + self.results()._repr_html_()
        except (StoreMissingError, StudyMissingError):
            return html_facts(f"study {self.name}", {**facts, "trials": "none yet; run it"})

    # --- what the store knows ---------------------------------------------------------------------------

    def open_store(self, create: bool = True) -> Store:
        """Open the store that it keeps everything in."""
        from hoptree.store import Store

        return Store(self._store, create, journal_url=self._journal, states=self._states)

    def _recorded(self, store: Store) -> Record:
        """Return what the store knows of this study: from its own journal, or of a group it was run with."""
        from hoptree.record.load_timeline import find
        from hoptree.record.opening import open_record
        from hoptree.store import StudyMissingError

        try:
            return open_record(store, find(store, self.name))
        except StudyMissingError:
            raise StudyMissingError(f"{self.name}: nothing of it is in {self._store}; run it first") from None

    def outcome(self, store: Store, record: Record, savings: Savings) -> Results:
        """Return what a record tells of this study."""
        soloist = self._soloist(record)
        own = [trial for trial in record.trials if trial.study == self.name]
        trials = [TrialResult(number, trial, record, store.states, soloist) for number, trial in enumerate(own)]
        return Results(trials, self.goal, savings, self._traffic(record.trials, savings), self.chronicle)

    def _traffic(self, trials: Sequence[Trial], savings: Savings) -> Traffic | None:
        """Count for all that was trained together, as the savings do."""
        if not savings.state_bytes:
            return None
        from hoptree.trainers.hyper_parameters import BATCH_SIZE

        configs = [dict(trial.history[-1].config) for trial in trials]
        given = [beginning(config).get("batch_size", BATCH_SIZE) for config in configs]
        sizes = [value for value in given if isinstance(value, int | float) and value >= 1] or [BATCH_SIZE]
        rows = self.data.rows / self.data.partitions
        return Traffic.count(
            savings.bytes_hopped,
            epochs=savings.epochs_trained,
            models=len(trials),
            partitions=self.data.partitions,
            state=savings.state_bytes,
            data=sum(file.bytes for file in self.data.manifest.train),
            batches=statistics.mean(math.ceil(rows / size) for size in sizes),
        )

    def _soloist(self, record: Record) -> Retrainer:
        return Retrainer(record, self.trainer, self.data, self.seed)

    @property
    def spec(self) -> StudySpec:
        """What the study is made of, as the catalog keeps it."""
        trainer = self.trainer.fingerprint  # asked for once: it looks at all of the user's code
        return StudySpec(
            trainer=trainer,
            data=self.data.fingerprint,
            space=describe(self.space),
            search=lasting_text(self.search),
            goal=self.goal,
            seed=self.seed,
            share=self.share,
            settings=self.settings,
            root=study_root(trainer, self.data.fingerprint, self.seed),
            program=self._program,
            environments=[
                {**environment(), **self.trainer.fingerprint_parts, "threads": str(self.trainer.threads)}
            ],
            versions={self.name: [SearchVersion.of(self._procedures(), self.space)]},
            reuse=self.reuse,
        )


def _goal(maximize: object, minimize: object) -> Goal:
    if (maximize is None) == (minimize is None):
        raise WorkloadError(
            f"maximize={maximize!r}, minimize={minimize!r}; expected exactly one: a direction is never guessed"
        )
    metric = maximize if minimize is None else minimize
    if not isinstance(metric, str) or not metric:
        raise WorkloadError(f"maximize or minimize: {metric!r}; expected a metric's name, such as 'accuracy'")
    return Goal(metric, maximize is not None)


def _refuse(name: object, seed: object, share: object, save_every: object, reuse: object) -> None:
    if not isinstance(name, str) or not name or "/" in name:
        raise WorkloadError(f"name: {name!r}; expected a non-empty name without '/'")
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise WorkloadError(f"seed: {seed!r}; expected a whole number: the same one gives the same bits")
    if not isinstance(share, bool):
        raise WorkloadError(f"share: {share!r}; expected True or False")
    if reuse not in ("always", "never"):
        raise WorkloadError(f"reuse: {reuse!r}; expected 'always' (what fits) or 'never'")
    if isinstance(save_every, bool) or not isinstance(save_every, int) or save_every < 0:
        raise WorkloadError(
            f"save_every: {save_every!r}; expected a number of epochs, or 0: only when much would be lost"
        )
