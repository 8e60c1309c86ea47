"""A process that is a rank of one gang after another: it reads members as JSON, and writes sums or errors."""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta

import msgspec
import torch

from hoptree.trainers import torch_gang
from hoptree.trainers.errors import GangError
from hoptree.trainers.gang import GangMember


def main() -> None:
    print(torch_gang.open_rendezvous("127.0.0.1"), flush=True)
    for line in sys.stdin:
        text, seconds, then = line.strip().split("|")
        torch_gang._TIMEOUT = timedelta(seconds=float(seconds))
        member = msgspec.json.decode(text, type=GangMember)
        try:
            gang = torch_gang.Gang(member)
            if then == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            print(gang.add(torch.full((5,), 10.0**member.rank)).tolist(), flush=True)
        except GangError as error:
            print(f"error: {error}", flush=True)


if __name__ == "__main__":
    main()
