"""Benchmark of the skill environments, and of the task's logic alone.

As in `tpsrl.sim.bench`, figures are medians of thread time over short runs. The robot moves its arm
and turns to and fro on free floor, with 12 objects in the home.
"""

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from skills import registry
from skills.core import task
from skills.core.interface import SkillGoal
from skills.core.skill import Skill
from skills.envs.batch import SkillBatch
from skills.envs.options import EnvOptions
from skills.starts.start import Start
from tpsrl import sim
from tpsrl.sim import datasets
from tpsrl.sim.base import Simulator
from tpsrl.sim.bench import in_the_open
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import JOINTS

_OBJECTS = 12
_HOMES = 8
_TURN = 60
_SIZE = 64
_AJAR = JOINTS[2]

Work = Callable[[int], object]


def measure(seconds: float, say: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Measures each skill for about `seconds` and returns one row of JSON types for each.

    Steps per second are those of one home, with reward and observation. "task_us_1" and "task_us_8"
    are the microseconds that the task's logic (mask, reward, results, observation without depth)
    takes for each home, in batches of 1 and 8 homes.

    Args:
        seconds: duration for each skill
        say: prints progress
    """
    episode = in_the_open(
        datasets.load("tidy_house", "val", 1, num_objects=_OBJECTS, processes=1)[0]
    )
    simulator = sim.make(num_envs=_HOMES, slots=_OBJECTS)
    rows = []
    for name in registry.planned():
        say(f"skill {name}")
        rows.append({"skill": name, **_row(name, episode, simulator, seconds)})
    return rows


def _row(name: str, episode: Episode, simulator: Simulator, seconds: float) -> dict[str, float]:
    start = _start(registry.get(name).definition, episode)
    state = SkillBatch(EnvOptions.of(name), simulator)
    depth = SkillBatch(EnvOptions.of(name, depth=_SIZE), simulator)
    works = {
        "steps_with_state_per_s": _stepping(state, start, 1),
        f"steps_with_depth_{_SIZE}_per_s": _stepping(depth, start, 1),
        "task_us_1": _judging(name, start, simulator, 1),
        f"task_us_{_HOMES}": _judging(name, start, simulator, _HOMES),
    }
    turns: dict[str, list[float]] = {key: [] for key in works}
    end = time.perf_counter() + seconds
    while not turns["task_us_1"] or time.perf_counter() < end:
        for key, work in works.items():
            begin = time.thread_time()
            for i in range(_TURN):
                work(i)
            turns[key].append((time.thread_time() - begin) / _TURN)
    spent = {key: float(np.median(values[1:] or values)) for key, values in turns.items()}
    return {
        key: round(1e6 * one / int(key.rpartition("_")[2]) if "us" in key else 1.0 / one, 1)
        for key, one in spent.items()
    }


def _start(skill: Skill, episode: Episode) -> Start:
    """Returns a start with the episode's first target, a drawer ajar, the object held if needed."""
    target, marker = episode.targets[0], _AJAR
    held = target.object if skill.begins_holding else -1
    episode = dataclasses.replace(episode, held=held, articulation={marker: 0.3})
    return Start(episode, SkillGoal(target.object, target.goal, marker))


def _stepping(batch: SkillBatch, start: Start, homes: int) -> Work:
    """Returns a function that steps homes 0 to `homes` - 1 once."""
    env_ids = list(range(homes))
    batch.reset(env_ids, [start] * homes)
    swing = np.sign(np.sin(np.linspace(0, 2 * np.pi, _TURN, endpoint=False)))
    actions = np.zeros((_TURN, homes, act.SIZE))
    actions[:, :, act.ARM] = 0.5 * swing[:, None, None]
    actions[:, :, 9] = 0.3 * swing[:, None]
    actions[:, :, act.GRIP] = 1.0 if start.episode.held >= 0 else -1.0
    return lambda i: batch.step(env_ids, actions[i % _TURN])


def _judging(name: str, start: Start, simulator: Simulator, homes: int) -> Work:
    """Returns a function that evaluates a step of `homes` homes without simulating it.

    The evaluation consists of mask, reward, results and observation.
    """
    batch = SkillBatch(EnvOptions.of(name), simulator)
    env_ids = list(range(homes))
    batch.reset(env_ids, [start] * homes)
    skill, state, world = batch.skill, batch.task_state(env_ids), simulator.state(env_ids)
    chosen, limits = batch.settings, batch.thresholds
    actions = np.zeros((homes, act.SIZE))

    def judge(i: int) -> None:
        masked = task.masked(actions, batch.mask, world.held, world.held_joint, skill.grip)
        after, measures, _ = task.step(skill, state, masked, world, chosen, limits)
        batch.sense(env_ids, after, measures, world)

    return judge
