"""A further revision, for tests: studies get a note, made from what is there."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    with op.batch_alter_table("hoptree_studies") as studies:
        studies.add_column(sa.Column("note", sa.Text(), nullable=False, server_default=""))
    op.execute("UPDATE hoptree_studies SET note = 'was ' || status")
