import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpsrl.runtime import temporaries

HOLDS = """
import os, signal, sys, tempfile, time
from tpsrl.runtime import temporaries
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
with temporaries.own():
    tempfile.mkdtemp()
    print(tempfile.gettempdir(), flush=True)
    time.sleep(60)
"""


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Empty folder for temporary files with a short path."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", None)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


def held(base: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_temporary_files_are_deleted_at_the_end(base: Path) -> None:
    with temporaries.own():
        assert Path(tempfile.mkdtemp()).parents[1] == base
        child = "import tempfile; print(tempfile.mkdtemp())"
        made = subprocess.check_output([sys.executable, "-c", child], text=True).strip()
        assert Path(made).parents[1] == base
        with temporaries.own():  # a command within a command
            assert Path(tempfile.mkdtemp()).parents[2] == base
        os.environ["NOTED_CACHE"] = f"{tempfile.gettempdir()}/cache"  # as torch does
    assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(base)
    assert "NOTED_CACHE" not in os.environ
    assert list(base.iterdir()) == []


def test_files_of_a_killed_process_are_deleted_by_the_next_one(base: Path) -> None:
    killed, left = held(base)
    living, kept = held(base)
    killed.kill()
    killed.wait()
    assert len(list(left.iterdir())) == 2
    with temporaries.own():
        assert not left.exists() and len(list(kept.iterdir())) == 2
    living.send_signal(signal.SIGINT)
    living.wait()
    assert list(base.iterdir()) == []


def test_files_of_others_are_not_deleted(base: Path) -> None:
    (base / "tpsrl-notes").write_text("mine")
    (base / "tpsrl-elsewhere").symlink_to(base)
    (base / "tpsrl-young").mkdir()
    (base / "tpsrl-old").mkdir()
    os.utime(base / "tpsrl-old", (time.time() - 100,) * 2)
    temporaries.sweep(base)
    left = sorted(path.name for path in base.iterdir())
    assert left == ["tpsrl-elsewhere", "tpsrl-notes", "tpsrl-young"]


def test_a_long_folder_is_replaced_by_tmp_because_of_socket_names(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = base / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with temporaries.own():
        taken = Path(tempfile.gettempdir())
        assert taken.parent == Path("/tmp") and taken.is_dir()
    assert tempfile.gettempdir() == str(long)
    assert not taken.exists() and list(long.iterdir()) == []


def test_a_folder_deleted_by_a_sweep_during_creation_is_created_again(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, swept = temporaries._try_lock, []

    def late(path: Path) -> int | None:
        if len(swept) < 3:  # the sweep has opened and locked the file before
            swept.append(path)
            shutil.rmtree(path.parent)
            path.parent.mkdir()
            held = os.open(path, os.O_RDWR | os.O_CREAT)
            fcntl.flock(held, fcntl.LOCK_EX)
            try:
                return lock(path)
            finally:
                os.close(held)
        return lock(path)

    monkeypatch.setattr(temporaries, "_try_lock", late)
    with temporaries.own():
        found = Path(tempfile.gettempdir())
        assert found.is_dir() and found.parent == base and found not in [p.parent for p in swept]


def test_a_lock_on_a_deleted_file_does_not_count(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def removing(descriptor: int, how: int) -> None:
        flock(descriptor, how)
        (base / "lock").unlink()

    monkeypatch.setattr(fcntl, "flock", removing)
    assert temporaries._try_lock(base / "lock") is None


def test_an_unusable_folder_for_temporary_files_is_left_as_set(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/nowhere")
    with temporaries.own():
        assert tempfile.gettempdir() == "/proc/nowhere"
    assert list(base.iterdir()) == []
