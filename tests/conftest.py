from collections.abc import Iterator

import pytest

import tpsrl.sim
from tpsrl.sim.base import Simulator


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    """A small home for the tests of a module, which may have one of its own by this name."""
    simulator = tpsrl.sim.make(slots=12)
    yield simulator
    simulator.close()
