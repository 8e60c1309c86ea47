"""The tables of a store's database. Imported when a database is opened, because SQLAlchemy is slow to import."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    bindparam,
    case,
    func,
    insert,
    select,
    update,
)

METADATA = MetaData()

STORE = Table(
    "hoptree_store",
    METADATA,
    Column("format", Integer, primary_key=True, autoincrement=False),
    Column("states", Text, nullable=False),
)

STUDIES = Table(
    "hoptree_studies",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("created", Double, nullable=False),
    Column("format", Integer, nullable=False),
    Column("spec", Text, nullable=False),
    Column("status", Text, nullable=False),
)

EVENTS = Table(
    "hoptree_events",
    METADATA,
    Column("study", Text, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("now", Double, nullable=False),
    Column("more", Boolean, nullable=False),
    Column("event", LargeBinary, nullable=False),  # bytes: a server's text encoding must not matter
    sqlite_with_rowid=False,
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
)

# What states that are no longer there have reported: any study that asks again is told.
REPORTS = Table(
    "hoptree_reports", METADATA, Column("key", Text, primary_key=True), Column("metrics", Text, nullable=False)
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
    "hoptree_holds", METADATA, Column("key", Text, primary_key=True), Column("study", Text, primary_key=True)
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

# What every append to a journal says, put together once: building a statement takes longer than running it.
_NOW = bindparam("at", type_=Double)
RENEW = (
    update(LEASES)
    .where(LEASES.c.study == bindparam("of"), LEASES.c.token == bindparam("by"), LEASES.c.held)
    .values(heartbeat=case((LEASES.c.heartbeat > _NOW, LEASES.c.heartbeat), else_=_NOW))  # a clock may be set back
)
LAST = select(func.max(EVENTS.c.seq)).where(EVENTS.c.study == bindparam("of"))
APPEND = insert(EVENTS)

# The same for claims: one is made before every stage, or every epoch.
LIVE = select(LEASES).where(LEASES.c.held)
CLAIMED_BY_OTHERS = select(CLAIMS).where(CLAIMS.c.lineage == bindparam("of"), CLAIMS.c.study != bindparam("by"))
WANTED_BY_OTHERS = select(WANTS).where(WANTS.c.lineage == bindparam("of"), WANTS.c.study != bindparam("by"))
