"""Writes the golden store: a journal that this version has made, for later versions to read.

Run it from the root of the project, with ``python -m tests.golden.write_store REVISION``, when the tables or the
records have changed, and leave the earlier ones as they are: they are what stores of users look like.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from click.testing import CliRunner

import hoptree as ht
from hoptree.core.profile import ProfileEntry
from hoptree.store import Store
from hoptree.ui.cli import cli
from tests.system.plain import Plain, dataset

GOLDEN = Path(__file__).parent
NAME = "golden"
PROFILE = [
    ProfileEntry({"act": "relu", "width": 8, "rate": 0.1}, "single", 1, "a processor", 2.0, 300_000_000, "0.1.0"),
    ProfileEntry({"act": "relu", "width": 8, "rate": 0.1}, "data", 2, "a processor", 1.25, 280_000_000, "0.1.0"),
]  # in stores since revision 0003


def write(folder: Path) -> None:
    """Run a study with trials that share, part, report NaN and are stopped; leave its journal in a folder."""
    with tempfile.TemporaryDirectory() as scratch:
        study(Path(scratch)).run(workers=2, quiet=True)
        source = Path(scratch) / "store" / "journal.sqlite"
        with Store(source.parent) as store, store.lease(NAME) as lease:
            last = store.journal.last(NAME)
            store.profiles.put("trainer", "data", PROFILE)
            store.journal.write_snapshot(NAME, lease.token, last, b"of a version that nobody reads", version=0)
        with closing(sqlite3.connect(source)) as database:
            anonymize(database)
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, folder / "journal.sqlite")
    (folder / "trials.json").write_text(json.dumps(shown(folder), indent=1) + "\n")


def study(folder: Path) -> ht.Study:
    space = {
        "lr": ht.choice(ht.multistep(0.5, at=[2], gamma=0.1), 0.5, 0.25),
        "act": ht.choice("nothing", "nan"),
        "width": ht.integer(1, 2),
    }
    search = ht.SuccessiveHalving(6, max_epochs=4, factor=2)
    data = dataset(folder)
    return ht.Study(NAME, trainer=Plain(4), data=data, space=space, search=search, minimize="loss", seed=3,
                    store=folder / "store")  # fmt: skip


def anonymize(database: sqlite3.Connection) -> None:
    """Take out what tells of the machine that it was written on, and of nothing else."""
    database.execute("UPDATE hoptree_leases SET host = 'host', pid = 1, started = '', place = '', held = 0")
    for name, text in database.execute("SELECT name, spec FROM hoptree_studies").fetchall():
        spec = {**json.loads(text), "program": "", "environments": [], "platform": {}}
        database.execute("UPDATE hoptree_studies SET spec = ? WHERE name = ?", (json.dumps(spec), name))
    database.execute("UPDATE hoptree_origins SET platform = '{}'")
    database.commit()
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.execute("VACUUM")
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def shown(store: Path) -> list[dict[str, Any]]:
    """Return what a user is shown of all trials."""
    done = CliRunner().invoke(cli, ["show", NAME, "--store", str(store), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    names = ("number", "config", "state", "epochs", "metrics")
    return [{name: trial[name] for name in names} for trial in json.loads(done.stdout)["trials"]]


if __name__ == "__main__":
    write(GOLDEN / f"store-{sys.argv[1]}")
