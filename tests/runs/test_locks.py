import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tpsrl.cli import main
from tpsrl.errors import UserError
from tpsrl.runtime import locks

DYING = """
import os, signal, sys
from pathlib import Path
from tpsrl.runtime import locks
with locks.hold(Path(sys.argv[1])):
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_folder_can_be_locked_by_one_holder_only(tmp_path: Path) -> None:
    with locks.hold(tmp_path):
        message = rf"^bank: {tmp_path} is in use by process {os.getpid()}; wait .* another bank$"
        with pytest.raises(UserError, match=message), locks.hold(tmp_path, "bank"):
            pass
        with pytest.raises(UserError, match="is in use"), locks.hold(tmp_path):
            pass
    with locks.hold(tmp_path) as running:
        assert running == tmp_path / ".running"


def test_the_lock_of_a_dead_process_is_free(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", DYING, str(tmp_path)])
    assert done.returncode == -signal.SIGKILL
    left = (tmp_path / ".running" / "lock").read_text()
    assert left and int(left.split()[0]) != os.getpid()
    with locks.hold(tmp_path) as running:
        assert int((running / "lock").read_text().split()[0]) == os.getpid()
    assert list(tmp_path.iterdir()) == []


def test_a_holder_on_another_machine_is_reported_with_its_machine(tmp_path: Path) -> None:
    with locks.hold(tmp_path) as running:
        (running / "lock").write_text("77 cluster-node-5\n")
        with (
            pytest.raises(UserError, match="by process 77 on cluster-node-5;"),
            locks.hold(tmp_path),
        ):
            pass


def test_created_folders_are_deleted_unless_they_have_content(tmp_path: Path) -> None:
    with locks.hold(tmp_path / "a" / "b"):
        pass
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ZeroDivisionError), locks.hold(tmp_path / "a" / "b") as running:
        (running / "kept").touch()
        raise ZeroDivisionError
    assert [path.name for path in (tmp_path / "a/b/.running").iterdir()] == ["kept"]


def test_a_lock_file_deleted_while_being_opened_is_created_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The previous holder may end at that moment; otherwise two processes could hold the lock."""
    opened, removed = os.open, []

    def open_and_lose(path: Path, *arguments: int) -> int:
        descriptor = opened(path, *arguments)
        if not removed:
            removed.append(os.fstat(descriptor).st_ino)
            os.unlink(path)
        return descriptor

    monkeypatch.setattr(os, "open", open_and_lose)
    with locks.hold(tmp_path) as running:
        assert removed and (running / "lock").exists()
        with pytest.raises(UserError, match="is in use"), locks.hold(tmp_path):
            pass


def test_an_unwritable_folder_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"out: cannot lock .*file"), locks.hold(tmp_path / "file"):
        pass


@pytest.mark.parametrize(
    ("command", "held"),
    [
        (("train", "navigate", "preset=cpu_state"), "out"),
        (("clone", "navigate", "demos=none"), "out"),
        (("demos", "navigate", "num=1"), ".out.lock"),
    ],
)
def test_a_folder_in_use_by_another_command_is_refused(
    command: tuple[str, ...], held: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    with locks.hold(tmp_path / held):
        assert main([*command, f"out={out}"]) == 2
        err = capfd.readouterr().err
        assert err.startswith(f"tpsrl: error: out: {out} is in use by process {os.getpid()}; ")
        assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
