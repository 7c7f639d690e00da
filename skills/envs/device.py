"""Environments of a skill that step together on the device of a `BatchSimulator`.

The skill's task and sensors are those of `skills.envs.batch`, with tensors instead of numpy arrays.
Episodes begin in start states that were copied to the device before, and nothing is read from the
device until the statistics of a rollout's episodes are.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from skills import registry
from skills.core import sensors, task
from skills.core.arrays import Array
from skills.core.context import MeasureContext
from skills.core.sensors import (
    CATEGORY,
    CLEARANCE,
    EXPLORED,
    FACING,
    FRONTIER,
    LASER,
    MOTION,
    NEIGHBOURS,
    OF_GAPS,
    OF_SEARCH,
    SIGHTING,
    Readings,
    SensorContext,
)
from skills.core.skill import Skill
from skills.core.state import Goals, TaskState
from skills.core.task import StepOutcome
from skills.envs.device_maps import Begun, DeviceMaps
from skills.envs.options import EnvOptions
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl.errors import UserError
from tpsrl.rl.envs import device_env
from tpsrl.rl.envs.device_env import DeviceObservation, DeviceStep
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json
from tpsrl.runtime import progress
from tpsrl.sim.batch.base import BatchSimulator
from tpsrl.world.handles import handle
from tpsrl.world.state import WorldState

SUCCESS, TIMEOUT = "success", "timeout"

# Sensors that need a map which the robot builds, or a detector.
_LACKING = (EXPLORED, FRONTIER, SIGHTING, CATEGORY, *OF_SEARCH)
_STATISTICS = 5  # columns of `_Records` before the reward terms
_LEAST_WEIGHT = 1e-12  # of a part of a mixture


class DeviceSkillEnv:
    """One skill in all homes of a batch simulator; a `tpsrl.rl.envs.device_env.DeviceEnv`.

    Args:
        options: options of the environments
        spec: observations and actions of the environments
        batch: the homes
        starts: start states and their indices
        source: the source of `starts`
        env_ids: numbers of the environments among those of all ranks
        seed: seed of the draws of start states
        limit_ends: see `skills.envs.training.TrainingVecEnvFactory`, as is `desynchronise`
        desynchronise: see there

    `check` must have accepted the options.
    """

    def __init__(
        self,
        options: EnvOptions,
        spec: EnvSpec,
        batch: BatchSimulator,
        starts: Sequence[tuple[int, Start]],
        source: StartSource,
        env_ids: Sequence[int],
        seed: int,
        limit_ends: bool,
        desynchronise: bool,
    ) -> None:
        self.num_envs, self.spec = batch.num_envs, spec
        self._options, self._batch = options, batch
        self._skill: Skill = registry.get(options.skill).definition
        self._names = list(env_ids)
        self._limit_ends, self._desynchronise = limit_ends, desynchronise
        self._mask = np.array(options.mask)
        batch.prepare([start.episode for _, start in starts])
        self._index = [index for index, _ in starts]
        self._group = [source.group(index) for index in self._index]
        self._part_ends = np.cumsum([count for _, count in source.parts])
        self.device = batch.state().base.device
        self._goals = Goals.of([start.goal for _, start in starts]).converted(self._tensor)
        self._facing = self._tensor(np.array([_facing(start) for _, start in starts]))
        self._weights = torch.ones(len(starts), device=self.device)
        self._random = device_env.random_on(self.device, seed)
        self._start = torch.zeros(self.num_envs, dtype=torch.int64, device=self.device)
        self._task: TaskState | None = None
        self._world: WorldState = batch.state()
        self._records = _Records(self.num_envs, self.device)
        inputs, critic, settings = options.inputs, options.critic, options.task
        self._sensed = frozenset((*inputs.sensors, *(critic.sensors if critic else ())))
        self._judges_gaps = settings.near > 0.0 or (
            self._skill.grips_by_gaps and settings.grip > 0.0
        )
        given = [start for _, start in starts]
        self._maps = DeviceMaps(
            self._skill,
            tuple(self._sensed),
            options.thresholds,
            given,
            functools.partial(self._begun, given),
            self.num_envs,
            self.device,
            rewards_way=settings.way != 0.0,
            rewards_hand=settings.hand != 0.0,
        )

    def _begun(self, starts: Sequence[Start]) -> Begun:
        """Returns where the skill begins in the start states."""
        world = self._batch.prepared()
        goals = Goals.of([start.goal for start in starts])
        state = task.begin(self._skill, goals, world, self._options.thresholds)
        return Begun(world.base, world.joints, np.asarray(self._skill.destination(state)))

    # -- episodes ------------------------------------------------------------------------------

    def reset(self) -> DeviceObservation:
        """See `tpsrl.rl.envs.device_env.DeviceEnv.reset`."""
        self._records = _Records(self.num_envs, self.device)
        every = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        begun = self._begin(every)
        if self._desynchronise:
            most = self._options.task.horizon
            begun.steps = torch.randint(
                most, (self.num_envs,), generator=self._random, device=self.device
            )
        self._task = begun
        return self._observe(begun)

    def step(self, actions: torch.Tensor) -> DeviceStep:
        """See `tpsrl.rl.envs.device_env.DeviceEnv.step`."""
        assert self._task is not None
        options, before = self._options, self._world
        actions = task.masked(actions, self._mask, before.held, before.held_joint, self._skill.grip)
        self._batch.step(actions)
        self._world = _copied(self._batch.state())
        path = self._maps.drive(self._start, self._world)
        near = self._neighbours(self._task) if self._judges_gaps else None
        after, _, outcome = task.step(
            self._skill,
            self._task,
            actions,
            self._world,
            options.task,
            options.thresholds,
            path,
            object_pos=before.object_pos,
            gaps=None if near is None else sensors.gaps_of(near, 0.0),
        )
        reward, terminated, truncated = map(
            _as_tensor, (outcome.reward, outcome.terminated, outcome.truncated)
        )
        final: DeviceObservation | None = None
        if self._limit_ends:
            terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
        else:
            final = self._observe(after)
        ended = terminated | truncated
        self._records.add(outcome, _as_tensor(after.steps), self._start, ended)
        self._task = after.merged(ended, self._begin(ended))
        shown = self._observe(self._task)
        return DeviceStep(shown, reward.float(), terminated, truncated, final)

    def _begin(self, which: torch.Tensor) -> TaskState:
        """Restarts the homes under `which` (n,); returns tasks that begin, valid there only."""
        sums = self._weights.cumsum(0)
        at = torch.rand(self.num_envs, generator=self._random, device=self.device) * sums[-1]
        drawn = torch.searchsorted(sums, at, right=True).clamp(max=len(sums) - 1)
        self._start = torch.where(which, drawn, self._start)
        self._batch.restart(which, self._start)
        self._world = _copied(self._batch.state())
        self._maps.begin(which, self._start, self._world)
        goals, thresholds = self._goals.take(self._start), self._options.thresholds
        return task.begin(self._skill, goals, self._world, thresholds)

    def _neighbours(self, state: TaskState) -> torch.Tensor:
        """Returns `BatchSimulator.neighbours` of all homes with these tasks."""
        places = _as_tensor(self._skill.destination(state))
        return self._batch.neighbours(_as_tensor(state.object), places)

    def episodes(self) -> list[EpisodeStats]:
        """See `tpsrl.rl.envs.device_env.DeviceEnv.episodes`."""
        self._batch.check()
        rows, names = self._records.take()
        return [self._episode(row, names) for row in rows]

    def _episode(self, row: np.ndarray, names: Sequence[str]) -> EpisodeStats:
        """Returns an episode's statistics from a row of `_Records.take`."""
        env, start, steps, reward, end = row[:_STATISTICS].tolist()
        success = end < 0
        return EpisodeStats(
            env=self._names[int(env)],
            start_index=self._index[int(start)],
            steps=int(steps),
            reward=reward,
            success=success,
            ended_by=ending(self._skill, success, int(end)),
            terms=dict(zip(names, row[_STATISTICS:].tolist(), strict=True)),
            start_group=self._group[int(start)],
        )

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.weigh`.

        The parts of a mixture keep their shares of the draws.
        """
        groups = np.array(self._group)
        counts = np.bincount(groups, minlength=len(weights))
        each = weights[groups] / counts[groups]
        part = np.searchsorted(self._part_ends, groups, "right")
        share = np.bincount(part) / np.maximum(np.bincount(part, each), _LEAST_WEIGHT)
        self._weights = self._tensor((each * share[part]).astype(np.float32))

    # -- observations --------------------------------------------------------------------------

    def _observe(self, state: TaskState) -> DeviceObservation:
        inputs, world = self._options.inputs, self._world
        measures = self._skill.measure(MeasureContext(state, world, self._options.thresholds))
        seen = SensorContext(state, measures, world, self._readings(state))
        shown: Any = {"state": sensors.observe(self._skill, inputs.sensors, seen)}
        critic = self._options.critic
        if critic is not None:
            left = 1.0 - _as_tensor(state.steps).float() / self._options.task.horizon
            true_state = _as_tensor(sensors.observe(self._skill, critic.sensors, seen))
            shown["critic"] = torch.cat([true_state, left[:, None]], 1)
        if inputs.depth is not None:
            shown["depth"] = self._batch.depth(*inputs.depth)
        return shown

    def _readings(self, state: TaskState) -> Readings:
        """Returns the readings of all sensors that do not follow from the world's state."""
        readings, names, batch = Readings(), self._sensed, self._batch
        target = _as_tensor(state.object)
        if LASER in names:
            readings.laser = batch.laser()
        if FACING in names:
            readings.facing = self._facing[self._start]
        if CLEARANCE in names:
            readings.clearance = batch.clearance(target)
        if MOTION in names:
            readings.motion = batch.object_velocity(target)
        if NEIGHBOURS in names or not OF_GAPS.isdisjoint(names):
            readings.neighbours = self._neighbours(state)
            readings.gaps = sensors.gaps_of(readings.neighbours, 0.0)
        self._maps.read(readings, self._start, self._world, batch)
        return readings

    def _tensor(self, values: np.ndarray) -> torch.Tensor:
        """Copies an array to the device, numbers with a fraction as float32."""
        kind = torch.float32 if values.dtype.kind == "f" else torch.int64
        return torch.from_numpy(values).to(self.device, kind)

    # -- snapshots -----------------------------------------------------------------------------

    def snapshot(self) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.device_env.DeviceEnv.snapshot`."""
        return {"generator": self._random.get_state().cpu().numpy()}, {}

    def restore(self, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.device_env.DeviceEnv.restore`."""
        device_env.set_random(self._random, arrays.get("generator"))

    def close(self) -> None:
        """See `tpsrl.rl.envs.device_env.DeviceEnv.close`."""
        self._batch.close()


