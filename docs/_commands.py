"""A directive for Sphinx, ``hoptree-commands``: every command with its help, from the program itself."""

from __future__ import annotations

from collections.abc import Iterator

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from hoptree.ui.cli import cli


class Commands(SphinxDirective):
    """One section per command, with what ``--help`` prints at 88 columns."""

    def run(self) -> list[nodes.Node]:
        return [self._section(name, command) for name, command in _walk("hoptree", cli)]

    def _section(self, name: str, command: click.Command) -> nodes.section:
        section = nodes.section(ids=[nodes.make_id(name)])
        section += nodes.title(text=name)
        context = click.Context(command, info_name=name, terminal_width=88, max_content_width=88)
        section += nodes.literal_block(text=command.get_help(context), language="text")
        return section


def _walk(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for below in command.list_commands(context):
        found = command.get_command(context, below)
        assert found is not None
        yield from _walk(f"{name} {below}", found)


def setup(app: Sphinx) -> dict[str, bool]:
    """Tell Sphinx of the directive."""
    app.add_directive("hoptree-commands", Commands)
    return {"parallel_read_safe": True}
