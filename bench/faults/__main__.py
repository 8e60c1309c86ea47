"""``python -m bench.faults``: 200 disturbed runs, or some of a kind.

Each run is a small study on two workers with a store of its own. It is disturbed at a moment that follows from its
seed, and run again until it is done. All trials must end as in the reference, which one worker trained undisturbed,
or the run must be refused with a clear message; and nothing may be left behind. The program gives itself a shared
memory of its own, so that it sees all that is left there.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys

from bench.faults.campaign import DISTURBED, FAMILIES, KINDS, Campaign, report
from bench.results import record

_INSIDE = "HOPTREE_FAULTS_INSIDE"
_OWN_MEMORY = 'mount -t tmpfs -o size=1g none /dev/shm && exec "$@"'


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.faults", description="A campaign of faults.")
    parser.add_argument("--runs", type=int, default=200, help="disturbed runs [200]")
    parser.add_argument("--kind", action="append", metavar="NAME", help="a kind or a family; may be repeated")
    parser.add_argument("--seed", type=int, default=0, help="of the first run; the others follow [0]")
    parser.add_argument("--quick", action="store_true", help="one run of each kind")
    parser.add_argument("--keep", action="store_true", help="keep the logs of all runs, not of findings only")
    parser.add_argument("--list", action="store_true", help="name all kinds, and do nothing")
    options = parser.parse_args()
    kinds = _chosen(options.kind)
    if options.list:
        print("\n".join(kinds))
        return
    if _INSIDE not in os.environ:
        _go_inside()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers are ended and folders removed
    runs = len(kinds) if options.quick else options.runs
    campaign = Campaign(lambda text: print(text, flush=True), keep=options.keep)
    try:
        found = campaign.run(kinds, runs, options.seed)
    finally:
        campaign.close()
    text = f"## Faults\n\n{report(found)}"
    if options.kind:
        print(text)
    else:
        command = f"python -m bench.faults --seed {options.seed} " + (
            "--quick" if options.quick else f"--runs {options.runs}"
        )
        record("faults", command, text)
    if campaign.folder.exists():
        print(f"logs: {campaign.folder}")
    sys.exit(any(told.findings for told in found))


def _chosen(names: list[str] | None) -> list[str]:
    chosen: list[str] = []
    for name in names or ():
        if name not in KINDS and name not in FAMILIES:
            sys.exit(f"--kind {name}: expected a family ({', '.join(FAMILIES)}) or a kind; see --list")
        chosen += FAMILIES.get(name, [name])
    return chosen or DISTURBED


def _go_inside() -> None:
    """Restart the program in a new namespace, where shared memory is empty and private."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-current-user", "--keep-caps"]
    os.environ[_INSIDE] = "1"
    own = [sys.executable, "-m", "bench.faults", *sys.argv[1:]]
    os.execvp("unshare", ["unshare", *user, "--mount", "sh", "-c", _OWN_MEMORY, "sh", *own])


if __name__ == "__main__":
    main()
