"""``hoptree completion``: what a shell needs to complete commands, options and names of studies."""

from __future__ import annotations

import click

_VARIABLE = "_HOPTREE_COMPLETE"


@click.command(name="completion", short_help="Print completion for a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print what makes a shell complete commands, options and names of studies.

    \b
    Examples:
      hoptree completion bash >> ~/.bashrc
      hoptree completion zsh >> ~/.zshrc
      hoptree completion fish > ~/.config/fish/completions/hoptree.fish
    """  # noqa: D301 click needs the real character
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    group = click.get_current_context().find_root().command
    complete = kind(group, {}, "hoptree", _VARIABLE)
    # not source(): for bash it starts one to ask for its version, and there may be none where this is run
    click.echo(complete.source_template % complete.source_vars())
