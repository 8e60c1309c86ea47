"""``hoptree doctor``: check this machine, this installation and this store."""

from __future__ import annotations

import sys

import click
import msgspec

from hoptree.ui.common import of_a_store, print_json
from hoptree.ui.exit_codes import FAILED

_STYLES = {"ok": "green", "warn": "yellow", "fail": "red", "absent": "bright_black"}


@click.command(name="doctor", short_help="Check the machine, the installation and the store.")
@click.option("--deep", is_flag=True, help="Read every state of the store, and compare it with its checksum.")
@of_a_store
def doctor_command(deep: bool, location: str, journal: str | None, as_json: bool) -> None:
    """Check versions, devices, cores, memory, disk and the store; show problems and how to fix them.

    The exit code is 1 if something cannot work (fail), 0 if something may only be slow (warn).

    \b
    Examples:
      hoptree doctor
      hoptree doctor --deep --json
    """  # noqa: D301 click needs the real character
    from hoptree.ui.doctor import examine

    checks = []
    for check in examine(location, journal, deep):
        checks.append(check)
        if not as_json:
            mark = click.style(f"{check.verdict:<6}", fg=_STYLES[check.verdict])
            click.echo(f"{mark}  {check.about:<13}  {check.found}")
            if check.fix:
                click.echo(f"{'':<23}{check.fix}")
    if as_json:
        print_json(msgspec.to_builtins(checks))
    if any(check.verdict == "fail" for check in checks):
        sys.exit(FAILED)
