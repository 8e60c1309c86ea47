"""The definition of a study as the catalog stores it, and the record that belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hoptree.core.keys import study_root
from hoptree.record.environment import environment
from hoptree.record.record import Record
from hoptree.record.spec import StudySpec
from hoptree.search.space import describe
from hoptree.search.stable_repr import stable_text
from hoptree.search.widening import SearchVersion
from hoptree.study.arguments import as_procedures

if TYPE_CHECKING:
    from hoptree.store import Store
    from hoptree.study.study import Study


def study_spec(study: Study, program: str) -> StudySpec:
    """Return the definition of a study; ``program`` is the file that defines it."""
    trainer = study.trainer.fingerprint  # once: it reads all of the user's code
    return StudySpec(
        trainer=trainer,
        data=study.data.fingerprint,
        space=describe(study.space),
        search=stable_text(study.search),
        goal=study.goal,
        seed=study.seed,
        share=study.share,
        settings=study.settings,
        root=study_root(trainer, study.data.fingerprint, study.seed),
        program=program,
        environments=[{**environment(), **study.trainer.fingerprint_parts, "threads": str(study.trainer.threads)}],
        versions={study.name: [SearchVersion.of(as_procedures(study.search), study.space)]},
        reuse=study.reuse,
    )


def read_record(study: Study, store: Store) -> Record:
    """Return the record of a study: from its own journal, or from that of a group it was run with."""
    from hoptree.record.load_timeline import find_recorded_study
    from hoptree.record.opening import open_record
    from hoptree.store import StudyMissingError

    try:
        return open_record(store, find_recorded_study(store, study.name))
    except StudyMissingError:
        raise StudyMissingError(f"{study.name}: the store {store.folder} has nothing of it; run it first") from None
