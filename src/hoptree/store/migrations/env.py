"""What Alembic runs first: it is given a connection that is within a transaction."""

from alembic import context

context.configure(connection=context.config.attributes["connection"], version_table="hoptree_revision")
context.run_migrations()
