"""Benchmark of the speed of collectors, with collection and learning, side by side in one run.

Each collector is compared with a bound of its own, computed from the durations of its own steps,
resets included (see docs/ver.md):

- the environments' ceiling: sum over environments of steps / seconds at steps, their throughput if
  none ever waited;
- `sync`: T x N / (sum over lock-steps of the slowest step + learning time);
- `nover`: T x N / (the longest sum of an environment's steps + learning time);
- `ver`: T x N / (T x N / ceiling + learning time);
- `overlap`: the ceiling.
"""

import collections
import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tpsrl.rl.collection.accounting import WAITS
from tpsrl.rl.collection.collector import Collection
from tpsrl.rl.collection.settings import IN_PROCESS
from tpsrl.rl.collection.threads import learner_threads
from tpsrl.rl.envs.vec_env import Json, VecEnvFactory
from tpsrl.rl.learning.teaching import Teacher
from tpsrl.rl.run.assembly import assemble
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.runtime import figures, files, machine


@dataclasses.dataclass(frozen=True, slots=True)
class BenchSchedule:
    """Length of a benchmark: `turns`, in each of which every collector has `rollouts` that count.

    `warm_up` rollouts before the first turn do not count. In each turn, neither the first rollout
    counts, before which the environments had time to finish their steps, nor an additional last
    one, after which a collector that runs ahead pauses.
    """

    rollouts: int = 10
    turns: int = 4
    warm_up: int = 3


class _Runner:
    """One collector with its own policy and learner."""

    def __init__(
        self,
        name: str,
        settings: TrainSettings,
        factory: VecEnvFactory,
        processes: int,
        seed: int,
        device: torch.device | str,
        teacher: Teacher | None,
        threads: int,
    ) -> None:
        begun = time.perf_counter()
        self.name, self.threads = name, threads
        settings = dataclasses.replace(settings, collector=name)
        made = assemble(settings, factory, processes, seed, device, teacher=teacher)
        self.collector, self.rollouts = made.collector, made.rollouts
        self.policy, self.ppo = made.policy, made.ppo
        self.launch_s = time.perf_counter() - begun
        self.version = 0
        self.rows: list[Json] = []

    def turn(self, rollouts: int) -> None:
        """Runs `rollouts` rollouts that count, and one before and after them."""
        torch.set_num_threads(self.threads)
        rows, steps, windows = [], [], []
        for number in range(rollouts + 2):
            begun = time.monotonic()
            row, collection = self._round(ahead=number <= rollouts)
            rows.append(row)
            steps.append((collection.env, collection.ready_at, collection.took_s))
            windows.append((begun, time.monotonic()))
        env, end, took = (np.concatenate(parts) for parts in zip(*steps, strict=True))
        for row, window in zip(rows[1:-1], windows[1:-1], strict=True):
            then = ceiling_between(env, end, took, window, self.collector.num_envs)
            # A very short window may contain no part of any step.
            row["ceiling_then"] = then or row["ceiling"]
        self.rows += rows[1:-1]

    def _round(self, ahead: bool) -> tuple[Json, Collection]:
        """Collects one rollout and learns from it."""
        begun = time.perf_counter()
        collection = self.collector.collect(self.policy, self.rollouts, self.version, ahead)
        collected = time.perf_counter()
        self.ppo.update(collection.rollout, version=self.version)
        learning = time.perf_counter() - collected
        self.version += 1
        took = time.perf_counter() - begun
        row = {
            "samples": collection.steps,
            "took_s": took,
            "samples_per_s": collection.steps / took,
            "seconds": {**collection.seconds, "learning": learning},
            "waits": collection.waits,
            **_bounds(self.name, collection, learning, self.collector.num_envs),
        }
        return row, collection

    def report(self) -> Json:
        """Returns the results of all turns."""
        rows, total = self.rows, collections.Counter[str]()
        waits: collections.Counter[str] = collections.Counter()
        for row in rows:
            total.update(row["seconds"])
            waits.update(row["waits"])
        samples, took = sum(row["samples"] for row in rows), sum(row["took_s"] for row in rows)
        mean, most = samples / took, max(row["samples_per_s"] for row in rows)
        bound = samples / sum(row["samples"] / row["bound"] for row in rows)
        ceiling = samples / sum(row["samples"] / row["ceiling"] for row in rows)
        level = [row["samples_per_s"] / row["ceiling_then"] for row in rows]
        steps = np.array([row["steps"] for row in rows])
        return {
            "samples_per_s": {"mean": mean, "max": most, "mean_of_max": mean / most},
            "bound": bound,
            "of_bound": mean / bound,
            "ceiling": ceiling,
            "of_ceiling": mean / ceiling,
            "straggler": {"mean": float(np.mean(level)), "max": max(level)},
            "mean_of_max_level": float(np.mean(level)) / max(level),
            "steps_of_environment": [int(steps.min()), float(steps.mean()), int(steps.max())],
            "samples": samples,
            "seconds": dict(total),
            "waits": {cause: waits[cause] for cause in WAITS},
            "took_s": took,
            "launch_s": self.launch_s,
            "threads": self.threads,
            "rollouts": rows,
        }