class _Records:
    """Statistics of episodes, summed on the device.

    A row has the environment, the start state's place on the device, the number of steps, the sum
    of the rewards, the end (-1 for success, otherwise an index into `Skill.failures`), and the sum
    of each reward term.
    """

    def __init__(self, num_envs: int, device: torch.device) -> None:
        self._env = torch.arange(num_envs, device=device).float()
        self._reward = torch.zeros(num_envs, device=device)
        self._terms: torch.Tensor | None = None  # (terms, n)
        self._names: tuple[str, ...] = ()
        self._rows: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(
        self, outcome: StepOutcome, steps: torch.Tensor, start: torch.Tensor, ended: torch.Tensor
    ) -> None:
        """Adds a step of all environments."""
        self._names = tuple(outcome.reward_terms)
        terms = torch.stack([_as_tensor(t).float() for t in outcome.reward_terms.values()])
        self._terms = terms if self._terms is None else self._terms + terms
        self._reward = self._reward + outcome.reward
        end = torch.where(_as_tensor(outcome.success), -1, _as_tensor(outcome.failure))
        columns = (self._env, start, steps, self._reward, end, *self._terms)
        self._rows.append((ended, torch.stack([column.float() for column in columns], 1)))
        self._terms = self._terms.masked_fill(ended, 0.0)
        self._reward = self._reward.masked_fill(ended, 0.0)

    def take(self) -> tuple[np.ndarray, tuple[str, ...]]:
        """Waits for the device; returns the rows (k, columns) of ended episodes, and the terms."""
        if not self._rows:
            return np.zeros((0, _STATISTICS)), ()
        ended, rows = (torch.cat(parts) for parts in zip(*self._rows, strict=True))
        self._rows = []
        return rows[ended].cpu().numpy(), self._names


