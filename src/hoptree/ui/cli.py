"""The command line. Commands parse arguments, call the library and print tables, or JSON with --json."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any, Final, final

import click

from hoptree import __version__
from hoptree.ui.exit_codes import guarded

# The module of each command. Commands import what they need when they run, so that `hoptree --help` stays fast.
COMMANDS: Final = {
    "demo": "hoptree.ui.simulate_commands:demo_command",
    "run": "hoptree.ui.study_commands:run_command",
    "explain": "hoptree.ui.study_commands:explain_command",
    "plan": "hoptree.ui.plan_command:plan_command",
    "profile": "hoptree.ui.profile_command:profile_command",
    "studies": "hoptree.ui.study_commands:studies_command",
    "show": "hoptree.ui.study_commands:show_command",
    "trials": "hoptree.ui.trial_commands:trials_command",
    "best": "hoptree.ui.study_commands:best_command",
    "verify": "hoptree.ui.study_commands:verify_command",
    "add": "hoptree.ui.request_commands:add_command",
    "extend": "hoptree.ui.request_commands:extend_command",
    "clone": "hoptree.ui.request_commands:clone_command",
    "stop": "hoptree.ui.request_commands:stop_command",
    "interrupt": "hoptree.ui.interrupt_command:interrupt_command",
    "retry": "hoptree.ui.request_commands:retry_command",
    "plot": "hoptree.ui.plot_commands:plot_command",
    "export": "hoptree.ui.export_commands:export_command",
    "clean": "hoptree.ui.clean_command:clean_command",
    "migrate": "hoptree.ui.migrate_command:migrate_command",
    "data": "hoptree.ui.data_commands:data",
    "simulate": "hoptree.ui.simulate_commands:simulate_command",
    "doctor": "hoptree.ui.doctor_command:doctor_command",
    "completion": "hoptree.ui.completion_command:completion_command",
}


@final
class Commands(click.Group):
    """A group that imports its commands on first use, and lists them in the order of ``COMMANDS``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS, *(name for name in super().list_commands(ctx) if name not in COMMANDS)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command by its name."""
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        module, _, name = COMMANDS[cmd_name].partition(":")
        command: Any = getattr(import_module(module), name)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="hoptree")
def cli() -> None:
    """Find the best deep net on your data for the least compute.

    \b
    Examples:
      hoptree demo
      hoptree run digits.py
      hoptree show digits

    Exit codes: 0 success; 1 something failed, such as all trials or a check; 2 invalid input, nothing was done;
    3 a bug in Hoptree; 130 interrupted.
    """  # noqa: D301 click needs the real character


def main() -> None:
    """Run the command line and exit with its exit code."""
    sys.exit(guarded(cli))
