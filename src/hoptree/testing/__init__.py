"""Contract suites: tests for implementations of Hoptree's protocols, which need one fixture each.

    import pytest
    from hoptree.testing import TrainerContract

    class TestMine(TrainerContract):
        @pytest.fixture
        def trainer(self):
            return Mine()

Nothing of Hoptree imports this package, and it does not import pytest: ``check`` runs a suite without it.
"""

from hoptree.testing.backend import BackendContract
from hoptree.testing.check import check
from hoptree.testing.mirror import MirrorCase, MirrorContract, MirroredTrial
from hoptree.testing.procedure import ProcedureContract
from hoptree.testing.sampler import SamplerContract
from hoptree.testing.state_store import StateStoreContract
from hoptree.testing.trainer import TrainerContract

__all__ = [
    "BackendContract",
    "MirrorCase",
    "MirrorContract",
    "MirroredTrial",
    "ProcedureContract",
    "SamplerContract",
    "StateStoreContract",
    "TrainerContract",
    "check",
]
