"""The revisions of a store's tables, one script each, run by Alembic when an older store is opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from hoptree.store.revisions import Revisions


def upgrade(connection: Connection, revisions: Revisions) -> None:
    """Run the migration scripts that are new to a database, in the connection's current transaction."""
    from alembic import command
    from alembic.config import Config

    from hoptree.store.revisions import FOLDER

    config = Config()
    folders = os.pathsep.join(map(str, revisions.folders))
    for name, value in (("script_location", str(FOLDER)), ("version_locations", folders), ("path_separator", "os")):
        config.set_main_option(name, value.replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revisions.head)
