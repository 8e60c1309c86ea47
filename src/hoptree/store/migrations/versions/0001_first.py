"""The tables of the first release. Older stores have no revision and are not supported."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table("hoptree_store", sa.Column("states", sa.Text(), nullable=False))
    op.create_table(
        "hoptree_studies",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("format", sa.Integer(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
    )
    _journal()
    op.create_table(
        "hoptree_leases",
        sa.Column("study", sa.Text(), primary_key=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("held", sa.Boolean(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("since", sa.Double(), nullable=False),
        sa.Column("heartbeat", sa.Double(), nullable=False),
        sa.Column("stop_asked", sa.Boolean(), nullable=False),
    )
    op.create_table(
        "hoptree_wishes",
        sa.Column("number", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("wish", sa.Text(), nullable=False),
    )
    _states()
    _claims()


def _journal() -> None:
    op.create_table(
        "hoptree_entries",
        sa.Column("study", sa.Text(), primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("now", sa.Double(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.LargeBinary(), nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "hoptree_snapshots",
        sa.Column("study", sa.Text(), primary_key=True),
        sa.Column("seq", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.Column("checksum", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "hoptree_reports",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("metrics", sa.Text(), nullable=False),
    )
    op.create_table(
        "hoptree_report_holds",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("study", sa.Text(), primary_key=True),
    )
    op.create_index("ix_hoptree_report_holds_study", "hoptree_report_holds", ["study"])


def _states() -> None:
    op.create_table(
        "hoptree_states",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("made", sa.Double(), nullable=False),
        sa.Column("used", sa.Double(), nullable=False),
        sa.Column("uses", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "hoptree_holds",
        sa.Column("key", sa.Text(), primary_key=True),
        sa.Column("study", sa.Text(), primary_key=True),
    )
    op.create_index("ix_hoptree_holds_study", "hoptree_holds", ["study"])


def _claims() -> None:
    op.create_table(
        "hoptree_claims",
        sa.Column("lineage", sa.Text(), primary_key=True),
        sa.Column("study", sa.Text(), primary_key=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "hoptree_wants",
        sa.Column("lineage", sa.Text(), primary_key=True),
        sa.Column("study", sa.Text(), primary_key=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("units", sa.Text(), nullable=False),
        sa.Column("waits", sa.Boolean(), nullable=False),
    )
