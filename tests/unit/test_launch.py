"""Launcher of the ranks of one machine."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ranks
import torch.distributed.run  # noqa: F401  (or each fork would import it)
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

LAUNCH = [sys.executable, "-m", "tpsrl.training.launch", "--standalone", "--nproc-per-node=1"]
OFTEN = "--monitor-interval=0.01"


def launched(script: Path, text: str, *options: str) -> subprocess.Popen[str]:
    script.write_text(text)
    return ranks.Forked(
        [*LAUNCH, OFTEN, *options, str(script)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=script.parent,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "message"),
    [("SIGTERM", 143, "tpsrl: terminated\n"), ("SIGINT", 130, "tpsrl: interrupted\n")],
)
def test_a_signalled_launcher_ends_with_one_line_and_the_code_of_the_signal(
    tmp_path: Path, name: str, code: int, message: str
) -> None:
    text = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: sys.exit())\n"
        "print('here', flush=True)\n"
        "time.sleep(60)\n"
    )
    process = launched(tmp_path / "rank.py", text)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.send_signal(signal.Signals[name])
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (code, message)


def test_a_launcher_signalled_while_it_starts_a_rank_ends_the_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = subprocess_handler.SubprocessHandler.__init__

    def tell(self: Any, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(subprocess_handler.SubprocessHandler, "__init__", tell)
    process = launched(tmp_path / "rank.py", "import time\ntime.sleep(120)\n")
    _, err = process.communicate(timeout=60)  # returns once the rank has closed the pipes
    assert (process.returncode, err) == (143, "tpsrl: terminated\n")


@pytest.mark.slow
def test_the_exit_code_is_that_of_the_failed_rank(tmp_path: Path) -> None:
    text = "import sys\nprint('tpsrl: error: seed: too odd', file=sys.stderr)\nsys.exit(2)\n"
    process = launched(tmp_path / "rank.py", text)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "Traceback" not in err and "seed: too odd" in err


@pytest.mark.slow
def test_a_rank_that_ends_with_a_user_error_is_not_restarted(tmp_path: Path) -> None:
    text = (
        "import sys\nprint('tpsrl: error: seed: too odd', file=sys.stderr)\n"
        "open('count', 'a').write('1')\nsys.exit(2)\n"
    )
    process = launched(tmp_path / "rank.py", text, "--max-restarts=3")
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, "tpsrl: error: seed: too odd\n")
    assert (tmp_path / "count").read_text() == "1"


@pytest.mark.slow
def test_a_rank_that_is_killed_too_often_is_reported(tmp_path: Path) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"
    process = launched(tmp_path / "rank.py", text, "--max-restarts=1")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert out == "rank 0 was ended by SIGKILL; all ranks are restarted\n"
    assert err.endswith("rank 0 was ended by SIGKILL, more often than allowed\n")
