"""Prepare a model for a unit in a layout: where its parameters are, and what is computed again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from hoptree.core.layouts import Layout
from hoptree.trainers.torch_gradients import GradientPass, UnitContext
from hoptree.trainers.torch_layouts import find_layout
from hoptree.trainers.torch_offload import offloaded_gradients, pages_given_back
from hoptree.trainers.torch_recompute import recomputed

_MEASURED = 4  # examples for the costs of layers


@contextmanager
def prepared(unit: UnitContext, name: str) -> Iterator[GradientPass | None]:
    """Yield what computes the gradients of a unit; None where batches are not cut into shards.

    After the last step, the worker that leads has the whole model.
    """
    model, part = unit.model, unit.model.part
    layout = find_layout(Layout.parse(name).kind)
    with ExitStack() as stack:
        if part is not None:
            if part.owners is None:
                inputs, _ = unit.batches.take(slice(0, min(_MEASURED, unit.batches.length)))
                owners = layout.owners(model, unit.gang, inputs)
            else:
                owners = part.owners
            part.hold(model.tuned.optimizer, owners)
            if part.layout.offload:
                own = [each for number, each in enumerate(part.parameters) if part.owns(number)]
                stack.enter_context(offloaded_gradients(own))
                stack.enter_context(pages_given_back(model.module))
            if part.layout.checkpoint and part.layout.is_whole:
                stack.enter_context(recomputed(model.module))
        gradients = None if unit.shards == 1 else layout.gradients(unit)
        yield gradients
        if gradients is not None:
            gradients.finish()
