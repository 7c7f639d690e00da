"""A rank that is killed while all learn: torchrun starts them anew, and they go on."""

import json
import re
import subprocess
import time
from pathlib import Path

import fake_slurm
import pytest
import ranks
import torch
from test_slurm import ROLLOUT, TINY

from tpsrl.errors import RunError
from tpsrl.rl.collection import preemption
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.distributed.group import Group

STEPS = 10 * ROLLOUT
# Runs tpsrl, and kills a rank at a call where it is busy, once
# there is a checkpoint.
DOOM = """
import os, runpy, signal
from pathlib import Path
from tpsrl.rl.collection.preemption import Preempted
from tpsrl.rl.distributed.group import Ranks

def doom(kind, name, call):
    before, calls = getattr(kind, name), []
    def method(self, *args):
        if Path("out/checkpoints/latest.safetensors").exists():
            calls.append(0)
        mark = Path("killed")
        if os.environ.get("RANK") == "{rank}" and len(calls) == call and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return before(self, *args)
    setattr(kind, name, method)

if __name__ == "__main__":
    doom({kind}, "{name}", {call})
    runpy.run_module("tpsrl", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    ("rank", "kind", "name", "call"),
    [
        (1, "Ranks", "average", 2),  # of the gradients of a mini-batch, so while learning
        (0, "Preempted", "stops", 10),  # asked while collecting; rank 0 has the store too
    ],
)
def test_a_killed_rank_is_started_anew_and_all_go_on(
    rank: int, kind: str, name: str, call: int, tmp_path: Path
) -> None:
    (tmp_path / "doom.py").write_text(DOOM.format(rank=rank, kind=kind, name=name, call=call))
    command = ["torchrun", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "-m"]
    command += ["doom", "train", *TINY, f"preset.steps={STEPS}"]
    command += ["processes=1", "checkpoint_minutes=0", "out=out"]
    with fake_slurm.installed(tmp_path) as env:
        env["PYTHONPATH"] += f":{tmp_path}"
        done = subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert fake_slurm.processes(Path(env["FAKE_SLURM"])) == []
    assert (tmp_path / "killed").exists()
    assert "training navigate for" in done.stdout and "going on with navigate for" in done.stdout
    rows = [json.loads(row) for row in (tmp_path / "out/metrics.jsonl").read_text().splitlines()]
    assert [row["update"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-2]["steps"] < STEPS <= rows[-1]["steps"]


def test_ranks_end_with_the_command_that_began_them(tmp_path: Path) -> None:
    metrics = tmp_path / "out/metrics.jsonl"
    command = ["tpsrl", "train", *TINY, "processes=1", "checkpoint_minutes=0", "ranks=2", "out=out"]
    with fake_slurm.installed(tmp_path) as env:
        begun = subprocess.Popen(
            [*command, "preset.steps=100000"], cwd=tmp_path, env=env, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        fake_slurm.wait_until(lambda: metrics.exists() and len(metrics.read_text()) > 0, begun)
        temporaries = temporaries_of(Path(env["FAKE_SLURM"]))
        subprocess.run(["tpsrl", "doctor"], env=env, check=True, stdout=subprocess.DEVNULL)
        assert temporaries and all(folder.is_dir() for folder in temporaries)
        begun.kill()
        begun.wait()
        until = time.monotonic() + fake_slurm.LIMIT_S
        while fake_slurm.processes(Path(env["FAKE_SLURM"])):
            assert time.monotonic() < until
            time.sleep(0.1)
        before = {path: path.read_bytes() for path in sorted((tmp_path / "out").rglob("*.*"))}
        again = [*command, "seed=5"]
        done = subprocess.run(again, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert "out: out holds a training" in done.stderr
        assert {path: path.read_bytes() for path in before} == before
        rows = metrics.read_text().splitlines()
        steps = json.loads(rows[-1])["steps"] + 2 * ROLLOUT
        going_on = ["tpsrl", "train", "resume=out", f"preset.steps={steps}"]
        done = subprocess.run(going_on, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        assert "on each of 2 ranks" in done.stdout
    numbers = [json.loads(row)["update"] for row in metrics.read_text().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1)) and len(numbers) >= len(rows)


def temporaries_of(mark: Path) -> list[Path]:
    """The folders for temporary files of what has begun there."""
    found = set()
    for process in fake_slurm.processes(mark):
        for entry in Path(f"/proc/{process}/environ").read_text().split("\0"):
            if entry.startswith("TMPDIR="):
                found.add(Path(entry.partition("=")[2]))
    return sorted(found)


def bereaved(group: Group, call: str) -> str:
    """What the other rank says when rank 1 has gone without a word."""
    store = preemption.Preempted(group, PreemptionSettings("share", 0.5, 0.25), 8)
    group.any(False)  # all have begun
    if group.rank == (0 if call == "stops" else 1):
        return "gone"
    try:
        for _ in range(1000):
            if call == "totals":
                group.totals([1.0])
            elif call == "average":
                group.average([torch.ones(2)], 1.0)
            elif call == "stops":
                store.begin()
                store.stops(8)
            else:
                getattr(group, call)(True)
    except RunError as lost:
        return str(lost)
    return "never noticed"


@pytest.mark.parametrize("call", ["totals", "average", "any", "gather", "share", "stops"])
def test_who_loses_another_rank_says_so_in_a_line(call: str, tmp_path: Path) -> None:
    said = {*ranks.run(2, bereaved, tmp_path, call)} - {"gone"}
    (line,) = said
    assert re.fullmatch(r"ranks: lost (another rank|rank 0, where they count): .+", line), line
