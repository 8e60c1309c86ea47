"""The tables of a store's database. Imported when a database is opened, because SQLAlchemy is slow to import.

A change here needs a new revision in ``migrations/versions``: a test compares both.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    bindparam,
    select,
)

METADATA = MetaData()

# Alembic's own table, as Alembic would create it: which revision the tables have.
REVISION = Table(
    "hoptree_revision",
    METADATA,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="hoptree_revision_pkc"),
)

STORE = Table("hoptree_store", METADATA, Column("states", Text, nullable=False))

STUDIES = Table(
    "hoptree_studies",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("created", Double, nullable=False),
    Column("format", Integer, nullable=False),
    Column("spec", Text, nullable=False),
    Column("status", Text, nullable=False),
)

# The journal. A checksum covers its entry and the checksum of the entry before.
ENTRIES = Table(
    "hoptree_entries",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("token", BigInteger, nullable=False),  # of the lease with which it was written
    Column("now", Double, nullable=False),
    Column("version", Integer, nullable=False),  # of the record
    Column("record", LargeBinary, nullable=False),  # bytes: a server's text encoding must not matter
    Column("checksum", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# What a journal comes to up to an entry, so that opening it costs only what came after.
SNAPSHOTS = Table(
    "hoptree_snapshots",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("checksum", LargeBinary, nullable=False),  # over the data and the checksum of the entry it stands at
)

# A row stays when its lease is released, so that tokens only ever grow.
LEASES = Table(
    "hoptree_leases",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("held", Boolean, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", BigInteger, nullable=False),
    Column("started", Text, nullable=False),
    Column("place", Text, nullable=False),
    Column("since", Double, nullable=False),
    Column("heartbeat", Double, nullable=False),
    Column("stop_asked", Boolean, nullable=False),  # somebody asked its holder to stop
)

# What states that are no longer there have reported: any study that asks again is told.
REPORTS = Table(
    "hoptree_reports", METADATA, Column("key", Text, primary_key=True), Column("metrics", Text, nullable=False)
)
# Which studies have made or used a report.
REPORT_HOLDS = Table(
    "hoptree_report_holds",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("study", Text, primary_key=True, index=True),
)

# What users ask of a study; whoever drives it takes it up.
WISHES = Table(
    "hoptree_wishes",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("study", Text, nullable=False),
    Column("wish", Text, nullable=False),
)

# The ledger: what the states on disk have cost and how often they served, and which studies need them.
STATES = Table(
    "hoptree_states",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("study", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("made", Double, nullable=False),
    Column("used", Double, nullable=False),
    Column("uses", BigInteger, nullable=False),
)
HOLDS = Table(
    "hoptree_holds",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("study", Text, primary_key=True, index=True),
)

# What held when the states under a variant were trained: on which platform, with which files, and what probes gave.
# ``study`` has it for itself, "" if all studies share it.
ORIGINS = Table(
    "hoptree_origins",
    METADATA,
    Column("variant", Text, primary_key=True),
    Column("root", Text, nullable=False, index=True),
    Column("platform", Text, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("study", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("observations", Text, nullable=False),
    Column("probes", Text, nullable=False),
)

# What drivers train at this moment, so that no other one begins it too; and what they wait for. A row counts while
# the lease with its token is held.
CLAIMS = Table(
    "hoptree_claims",
    METADATA,
    Column("lineage", Text, primary_key=True),
    Column("study", Text, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("first", BigInteger, nullable=False),
    Column("until", BigInteger, nullable=False),
)
WANTS = Table(
    "hoptree_wants",
    METADATA,
    Column("lineage", Text, primary_key=True),
    Column("study", Text, primary_key=True),
    Column("token", BigInteger, nullable=False),
    Column("units", Text, nullable=False),
    Column("waits", Boolean, nullable=False),
)

# A claim is made before every stage, or every epoch: building a statement takes longer than running it.
LIVE = select(LEASES).where(LEASES.c.held)
CLAIMED_BY_OTHERS = select(CLAIMS).where(CLAIMS.c.lineage == bindparam("of"), CLAIMS.c.study != bindparam("by"))
WANTED_BY_OTHERS = select(WANTS).where(WANTS.c.lineage == bindparam("of"), WANTS.c.study != bindparam("by"))
