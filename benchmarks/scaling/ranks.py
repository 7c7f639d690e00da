"""Real ranks on this machine that collect and learn together, one preemption rule after another.

Their environments only wait (`tpsrl.rl.bench.synthetic_env`), so that a few cores run many ranks.
The steps of the last rank take `slow` times as long.
"""

import contextlib
import dataclasses
import multiprocessing
import os
import pickle
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path

import torch

from tpsrl.errors import RunError
from tpsrl.rl.bench.synthetic import SyntheticVecEnvFactory
from tpsrl.rl.collection import preemption
from tpsrl.rl.collection.preemption import Pace
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.distributed import group as groups
from tpsrl.rl.distributed.group import Group
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run.assembly import Assembly, assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime.processes import end, end_with_parent, launch

_LOOK_S = 0.2
_ALL_REDUCES = 10


@dataclasses.dataclass(frozen=True, slots=True)
class RankPlan:
    """Number of ranks, slowness of the last one, and length of the measurement.

    Each rule has `turns` of `rollouts` that count. Not counted are `warm_up` rollouts before the
    first turn, and the first rollout of each turn, from which the rule `optimal` plans the next.
    """

    ranks: int = 5
    slow: float = 4.0
    rollouts: int = 6
    turns: int = 2
    warm_up: int = 2
    processes: int | None = None  # workers of each rank; None: one for each environment
    seed: int = 0


def measure(
    settings: TrainSettings,
    rules: dict[str, PreemptionSettings],
    plan: RankPlan,
    say: Callable[[str], None] = lambda line: None,
) -> Json:
    """Measures fresh samples per second of all ranks by rule, learning included; JSON types.

    For each rule: "samples_per_s"; the mean "shares" of a complete rollout that each rank
    collected; "learning_s" of an update without waiting for others; "inference_s" of a rollout. For
    all: "all_reduce_s", the time to average gradients when no rank is late.

    Raises:
        RunError: a rank failed.
    """
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory(prefix="tpsrl_ranks_") as folder:
        work = _Work(settings, rules, plan, _free_port(), folder)
        processes = [context.Process(target=work.run, args=(rank,)) for rank in range(plan.ranks)]
        for process in processes:
            launch(process)
        try:
            _wait(processes, Path(folder), say)
        finally:
            end(processes)
        measured = [
            pickle.loads((Path(folder) / f"{rank}").read_bytes()) for rank in range(plan.ranks)
        ]
    return _report(measured, settings, plan)


def _wait(processes: Sequence[SpawnProcess], folder: Path, say: Callable[[str], None]) -> None:
    """Waits until all ranks are done."""
    shown = ""
    while any(process.is_alive() for process in processes):
        for rank, process in enumerate(processes):
            if process.exitcode not in (None, 0):
                raise RunError(f"rank {rank} ended with exit code {process.exitcode}")
        with contextlib.suppress(OSError):
            line = (folder / "says").read_text()
            if line != shown:
                shown = line
                say(line)
        time.sleep(_LOOK_S)
    for rank, process in enumerate(processes):
        if process.exitcode != 0:
            raise RunError(f"rank {rank} ended with exit code {process.exitcode}")


@dataclasses.dataclass(frozen=True, slots=True)
class _Work:
    """Work of each rank."""

    settings: TrainSettings
    rules: dict[str, PreemptionSettings]
    plan: RankPlan
    port: int
    folder: str

    def run(self, rank: int) -> None:
        """Runs a rank in its own process."""
        end_with_parent()
        torch.set_num_threads(1)
        os.environ |= {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.plan.ranks),
            "LOCAL_WORLD_SIZE": str(self.plan.ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port),
        }
        group = groups.join(torch.device("cpu"))
        with contextlib.ExitStack() as stack:
            stack.callback(groups.leave)
            found = self._measure(group, stack)
            (Path(self.folder) / str(rank)).write_bytes(pickle.dumps(found))
            group.any(False)  # no rank leaves before the last one is done

    def _measure(self, group: Group, stack: contextlib.ExitStack) -> Json:
        plan, own = self.plan, self.settings
        last = group.rank == group.size - 1 and group.size > 1
        factory = SyntheticVecEnvFactory("waiting", plan.seed, plan.slow if last else 1.0)
        workers = own.num_envs if plan.processes is None else plan.processes
        turns = _Turns(group, self.rules, own.num_envs * own.num_steps)
        made = assemble(own, factory, workers, plan.seed, group=group, stops=turns)
        stack.callback(made.collector.close)
        runner = _Runner(made, own, group)
        rows: dict[str, list[Json]] = {name: [] for name in self.rules}
        for turn in range(plan.turns + 1):
            for name in self.rules:
                at = f"turn {turn} of {plan.turns}" if turn else "warming up"
                self._say(group, f"{name}, {at}")
                turns.rule = name
                found = runner.turn(plan.rollouts if turn else plan.warm_up)
                rows[name] += found if turn else []
        return {"rules": rows, "all_reduce_s": _all_reduce(group, made)}

    def _say(self, group: Group, line: str) -> None:
        if group.rank == 0:
            (Path(self.folder) / "says").write_text(line)


