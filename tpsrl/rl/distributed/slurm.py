"""Translation of SLURM's variables of a process into those of torchrun.

torchrun describes each rank by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT. `srun` describes its tasks by the same values under other names. The functions read
only the variables that they are given, and torch is not needed.
"""

import re
from collections.abc import Mapping

from tpsrl.errors import UserError

_SPECIAL_STEPS = 0xFFFFFF00  # first step id of batch scripts and interactive shells
_FIRST_PORT, _PORTS = 15_000, 15_000  # below the ephemeral ports of Linux
_STEPS = 10  # steps of a job with ports of their own; later ones use those of the next job
_COUNT = re.compile(r"(?P<tasks>\d+)(?:\(x(?P<nodes>\d+)\))?")
_RANGES = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")


def variables(env: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of torchrun: those that it has set, or equivalents from srun's.

    The result is empty for a process that is not one of several: without either launcher, in a step
    of one task, and in the shell of an allocation, where the number of tasks is set although the
    shell belongs to none of their steps.

    Args:
        env: environment variables of the process

    Raises:
        UserError: variables of SLURM are invalid or contradictory; names the variable.
    """
    if "WORLD_SIZE" in env:
        return dict(env)
    name, size = _size(env)
    if size == 1:
        return {}
    rank = _number(env, "SLURM_PROCID")
    if rank >= size:
        raise UserError(f"SLURM_PROCID: {rank} is out of range, {name} is {size}")
    local_rank, local_size = _number(env, "SLURM_LOCALID"), _tasks_here(env, size)
    if local_rank >= local_size:
        raise UserError(
            f"SLURM_LOCALID: {local_rank} is out of range, this machine has {local_size} tasks"
        )
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "MASTER_ADDR": env.get("MASTER_ADDR") or _address(env, size == local_size),
        "MASTER_PORT": env.get("MASTER_PORT") or str(_port(env)),
    }


def is_requeued(env: Mapping[str, str]) -> bool:
    """Returns whether the job of this process ran before and was requeued.

    Raises:
        UserError: SLURM_RESTART_COUNT is not an integer.
    """
    return bool(env.get("SLURM_RESTART_COUNT")) and _number(env, "SLURM_RESTART_COUNT") > 0


def has_own_gpus(env: Mapping[str, str]) -> bool:
    """Returns whether srun shows each rank only its own GPUs, which are then numbered from 0."""
    return "WORLD_SIZE" not in env and bool(env.get("SLURM_GPUS_PER_TASK"))


def first_host(hosts: str, name: str = "hosts") -> str:
    """Returns the first host of a list in SLURM's format, such as node[01-03,7],other.

    Args:
        hosts: the list
        name: name of the list in messages

    Raises:
        UserError: the list is invalid.
    """
    inside = first = ""
    open_ = False
    for letter in hosts.strip():
        if letter == "," and not open_:
            break
        if letter == "[" and not open_:
            open_, inside = True, ""
        elif letter == "]" and open_ and _RANGES.fullmatch(inside):
            open_, first = False, first + re.split("[,-]", inside)[0]
        elif letter in "[]" or letter.isspace():
            raise _no_list(hosts, name)
        elif open_:
            inside += letter
        else:
            first += letter
    if open_ or not first:
        raise _no_list(hosts, name)
    return first


def _no_list(hosts: str, name: str) -> UserError:
    return UserError(f"{name}: '{hosts}' is not a host list such as node[01-03,7],other")


def _size(env: Mapping[str, str]) -> tuple[str, int]:
    """Returns the variable with the number of tasks of this process's step, and the number.

    The number is 1 if there is no such step. SLURM_NTASKS may be that of the whole job, so the
    step's own variable takes precedence.
    """
    if not env.get("SLURM_STEP_ID") or not env.get("SLURM_PROCID"):
        return "", 1
    if _number(env, "SLURM_STEP_ID") >= _SPECIAL_STEPS:
        return "", 1
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"):
        if env.get(name):
            return name, max(_number(env, name), 1)
    return "", 1


def _tasks_here(env: Mapping[str, str], size: int) -> int:
    """Returns the number of tasks of the step on this machine."""
    for name in ("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"):
        if env.get(name):
            counts = _tasks_per_node(env[name], name)
            if sum(counts) != size:
                raise UserError(
                    f"{name}: '{env[name]}' are {sum(counts)} tasks, but the step has {size}"
                )
            node = _number(env, "SLURM_NODEID") if len(counts) > 1 else 0
            if node >= len(counts):
                raise UserError(
                    f"SLURM_NODEID: {node} is out of range, {name} has {len(counts)} machines"
                )
            return counts[node]
    if env.get("SLURM_NTASKS_PER_NODE"):
        return min(_number(env, "SLURM_NTASKS_PER_NODE"), size)
    raise UserError("SLURM_TASKS_PER_NODE: not set, but SLURM_PROCID is; start it by srun")


def _tasks_per_node(text: str, name: str) -> list[int]:
    """Parses task counts: 2(x3),1 -> [2, 2, 2, 1]."""
    counts: list[int] = []
    for part in text.split(","):
        match = _COUNT.fullmatch(part.strip())
        if match is None:
            raise UserError(f"{name}: '{text}' are not task counts such as 2(x3),1")
        counts += [int(match["tasks"])] * int(match["nodes"] or 1)
    return counts


def _address(env: Mapping[str, str], one_machine: bool) -> str:
    """Returns the host of rank 0: the first machine of the step."""
    if one_machine:
        return "127.0.0.1"  # needs no name service
    for name in ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"):
        if env.get(name):
            return first_host(env[name], name)
    raise UserError("SLURM_STEP_NODELIST: not set, nor MASTER_ADDR; start it by srun")


def _port(env: Mapping[str, str]) -> int:
    """Returns a port that all ranks of the step compute alike, unlike other jobs on the machine."""
    own = _STEPS * _number(env, "SLURM_JOB_ID") + _number(env, "SLURM_STEP_ID")
    return _FIRST_PORT + own % _PORTS


def _number(env: Mapping[str, str], name: str) -> int:
    text = env.get(name, "")
    if not (text.isascii() and text.isdigit()):
        problem = f"'{text}' is not an integer" if text else "not set"
        raise UserError(f"{name}: {problem}; start it by srun")
    return int(text)
