"""Profiles: what units take in time and memory, kept for later studies."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table; nothing was measured before."""
    op.create_table(
        "hoptree_profiles",
        sa.Column("trainer", sa.Text(), primary_key=True),
        sa.Column("data", sa.Text(), primary_key=True),
        sa.Column("architecture", sa.Text(), primary_key=True),
        sa.Column("layout", sa.Text(), primary_key=True),
        sa.Column("devices", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text(), primary_key=True),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("peak_bytes", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
    )
