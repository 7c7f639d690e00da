"""Stand-in for SLURM on this machine: `sbatch`, `srun`, `scancel` and `scontrol`.

All machines of a job are this one. Every process started from here has the folder FAKE_SLURM in its
environment, by which it is found whatever its session and process group. As in SLURM, `sbatch`
reads the script's #SBATCH lines (and here waits for the job), `scancel` signals the steps but not
the script, and `srun` kills its tasks on SIGTERM. If there are several tasks, they are forks of an
`srun` process that has imported their modules.
"""

import contextlib
import os
import re
import shlex
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 600.0
_LOOK_S = 0.05


@contextlib.contextmanager
def installed(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment with the stand-in; kills all remaining processes at the end."""
    bin_ = folder / "slurm" / "bin"
    bin_.mkdir(parents=True)
    for name in _COMMANDS:
        command = f'#!/bin/sh\nexec {sys.executable} {__file__} {name} "$@"\n'
        (bin_ / name).write_text(command)
        (bin_ / name).chmod(stat.S_IRWXU)
    hidden = ("WORLD_SIZE", "RANK", "MASTER_ADDR", "MASTER_PORT", "LAUNCHER")
    kept = {k: v for k, v in os.environ.items() if k not in hidden and not k.startswith("SLURM_")}
    path = os.pathsep.join([str(bin_), str(Path(sys.executable).parent), os.environ["PATH"]])
    own = {"PATH": path, "FAKE_SLURM": str(bin_.parent), "PYTHONPATH": str(ROOT)}
    try:
        yield kept | own | {"OMP_NUM_THREADS": "1"}
    finally:
        for pid in processes(bin_.parent):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def processes(folder: Path) -> list[int]:
    """Returns the processes started with this folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            is_here = f"FAKE_SLURM={folder}\0" in path.read_text(errors="replace")
            if is_here and int(path.parent.name) != os.getpid():
                found.append(int(path.parent.name))
    return found


def _begun_by(pid: int) -> Iterator[int]:
    """Yields all descendants of a process."""
    for path in Path("/proc").glob(f"{pid}/task/*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield int(child)
                yield from _begun_by(int(child))


def wait_until(is_so: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    """Waits for a condition; fails if the process ends or `LIMIT_S` is exceeded."""
    end = time.monotonic() + LIMIT_S
    while not is_so():
        assert process.poll() is None, f"ended with {process.returncode}"
        assert time.monotonic() < end
        time.sleep(_LOOK_S)


def free_port() -> int:
    """Returns an unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def script_pid(env: Mapping[str, str]) -> int:
    """Returns the process id of the job's script."""
    return int((Path(env["FAKE_SLURM"]) / "script").read_text())


def requeues(env: Mapping[str, str]) -> int:
    """Returns how often a job was requeued."""
    path = Path(env["FAKE_SLURM"]) / "requeued"
    return len(path.read_text().splitlines()) if path.exists() else 0


def _split(words: list[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the options, all of the form --name=value, and the words after them."""
    count = next((i for i, word in enumerate(words) if not word.startswith("--")), len(words))
    pairs = (word.removeprefix("--").partition("=") for word in words[:count])
    return {name: value for name, _, value in pairs}, words[count:]


def _sbatch(words: list[str]) -> int:
    given, (script, *rest) = _split(words)
    lines = re.findall(r"^#SBATCH (.*)$", Path(script).read_text(), re.MULTILINE)
    options = _split([word for line in lines for word in shlex.split(line)])[0] | given
    assert re.fullmatch(r"B:USR1@\d+", options["signal"]) and "requeue" in options
    nodes = int(options["nodes"])
    env = os.environ | {
        "SLURM_JOB_ID": "4711",
        "SLURM_JOB_NUM_NODES": str(nodes),
        "SLURM_JOB_NODELIST": f"node[1-{nodes}]",
        "SLURM_NTASKS": str(nodes * int(options["ntasks-per-node"])),
        "SLURM_NTASKS_PER_NODE": options["ntasks-per-node"],
        "SLURM_CPUS_PER_TASK": options["cpus-per-task"],
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "MASTER_PORT": str(free_port()),
    }
    if nodes > 1:
        env["MASTER_ADDR"] = "127.0.0.1"  # node1 cannot be resolved
    restarts = 0
    while True:
        if restarts:
            env["SLURM_RESTART_COUNT"] = str(restarts)
        if launchers := env.get("FAKE_LAUNCHERS", "").split():
            env["LAUNCHER"] = launchers[restarts % len(launchers)]
        job = subprocess.Popen(["bash", script, *rest], env=env)
        (Path(env["FAKE_SLURM"]) / "script").write_text(str(job.pid))
        code = job.wait()
        if requeues(env) == restarts:
            return code
        restarts += 1


def _srun(words: list[str]) -> int:
    options, command = _split(words)
    nodes = int(os.environ["SLURM_JOB_NUM_NODES"])
    each = int(options.get("ntasks-per-node", os.environ["SLURM_NTASKS_PER_NODE"]))
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(nodes * each),
        "SLURM_NTASKS": str(nodes * each),
        "SLURM_STEP_TASKS_PER_NODE": f"{each}(x{nodes})" if nodes > 1 else str(each),
        "SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"],
    }
    begin = _forking() if nodes * each > 1 else subprocess.Popen
    (Path(os.environ["FAKE_SLURM"]) / "srun").write_text(str(os.getpid()))
    tasks = []
    for rank in range(nodes * each):
        place = {
            "SLURM_PROCID": str(rank),
            "SLURM_LOCALID": str(rank % each),
            "SLURM_NODEID": str(rank // each),
        }
        env = os.environ | step | place
        tasks.append(begin(command, env=env, start_new_session=True))

    def kill(number: int, frame: object) -> None:
        for task in tasks:
            task.kill()

    signal.signal(signal.SIGTERM, kill)
    codes = [task.wait() for task in tasks]
    return max(128 - code if code < 0 else code for code in codes)


def _forking() -> Callable[..., "subprocess.Popen[str]"]:
    """Returns a function that starts a command in a fork of this process."""
    import ranks

    ranks.fork_all()
    modules = {"tpsrl": "tpsrl", "torchrun": "torch.distributed.run"}
    return lambda command, **more: ranks.Forked(["-m", modules[command[0]], *command[1:]], **more)


def _scancel(words: list[str]) -> int:
    options, (job,) = _split(words)
    assert job == os.environ["SLURM_JOB_ID"]
    srun = int((Path(os.environ["FAKE_SLURM"]) / "srun").read_text())
    for pid in [*_begun_by(srun)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, getattr(signal, f"SIG{options['signal']}"))
    return 0


def _scontrol(words: list[str]) -> int:
    if words[:2] == ["show", "hostnames"]:
        print("\n".join(["127.0.0.1"] * int(os.environ["SLURM_JOB_NUM_NODES"])))
        return 0
    assert words == ["requeue", os.environ["SLURM_JOB_ID"]]
    with (Path(os.environ["FAKE_SLURM"]) / "requeued").open("a") as file:
        file.write(f"{words[1]}\n")
    return 0


_COMMANDS = {"sbatch": _sbatch, "srun": _srun, "scancel": _scancel, "scontrol": _scontrol}

if __name__ == "__main__":
    sys.exit(_COMMANDS[sys.argv[1]](sys.argv[2:]))
