"""Several disturbances in one run."""

from __future__ import annotations

from bench.faults import clocks, damage, kills, stops
from bench.faults.kinds import Kind
from bench.faults.run import Run

_SEVERAL = (
    kills.kill_driver,
    kills.kill_worker,
    kills.kill_both,
    kills.kill_at_start,
    stops.interrupt,
    stops.interrupt_twice,
    stops.stop_driver,
    damage.flip_state,
    damage.delete_state,
    damage.remove_states,
    damage.delete_slot,
    clocks.jump_and_kill,
)


def mix(run: Run) -> None:
    """Do two to four of them, one after the other."""
    for disturb in run.random.sample(_SEVERAL, run.random.randint(2, 4)):
        if len(run.drivers) > 3:
            break
        disturb(run)
    run.most_again = None


def nothing(run: Run) -> None:
    """Do nothing: an undisturbed run finds nothing."""
    run.most_again = 0


KINDS = {"mixed": Kind(mix)}
UNDISTURBED = {"undisturbed": Kind(nothing)}
