"""``hoptree completion``: shell completion of commands, options and study names."""

from __future__ import annotations

import click

_VARIABLE = "_HOPTREE_COMPLETE"


@click.command(name="completion", short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(shell: str) -> None:
    """Print a script that lets a shell complete commands, options and study names.

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
    # Not source(): it starts bash to ask for its version, and bash may not be installed here.
    click.echo(complete.source_template % complete.source_vars())
