"""Provides the nodes of the cluster in ``scaling.py``: processes of this machine, each as if it were a machine."""

from __future__ import annotations

from typing import Any

from ray.autoscaler._private.fake_multi_node.node_provider import FakeMultiNodeProvider


class MachineProvider(FakeMultiNodeProvider):  # type: ignore[misc]
    """A node that has ended is gone, like a machine that was given back; Ray's own provider keeps it for ever."""

    def non_terminated_nodes(self, tag_filters: Any) -> Any:
        """Return the nodes that run."""
        with self.lock:
            for name in [name for name, node in self._nodes.items() if "node" in node]:
                if self._nodes[name]["node"].dead_processes():
                    self.terminate_node(name)
            return super().non_terminated_nodes(tag_filters)
