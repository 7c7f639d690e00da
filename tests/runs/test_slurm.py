"""Ranks started by srun, and the batch script, with stand-ins for SLURM."""

import json
import os
import signal
import subprocess
from pathlib import Path

import fake_slurm
import pytest
import torch

from tpsrl.errors import UserError
from tpsrl.rl.distributed import group, slurm
from tpsrl.training import loading, ranks

SCRIPT = fake_slurm.ROOT / "configs" / "slurm" / "train.sbatch"
# Task 4 of 7 is the first task on the third machine.
STEP = {
    "SLURM_JOB_ID": "101",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "7",
    "SLURM_STEP_TASKS_PER_NODE": "2(x3),1",
    "SLURM_STEP_NODELIST": "node[01-03,7]",
    "SLURM_JOB_NODELIST": "login,node[01-03,7]",
    "SLURM_PROCID": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "2",
    "SLURM_NTASKS": "8",
}
SHELL = ("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE")
ROLLOUT = 2 * 8 * 2  # steps of all ranks if none is stopped early
TINY = (
    "navigate", "preset=cpu_state", "preset.num_envs=2", "preset.num_steps=8",
    "preset.ppo.epochs=1", "preset.ppo.minibatches=1",
    "preset.policy.state_width=8", "preset.policy.lstm_width=8", "num_objects=1", "num_episodes=1",
    "processes=0", "threads=1", "device=cpu", "validation_episodes=0", "logger=none",
)  # fmt: skip


