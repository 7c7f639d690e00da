import gc
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Each test worker has at most one core: threads of numpy and torch would wait for each other. The
# variable is read when these are imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from kinematic_home import make_episode

import tpsrl.sim
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import save_episodes


def pytest_configure() -> None:
    """Restores Ctrl-C, which a background job (`make test &`) may have inherited as ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # halves the time of the collection


def pytest_collection_finish() -> None:
    """Leaves the imported modules and the collected tests out of the search for garbage."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def temporaries() -> Iterator[None]:
    """Folder of all temporary files of the tests, removed at the end.

    Temporary files of other programs that a test kills, such as the logs of torchrun, would remain
    otherwise.
    """
    with (
        tempfile.TemporaryDirectory(prefix="tests-", ignore_cleanup_errors=True) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("TMPDIR", folder)
        yield


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    """A small simulator for the tests of a module; a module may define its own."""
    simulator = tpsrl.sim.make(slots=12)
    yield simulator
    simulator.close()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A file of three episodes, for `fake_evaluation`."""
    path = tmp_path / "data.jsonl.gz"
    save_episodes(path, [make_episode(2, 1, id=f"test/{i}") for i in range(3)])
    return path