def measure(
    names: Sequence[str],
    settings: TrainSettings,
    factory: VecEnvFactory,
    processes: int,
    schedule: BenchSchedule,
    seed: int = 0,
    device: torch.device | str = "cpu",
    say: Callable[[str], None] = lambda line: None,
    teacher: Teacher | None = None,
    threads: int = 0,
) -> Json:
    """Collects and learns with each collector in turn; returns JSON types.

    For each collector: "samples_per_s" over all rollouts ("mean") and in the best one ("max");
    "bound" and "ceiling" as above, in samples per second, and the fraction of each that was
    reached; "straggler", samples per second of a rollout over the ceiling of that time; minimum,
    mean and maximum number of "steps_of_environment" in a rollout; "seconds" of the process by
    cause, "waits" of the mean environment (see `tpsrl.rl.collection.collector.Collection`);
    "threads" of its learner (`threads=0`: `tpsrl.rl.collection.threads.learner_threads`). "load" is
    the machine's load average at the end, over a minute.

    Raises:
        UserError, RunError: see `tpsrl.rl.run.assembly.assemble`.
    """
    runners = []
    with contextlib.ExitStack() as stack:
        for name in names:
            say(f"launching {name}")
            count = threads or learner_threads(machine.cores(), name)
            runner = _Runner(name, settings, factory, processes, seed, device, teacher, count)
            stack.callback(runner.collector.close)
            runners.append(runner)
        for runner in runners:
            say(f"warming up {runner.name}")
            runner.turn(schedule.warm_up)
            runner.rows.clear()
        for turn in range(schedule.turns):
            for runner in runners:
                say(f"{runner.name}, turn {turn + 1} of {schedule.turns}")
                runner.turn(schedule.rollouts)
        return {
            "collectors": {runner.name: runner.report() for runner in runners},
            "load": os.getloadavg()[0],
        }


def _bounds(name: str, collection: Collection, learning: float, num_envs: int) -> Json:
    """Returns a rollout's bound, its ceiling, and the number of steps of each environment."""
    env, took, samples = collection.env, collection.took_s, collection.steps
    steps = np.bincount(env, minlength=num_envs)
    busy = np.bincount(env, took, minlength=num_envs)
    gave = steps > 0
    ceiling = float((steps[gave] / busy[gave]).sum())
    if name in ("sync", *IN_PROCESS):
        slowest = took.reshape(-1, num_envs).max(axis=1).sum()
        bound = samples / (slowest + learning)
    elif name == "nover":
        bound = samples / (busy.max() + learning)
    elif name == "overlap":
        bound = ceiling
    else:
        bound = samples / (samples / ceiling + learning)
    return {"bound": float(bound), "ceiling": ceiling, "steps": steps.tolist()}


def ceiling_between(
    env: np.ndarray,
    end: np.ndarray,
    took: np.ndarray,
    window: tuple[float, float],
    num_envs: int,
) -> float:
    """Returns the environments' ceiling within a window, in steps per second.

    A step that is partly within the window counts with that part, both of its time and as a step.

    Args:
        env: environment of each step (k,)
        end: when each step was complete (k,), s
        took: duration of each step (k,), s
        window: start and end, s
        num_envs: number of environments
    """
    inside = np.minimum(end, window[1]) - np.maximum(end - took, window[0])
    inside = np.clip(inside, 0.0, None)
    busy = np.bincount(env, inside, minlength=num_envs)
    steps = np.bincount(env, inside / took, minlength=num_envs)
    return float((steps[busy > 0] / busy[busy > 0]).sum())


def draw(report: Json, path: Any, title: str) -> None:
    """Plots a report: speed against bounds, speed over time, and waiting times of environments."""
    found = report["collectors"]
    names, places = list(found), np.arange(len(found))
    figure = figures.figure(figsize=(12.0, 3.8), layout="constrained", dpi=110)
    speed, course, waiting = figure.subplots(1, 3)

    means = [found[name]["samples_per_s"]["mean"] for name in names]
    speed.bar(places, means, color=[f"C{n}" for n in places])
    largest = [found[name]["samples_per_s"]["max"] for name in names]
    speed.plot(places, largest, "k_", markersize=16, label="best rollout")
    bounds = [found[name]["bound"] for name in names]
    speed.plot(places, bounds, "r_", markersize=16, label="bound")
    for place, mean in zip(places, means, strict=True):
        speed.text(place, mean / 2, f"{mean:,.0f}", ha="center", va="center")
    speed.set_xticks(places, names)
    speed.set_ylabel("samples/s, learning included")
    speed.set_ylim(0, 1.15 * max(*largest, *bounds))
    speed.legend(loc="upper left")

    for name in names:
        rows = found[name]["rollouts"]
        course.plot([row["samples_per_s"] / row["ceiling_then"] for row in rows], label=name)
    course.set_ylim(bottom=0)
    course.set_xlabel("rollout")
    course.set_ylabel("share of the environments' ceiling")
    course.legend()

    left = np.zeros(len(names))
    for cause in WAITS:
        share = np.array([found[n]["waits"][cause] / found[n]["took_s"] for n in names])
        waiting.barh(places, share, left=left, label=f"for {cause}")
        left += share
    waiting.set_yticks(places, names)
    waiting.invert_yaxis()
    waiting.set_xlim(0, 1)
    waiting.set_xlabel("share of time that environments wait")
    waiting.legend()
    figure.suptitle(title)
    with files.atomic(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:])
