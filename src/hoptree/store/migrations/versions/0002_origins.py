"""Origins: the conditions under which a variant's states were trained, compared before they are reused."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table; older states have no variant and no origin."""
    op.create_table(
        "hoptree_origins",
        sa.Column("variant", sa.Text(), primary_key=True),
        sa.Column("root", sa.Text(), nullable=False),
        sa.Column("platform", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("study", sa.Text(), nullable=False),
        sa.Column("created", sa.Double(), nullable=False),
        sa.Column("observations", sa.Text(), nullable=False),
        sa.Column("probes", sa.Text(), nullable=False),
    )
    op.create_index("ix_hoptree_origins_root", "hoptree_origins", ["root"])
