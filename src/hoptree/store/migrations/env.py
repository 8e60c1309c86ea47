"""Alembic's environment script: it gets a connection with an open transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="hoptree_revision")
context.run_migrations()