def without(*names: str, **changes: str) -> dict[str, str]:
    """Returns the task's variables without some names and with some changes."""
    return {k: v for k, v in STEP.items() if k not in names} | changes


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Environment variables of this process as a task of the step."""
    for name in ("WORLD_SIZE", *(n for n in os.environ if n.startswith("SLURM_"))):
        monkeypatch.delenv(name, raising=False)
    for name, value in STEP.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


@pytest.mark.parametrize(
    ("hosts", "first"),
    [
        ("node1", "node1"),
        ("node1,node2", "node1"),
        ("node[01-03,7],other", "node01"),
        ("node[7,01-03]", "node7"),
        ("node[009-011]", "node009"),
        ("node[3]", "node3"),
        ("rack[2-3]node[05-06,9].cluster,x", "rack2node05.cluster"),
        ("gpu-a100-[12,14-15]-ib", "gpu-a100-12-ib"),
        ("a.b-c.example", "a.b-c.example"),
        ("other,node[1-2]", "other"),
        (" node[1-2] ", "node1"),
    ],
)
def test_the_first_host_of_a_list_is_found(hosts: str, first: str) -> None:
    assert slurm.first_host(hosts) == first


@pytest.mark.parametrize(
    "hosts",
    ["", ",a", "[", "node[1-2", "node1]", "node[]", "node[a-b]", "node[1,]", "node[[1]]", "a b",
     "node[1--2]", "node[-2]"],
)  # fmt: skip
def test_an_invalid_host_list_is_refused(hosts: str) -> None:
    with pytest.raises(UserError, match=r"HOSTS: '.*' is not a host list such as node"):
        slurm.first_host(hosts, "HOSTS")


def test_a_task_gets_the_variables_that_torchrun_sets() -> None:
    assert slurm.variables(STEP) == {
        "RANK": "4",
        "WORLD_SIZE": "7",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "node01",
        "MASTER_PORT": "16010",
    }


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (without(SLURM_PROCID="6", SLURM_NODEID="3"), {"LOCAL_WORLD_SIZE": "1"}),
        (without("SLURM_STEP_NODELIST"), {"MASTER_ADDR": "login"}),
        (without("SLURM_STEP_NUM_TASKS", SLURM_NTASKS="7"), {"WORLD_SIZE": "7"}),
        (without(MASTER_ADDR="here", MASTER_PORT="5"), {"MASTER_ADDR": "here", "MASTER_PORT": "5"}),
        (
            without("SLURM_STEP_TASKS_PER_NODE", SLURM_TASKS_PER_NODE="4,1(x3)", SLURM_NODEID="1"),
            {"LOCAL_WORLD_SIZE": "1"},
        ),
        (
            without("SLURM_STEP_TASKS_PER_NODE", SLURM_NTASKS_PER_NODE="3"),
            {"LOCAL_WORLD_SIZE": "3"},
        ),
        (
            without("SLURM_NODEID", SLURM_STEP_TASKS_PER_NODE="7", SLURM_LOCALID="4"),
            {"LOCAL_WORLD_SIZE": "7", "LOCAL_RANK": "4", "MASTER_ADDR": "127.0.0.1"},
        ),
        (without(SLURM_STEP_ID="3"), {"MASTER_PORT": "16013"}),
    ],
)
def test_the_variables_of_a_task_depend_on_its_slurm_variables(
    env: dict[str, str], expected: dict[str, str]
) -> None:
    found = slurm.variables(env)
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    "env",
    [
        {},
        without(*SHELL),  # shell of an allocation, with tasks and PROCID 0
        without(SLURM_STEP_ID="4294967290"),  # the same with an interactive step
        without(SLURM_STEP_NUM_TASKS="1"),
        without("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
        without("SLURM_PROCID"),
    ],
)
def test_a_process_that_is_not_a_rank_gets_no_variables(env: dict[str, str]) -> None:
    assert slurm.variables(env) == {}


def test_variables_of_torchrun_take_precedence() -> None:
    own = {"WORLD_SIZE": "2", "RANK": "1", "LOCAL_RANK": "1"}
    found = slurm.variables(STEP | own)
    assert {name: found[name] for name in own} == own and "LOCAL_WORLD_SIZE" not in found


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (without(SLURM_PROCID="x"), "SLURM_PROCID: 'x' is not an integer; start it by srun"),
        (without(SLURM_PROCID="-1"), "SLURM_PROCID: '-1' is not an integer"),
        (without(SLURM_PROCID="7"), "SLURM_PROCID: 7 is out of range, SLURM_STEP_NUM_TASKS is 7"),
        (without(SLURM_STEP_ID="zero"), "SLURM_STEP_ID: 'zero' is not an integer"),
        (without(SLURM_STEP_NUM_TASKS="two"), "SLURM_STEP_NUM_TASKS: 'two' is not an integer"),
        (without("SLURM_LOCALID"), "SLURM_LOCALID: not set; start it by srun"),
        (without(SLURM_LOCALID="2"), "SLURM_LOCALID: 2 is out of range, this machine has 2 tasks"),
        (without("SLURM_NODEID"), "SLURM_NODEID: not set"),
        (without(SLURM_NODEID="4"), "SLURM_NODEID: 4 is out of range"),
        (without(SLURM_STEP_TASKS_PER_NODE="2(x2"), "SLURM_STEP_TASKS_PER_NODE: '2(x2' are no"),
        (without(SLURM_STEP_TASKS_PER_NODE="2(x3)"), "'2(x3)' are 6 tasks, but the step has 7"),
        (without("SLURM_STEP_TASKS_PER_NODE"), "SLURM_TASKS_PER_NODE: not set"),
        (without(SLURM_STEP_NODELIST="a["), "SLURM_STEP_NODELIST: 'a[' is not a host list"),
        (without("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"), "SLURM_STEP_NODELIST: not set"),
        (without("SLURM_JOB_ID"), "SLURM_JOB_ID: not set"),
    ],
)
def test_inconsistent_variables_are_refused(env: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as refused:
        slurm.variables(env)
    assert message in str(refused.value)


def test_steps_and_jobs_have_distinct_ports() -> None:
    ports = [
        slurm.variables(without(SLURM_JOB_ID=str(job), SLURM_STEP_ID=str(step)))["MASTER_PORT"]
        for job in range(4_000_000, 4_000_100)
        for step in range(10)
    ]
    assert len(set(ports)) == len(ports)
    assert all(15_000 <= int(port) < 30_000 for port in ports)


def test_a_task_is_recognized_as_part_of_a_job(task: pytest.MonkeyPatch) -> None:
    assert ranks.in_job()
    task.setenv("WORLD_SIZE", "1")
    assert isinstance(group.join(torch.device("cpu")), group.Alone)
    task.delenv("WORLD_SIZE")
    task.setenv("MASTER_PORT", "http")
    with pytest.raises(UserError, match="MASTER_PORT: 'http' is not an integer"):
        group.join(torch.device("cpu"))
    task.delenv("SLURM_STEP_ID")
    assert not ranks.in_job()


@pytest.mark.parametrize(
    ("seen", "changes", "device"),
    [
        (2, {}, "cuda:1"),
        # With --gpu-bind=none, each task sees all GPUs.
        (8, {"SLURM_GPUS_PER_TASK": "1"}, "cuda:1"),
        (1, {"SLURM_GPUS_PER_TASK": "1"}, "cuda:0"),
        (1, {}, "device: 1 GPUs for 2 ranks on this machine; nearest: cpu"),
        (0, {"SLURM_GPUS_PER_TASK": "1"}, "device: no GPU on this machine; nearest: cpu"),
    ],
)
def test_a_task_uses_the_gpu_of_its_local_rank(
    task: pytest.MonkeyPatch, seen: int, changes: dict[str, str], device: str
) -> None:
    task.setattr(torch.cuda, "is_available", lambda: seen > 0)
    task.setattr(torch.cuda, "device_count", lambda: seen)
    task.setattr(torch.cuda, "set_device", lambda chosen: None)
    for name, value in (changes | {"SLURM_PROCID": "5", "SLURM_LOCALID": "1"}).items():
        task.setenv(name, value)
    try:
        assert str(ranks.device_of("cuda")) == device
    except UserError as refused:
        assert str(refused) == device


def test_a_requeued_job_resumes(tmp_path: Path, task: pytest.MonkeyPatch) -> None:
    task.chdir(tmp_path)
    (tmp_path / "out/train/pick/checkpoints").mkdir(parents=True)
    (tmp_path / "out/train/pick/checkpoints/latest.safetensors").touch()
    config = tmp_path / "out/train/pick/config.yaml"
    config.write_text(f"# {ranks.jobs()[0]}\nskill: pick\n")
    begun = {"skill": "pick"}
    assert loading.resumed(begun) == begun
    task.setenv("SLURM_RESTART_COUNT", "0")
    assert loading.resumed(begun) == begun
    task.setenv("SLURM_RESTART_COUNT", "2")
    assert loading.resumed(begun) == {"resume": "out/train/pick", "skill": "pick"}
    for other in ("skill: pick\n", "# slurm 7\nskill: pick\n"):  # begun by another job
        config.write_text(other)
        assert loading.resumed(begun) == begun
    task.setenv("SLURM_RESTART_COUNT", "often")
    with pytest.raises(UserError, match="SLURM_RESTART_COUNT: 'often' is not an integer"):
        loading.resumed(begun)


def test_a_job_near_its_time_limit_saves_is_requeued_and_resumes(tmp_path: Path) -> None:
    metrics = tmp_path / "out/train/navigate/metrics.jsonl"
    planned = 30 * ROLLOUT
    command = [
        "sbatch",
        "--nodes=2",
        "--ntasks-per-node=1",
        str(SCRIPT),
        *TINY,
        f"preset.steps={planned}",
    ]

    def updates() -> int:
        return len(metrics.read_text().splitlines()) if metrics.exists() else 0

    with fake_slurm.installed(tmp_path) as env, (tmp_path / "log").open("w") as log:
        env["FAKE_LAUNCHERS"] = "srun torchrun"
        job = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=log, stderr=subprocess.STDOUT, text=True
        )
        for restarts in (0, 1):
            done = updates()
            fake_slurm.wait_until(lambda done=done: updates() > done, job)
            os.kill(fake_slurm.script_pid(env), signal.SIGUSR1)
            fake_slurm.wait_until(
                lambda restarts=restarts: fake_slurm.requeues(env) > restarts, job
            )
        code = job.wait(fake_slurm.LIMIT_S)
        output = (tmp_path / "log").read_text()
        assert code == 0, output
        assert fake_slurm.processes(Path(env["FAKE_SLURM"])) == []
        assert fake_slurm.requeues(env) == 2
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert [row["update"] for row in rows] == list(range(1, len(rows) + 1))
    assert rows[-2]["steps"] < planned <= rows[-1]["steps"]
    assert output.count("training navigate for") == 1
    assert output.count("resuming navigate for") == 2
    assert output.count("stopped; resume with `tpsrl train resume=") == 2


def test_a_failed_job_is_not_requeued(tmp_path: Path) -> None:
    with fake_slurm.installed(tmp_path) as env:
        command = ["sbatch", "--nodes=1", "--ntasks-per-node=1", str(SCRIPT), "navigat"]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == 2 and "did you mean 'navigate'?" in done.stderr
        assert fake_slurm.requeues(env) == 0
