"""A further revision, for tests, that fails when it has changed much already."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.execute("DELETE FROM hoptree_entries")
    op.create_table("hoptree_notes", sa.Column("study", sa.Text(), primary_key=True))
    op.drop_table("hoptree_wants")
    op.execute("UPDATE hoptree_studies SET no_such_column = 1")
