"""Ranks killed during a training, which torchrun restarts and which then resume."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_slurm
import pytest
import ranks
import torch
from test_slurm import ROLLOUT, TINY

from tpsrl import cli
from tpsrl.errors import RunError
from tpsrl.rl.collection import preemption
from tpsrl.rl.collection.preemption import Preempted
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.distributed.group import Group, Ranks

STEPS = 10 * ROLLOUT


def doom(rank: int, kind: type, name: str, call: int) -> None:
    """Arranges that a rank is killed at a call of a method, once there is a checkpoint."""
    before, calls = getattr(kind, name), []

    def method(self: Any, *args: Any) -> Any:
        if Path("out/checkpoints/latest.safetensors").exists():
            calls.append(0)
        mark = Path("killed")
        if os.environ["RANK"] == str(rank) and len(calls) == call and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return before(self, *args)

    setattr(kind, name, method)


@pytest.mark.parametrize(
    ("rank", "kind", "name", "call"),
    [
        (1, Ranks, "average", 2),  # averages gradients of a mini-batch, during learning
        (0, Preempted, "stops", 10),  # called during collection; rank 0 also has the store
    ],
)
def test_a_killed_rank_is_restarted_and_all_ranks_resume(
    rank: int, kind: type, name: str, call: int, tmp_path: Path
) -> None:
    words = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    words += ["-m", "tpsrl", "train", *TINY, f"preset.steps={STEPS}"]
    words += ["checkpoint_minutes=0", "out=out"]
    prepare = functools.partial(doom, rank, kind, name, call)
    code, out, err = ranks.Command(words, tmp_path, prepare).end()
    assert code == 0, err
    assert (tmp_path / "killed").exists()
    assert "training navigate for" in out and "resuming navigate for" in out
    rows = [json.loads(row) for row in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-2]["steps"] < STEPS <= rows[-1]["steps"]


def test_ranks_end_with_the_command_that_started_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = tmp_path / "out/metrics.jsonl"
    command = ["tpsrl", "train", *TINY, "processes=1", "checkpoint_minutes=0", "ranks=2", "out=out"]
    with fake_slurm.installed(tmp_path) as env:
        begun = subprocess.Popen(
            [sys.executable, ranks.__file__, *command, "preset.steps=100000"],
            cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        fake_slurm.wait_until(lambda: metrics.exists() and len(metrics.read_text()) > 0, begun)
        temporaries = temporaries_of(Path(env["FAKE_SLURM"]))
        assert cli.main(["doctor"]) == 0
        own = [folder for folder in temporaries if str(folder) != env["TMPDIR"]]
        assert own and all(folder.is_dir() for folder in temporaries)
        begun.kill()
        begun.wait()
        until = time.monotonic() + fake_slurm.LIMIT_S
        while fake_slurm.processes(Path(env["FAKE_SLURM"])):
            assert time.monotonic() < until
            time.sleep(0.1)
        before = {path: path.read_bytes() for path in sorted((tmp_path / "out").rglob("*.*"))}
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    assert cli.main([*command[1:], "seed=5"]) == 2
    assert "out: out contains a training" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


def temporaries_of(mark: Path) -> list[Path]:
    """Returns the folders for temporary files of the processes started there."""
    found = set()
    for process in fake_slurm.processes(mark):
        for entry in Path(f"/proc/{process}/environ").read_text().split("\0"):
            if entry.startswith("TMPDIR="):
                found.add(Path(entry.partition("=")[2]))
    return sorted(found)


def bereaved(group: Group, goes: int) -> list[str]:
    """Returns the error of each call on the other rank after one rank has ended silently."""
    store = preemption.Preempted(group, PreemptionSettings("share", 0.5, 0.25), 8)

    def counted() -> None:
        store.begin()
        store.stops(8)

    group.any(False)  # all ranks have begun
    if group.rank == goes:
        return []
    calls: list[Callable[[], object]] = [
        lambda: group.totals([1.0]),
        lambda: group.average([torch.ones(2)], 1.0),
        lambda: group.any(True),
        lambda: group.gather(True),
        lambda: group.share(True),
    ]
    return [lost_at(call) for call in ([counted] if goes == 0 else calls)]


def lost_at(call: Callable[[], object]) -> str:
    """Returns the error of a call once the loss is noticed."""
    try:
        for _ in range(1000):
            call()
    except RunError as lost:
        return str(lost)
    return "never noticed"


@pytest.mark.parametrize(
    ("goes", "calls", "lost"), [(1, 5, "another rank"), (0, 1, "the counters of rank 0")]
)
def test_the_loss_of_another_rank_is_reported_in_one_line(
    goes: int, calls: int, lost: str, tmp_path: Path
) -> None:
    messages = ranks.run(2, bereaved, tmp_path, goes)[1 - goes]
    assert len(messages) == calls
    for line in messages:
        assert re.fullmatch(rf"ranks: lost {lost}: .+", line), line