class _Turns:
    """Preemption by the rule with the name `rule`, which may be changed."""

    def __init__(self, group: Group, rules: dict[str, PreemptionSettings], size: int) -> None:
        self._rules = {name: preemption.make(group, rule, size) for name, rule in rules.items()}
        self.rule = next(iter(rules))

    def begin(self) -> None:
        """See `tpsrl.rl.collection.preemption.Preemption.begin`."""
        self._rules[self.rule].begin()

    def stops(self, complete: int) -> bool:
        """See `tpsrl.rl.collection.preemption.Preemption.stops`."""
        return self._rules[self.rule].stops(complete)

    def plan(self, pace: Pace, learning_s: float) -> None:
        """See `tpsrl.rl.collection.preemption.Preemption.plan`."""
        self._rules[self.rule].plan(pace, learning_s)


class _Runner:
    """Learner of a rank, independent of the rule."""

    def __init__(self, made: Assembly, settings: TrainSettings, group: Group) -> None:
        self._made, self._settings, self._group = made, settings, group
        self._version = 0

    def turn(self, rollouts: int) -> list[Json]:
        """Runs one rollout that does not count, to plan the next, then `rollouts` that count."""
        return [self._round() for _ in range(rollouts + 1)][1:]

    def _round(self) -> Json:
        made, settings = self._made, self._settings
        self._group.any(False)  # so that all ranks begin together
        begun = time.perf_counter()
        found = made.collector.collect(made.policy, made.rollouts, self._version, ahead=False)
        collected = time.perf_counter()
        made.ppo.update(found.rollout, version=self._version)
        done = time.perf_counter()
        size = settings.num_envs * settings.num_steps
        pace = Pace.of(found.env, found.took_s, found.ready_at, settings.num_envs, size)
        made.preemption.plan(pace, done - collected)
        self._version += 1
        return {
            "fresh": found.rollout.num_fresh,
            "took_s": time.perf_counter() - begun,
            "learning_s": done - collected,
            "inference_s": found.seconds["inference"] + found.seconds["copying"],
        }


def _all_reduce(group: Group, made: Assembly) -> float:
    """Returns the seconds to average a gradient."""
    parts = [torch.zeros_like(p) for p in made.policy.parameters() if p.requires_grad]
    group.average(parts, 1.0)
    begun = time.perf_counter()
    for _ in range(_ALL_REDUCES):
        group.average(parts, 1.0)
    return (time.perf_counter() - begun) / _ALL_REDUCES


def _report(measured: Sequence[Json], settings: TrainSettings, plan: RankPlan) -> Json:
    """Merges the measurements of all ranks."""
    size = settings.num_envs * settings.num_steps
    found: Json = {}
    for name in measured[0]["rules"]:
        rows = list(zip(*(rank["rules"][name] for rank in measured), strict=True))
        fresh = [[row["fresh"] for row in each] for each in rows]
        took = [max(row["took_s"] for row in each) for each in rows]
        found[name] = {
            "samples_per_s": sum(map(sum, fresh)) / sum(took),
            "shares": [sum(column) / len(rows) / size for column in zip(*fresh, strict=True)],
            "learning_s": _mean([min(row["learning_s"] for row in each) for each in rows]),
            "inference_s": _mean([_mean([row["inference_s"] for row in each]) for each in rows]),
            "iteration_s": _mean(took),
            "rollouts": len(rows),
        }
    return {
        "ranks": plan.ranks,
        "slow": plan.slow,
        "all_reduce_s": max(rank["all_reduce_s"] for rank in measured),
        "rules": found,
    }


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
