"""Runs a function on several ranks, and commands in forks.

As a script it runs one command in a fork: `python tests/ranks.py MODULE ARGUMENTS`.
"""

import contextlib
import importlib
import os
import pickle
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from multiprocessing import context, forkserver, popen_forkserver
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
from torch.distributed.elastic.multiprocessing.subprocess_handler import subprocess_handler

from tpsrl.rl.distributed import group as groups
from tpsrl.rl.distributed.group import Group

_LIMIT_S = 120.0
# Imported once, by the process from which all ranks are forked.
_IMPORTED = [
    "pytest",
    "safetensors.torch",
    "skills.navigate.task",
    "torch._dynamo",  # imported by optimizers
    "torch.distributed.run",
    "tpsrl.cli",
    "tpsrl.commands.train",
    "tpsrl.rl.distributed.group",
    "tpsrl.rl.imitation.cloner",
    "tpsrl.rl.run.assembly",
    "tpsrl.rl.run.trainer",
    "tpsrl.sim.importing",
    "tpsrl.sim.mujoco_sim",
    "tpsrl.training.launch",
    "tpsrl.training.run",
    "eval.running.skill_evaluator",
]
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
# Arguments of `subprocess.Popen._execute_child`, after the command.
_TOLD = (
    *("executable", "preexec_fn", "close_fds", "pass_fds", "cwd", "env", "startupinfo"),
    *("creationflags", "shell", *_PIPES, "restore_signals", "gid", "gids", "uid", "umask"),
    *("start_new_session", "process_group"),
)
# Separate from the server of `multiprocessing`, which workers of trainings have started already.
_server = forkserver.ForkServer()
_server.set_forkserver_preload(_IMPORTED)


class Process(context.ForkServerProcess):
    """A fork of a process that has imported the modules of ranks."""

    @staticmethod
    def _Popen(process: Any) -> Any:
        connect = _server.connect_to_new_process
        with mock.patch.object(forkserver, "connect_to_new_process", connect):
            return popen_forkserver.Popen(process)


class Forked(subprocess.Popen[str]):
    """`python -m MODULE ARGUMENTS` in a fork of this process instead of a new interpreter."""

    def _execute_child(self, args: Any, *others: Any) -> None:
        if "-m" not in args:
            super()._execute_child(args, *others)  # type: ignore[misc]
            return
        options = dict(zip(_TOLD, others, strict=True))
        self.pid = os.fork()
        if self.pid == 0:
            _become([*args], options)
        self._child_created = True
        self._close_pipe_fds(*(options[name] for name in _PIPES))  # type: ignore[attr-defined]


def fork_all() -> None:
    """Imports the modules of a training, and makes this process start its children as forks."""
    for name in _IMPORTED:
        importlib.import_module(name)
    for module in (subprocess, subprocess_handler):
        module.Popen = Forked  # type: ignore[attr-defined]


def _become(command: list[str], options: dict[str, Any]) -> NoReturn:
    """Turns this process into a command, and exits."""
    code = 1
    try:
        if options["start_new_session"]:
            os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for number, name in ((1, "c2pwrite"), (2, "errwrite")):
            if options.get(name, -1) >= 0:
                os.dup2(options[name], number)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        os.chdir(options["cwd"] or ".")
        if options["env"] is not None:
            os.environ.clear()
            os.environ.update(options["env"])
        warnings.filterwarnings("ignore", "'.*' found in sys.modules")  # of repeated modules
        module, *words = command[command.index("-m") + 1 :]
        sys.argv = [module, *words]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.__excepthook__(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class Command:
    """`python -m` with arguments in a folder; the command and all its processes are forks.

    Args:
        words: a module and its arguments
        folder: working directory
        prepare: called in the process before the command; must be picklable
    """

    def __init__(
        self, words: list[str], folder: Path, prepare: Callable[[], None] | None = None
    ) -> None:
        folders = [Path(tempfile.mkdtemp(dir=folder, prefix="said")) / n for n in ("out", "err")]
        self._said = [str(path) for path in folders]
        self.process = Process(target=_command, args=(words, folder, self._said, prepare))
        self.process.start()

    def end(self) -> tuple[int | None, str, str]:
        """Waits for the end of the command; returns its exit code, stdout and stderr."""
        try:
            self.process.join(_LIMIT_S)
            out, err = (Path(path).read_text() for path in self._said)
            return self.process.exitcode, out, err
        finally:
            self.process.kill()


def _command(
    words: list[str], folder: Path, paths: list[str], prepare: Callable[[], None] | None
) -> None:
    torch.set_num_threads(1)
    for name in [*os.environ]:
        if name in ("WORLD_SIZE", "RANK") or name.startswith("SLURM_"):
            del os.environ[name]
    os.environ["OMP_NUM_THREADS"] = "1"
    if prepare is not None:
        prepare()
    fork_all()
    out, err = (os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) for path in paths)
    options = {"start_new_session": True, "c2pwrite": out, "errwrite": err, "cwd": folder}
    _become(["-m", *words], options | {"env": None})


def run(count: int, work: Callable[..., Any], folder: Path, *args: Any) -> list[Any]:
    """Returns the result of `work(group, *args)` on each of `count` ranks; it must be picklable."""
    port = _free_port()
    processes = [
        Process(target=_rank, args=(rank, count, port, work, folder, args)) for rank in range(count)
    ]
    for process in processes:
        process.start()
    try:
        for process in processes:
            process.join(_LIMIT_S)
        assert [process.exitcode for process in processes] == [0] * count
    finally:
        for process in processes:
            process.kill()
    return [pickle.loads((folder / f"rank{rank}").read_bytes()) for rank in range(count)]


def _rank(
    rank: int, count: int, port: int, work: Callable[..., Any], folder: Path, args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    os.environ |= {
        "RANK": str(rank),
        "WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    group: Group = groups.join(torch.device("cpu"))
    with contextlib.ExitStack() as stack:
        stack.callback(groups.leave)
        found = work(group, *args)
        (folder / f"rank{rank}").write_bytes(pickle.dumps(found))
    # A surviving thread could abort the process while the interpreter ends.
    assert "pt_gloo_runloop" not in _threads()


def _threads() -> list[str]:
    return [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    fork_all()
    _become(["-m", *sys.argv[1:]], {"start_new_session": False, "cwd": None, "env": None})