def draw(source: StartSource, count: int, rng: np.random.Generator) -> list[tuple[int, Start]]:
    """Draws different start states with their indices.

    There are fewer than `count` if as many draws in a row give none that is new.
    """
    found: dict[int, Start] = {}
    since = 0
    while len(found) < count and since < count:
        index, start = source.draw(rng)
        since = since + 1 if index in found else 0
        found.setdefault(index, start)
    if len(found) < count:
        progress.say(f"only {len(found)} of {count} start states are different")
    return list(found.items())


def check(options: EnvOptions) -> None:
    """Refuses options that need something which the device does not have.

    Raises:
        UserError: names the option and the nearest that is possible.
    """
    inputs = options.inputs
    skill = registry.get(options.skill).definition
    if skill.follows_path or "category" in skill.needs:
        raise UserError(
            f"preset.collector: 'device' measures no paths on a map, which {options.skill} needs; "
            "nearest: batch"
        )
    critic = options.critic.sensors if options.critic else ()
    lacking = [name for name in (*inputs.sensors, *critic) if name in _LACKING]
    if lacking:
        raise UserError(
            f"sensors: collector=device does not measure {', '.join(lacking)}; nearest: fetch"
        )
    if options.source().recorded:
        raise UserError("starts: collector=device cannot begin in recorded states; nearest: own")
    if inputs.height_map:
        raise UserError("height_map: collector=device does not build it; nearest: false")
    if inputs.cameras:
        name = inputs.cameras[0][0]
        raise UserError(f"cameras: collector=device has no {name}; nearest: head_depth")


def ending(skill: Skill, success: bool, failure: int) -> str:
    """Returns how an episode ended, as in `EpisodeStats.ended_by`.

    Args:
        skill: definition of the skill
        success: whether the episode succeeded
        failure: index into `Skill.failures`; ignored after a success
    """
    return SUCCESS if success else skill.failures[failure] or TIMEOUT


def _facing(start: Start) -> float:
    """Returns the heading of the face with the goal's handle, 0 without a handle."""
    marker, episode = start.goal.marker, start.episode
    if not marker:
        return 0.0
    normal = handle(episode.layout, marker).normal(episode.articulation.get(marker, 0.0))
    return math.atan2(normal[1], normal[0])


def _as_tensor(array: Array) -> torch.Tensor:
    """Returns an array of a skill's task as what it is here."""
    return cast(torch.Tensor, array)


def _copied(world: WorldState) -> WorldState:
    """Returns a copy, which stays valid after the next step."""
    fields: Mapping[str, torch.Tensor] = {
        field.name: getattr(world, field.name).clone() for field in dataclasses.fields(world)
    }
    return WorldState(**fields)
