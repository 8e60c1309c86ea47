"""The tables of a store's database. Import this lazily, because SQLAlchemy is slow to import.

A change here needs a new revision in ``migrations/versions``: a test compares them.
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

# The journal. A checksum covers its entry and the checksum of the previous entry.
ENTRIES = Table(
    "hoptree_entries",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("token", BigInteger, nullable=False),  # of the lease of the driver that wrote it
    Column("now", Double, nullable=False),
    Column("version", Integer, nullable=False),  # of the record
    Column("record", LargeBinary, nullable=False),  # bytes: independent of the server's text encoding
    Column("checksum", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

# The state after an entry of a journal, so that opening a study reads only the later entries.
SNAPSHOTS = Table(
    "hoptree_snapshots",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("data", LargeBinary, nullable=False),
    Column("checksum", LargeBinary, nullable=False),  # over the data and the checksum of its entry
)

# A row stays when its lease is released, so that tokens only grow.
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
    Column("stop_asked", Boolean, nullable=False),  # its holder was asked to stop
)

# The metrics of states, also of removed ones, for every study that needs them.
REPORTS = Table(
    "hoptree_reports", METADATA, Column("key", Text, primary_key=True), Column("metrics", Text, nullable=False)
)
# Which studies made or used a report.
REPORT_HOLDS = Table(
    "hoptree_report_holds",
    METADATA,
    Column("key", Text, primary_key=True),
    Column("study", Text, primary_key=True, index=True),
)

# Requests of users, which the driver of the study handles. The names of table and column are on disk.
REQUESTS = Table(
    "hoptree_wishes",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("study", Text, nullable=False),
    Column("wish", Text, nullable=False),
)

# The ledger: what the states on disk cost, how often they were used, and which studies need them.
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

# The conditions under which a variant's states were trained: platform, observed files, and probe hashes.
# ``study`` is the only study that uses it, "" if all studies share it.
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

# What units take in time and memory. ``architecture`` are the values that it depends on, as JSON; ``trainer`` and
# ``data`` are fingerprints.
PROFILES = Table(
    "hoptree_profiles",
    METADATA,
    Column("trainer", Text, primary_key=True),
    Column("data", Text, primary_key=True),
    Column("architecture", Text, primary_key=True),
    Column("layout", Text, primary_key=True),
    Column("devices", Integer, primary_key=True, autoincrement=False),
    Column("kind", Text, primary_key=True),
    Column("seconds", Double, nullable=False),
    Column("peak_bytes", BigInteger, nullable=False),
    Column("version", Text, nullable=False),  # of Hoptree, which has measured it
    Column("created", Double, nullable=False),
)

# What drivers train at the moment, so that no other driver starts it too, and what they wait for. A row is valid
# while the lease with its token is held.
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
