"""Trained policies, for the executor and the environments."""

import functools
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from skills.core.interface import SkillGoal
from skills.core.sensors import Readings
from skills.policies import deployed, pretrained, steady
from skills.policies.follow import PathFollowing
from skills.policies.perception import Perceiving, Perception
from skills.policies.rules import GRIP_SENSOR, STOP_SENSOR
from skills.policies.steady import SteadyRelease
from skills.policies.stuck import StuckNoise
from tpsrl.errors import UserError
from tpsrl.rl.policy import gaussian
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving
from tpsrl.runtime import files
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class LearnedPolicy(Perceiving):
    """Policy of a checkpoint's network, with an empty memory at the start of a skill.

    With `sample`, actions are sampled as in training, reproducibly, from a generator seeded by
    episode and step. Otherwise the policy takes the mean of the distribution, which was not
    trained: the mean of stop may stay below the threshold in all steps while every third sample is
    above it. The default is "sample" in the checkpoint's note on deployment, or else True.

    Observations use the skill's default thresholds, as in training, whatever the protocol of the
    evaluation.

    Args:
        skill: name of the skill
        path: see `find`
        sample: whether to sample actions; None for the checkpoint's setting

    Raises:
        UserError: the file is missing, or is not a checkpoint of this skill; the message names the
            skill and the command that trains it.
    """

    def __init__(
        self, skill: str, path: str | os.PathLike[str], sample: bool | None = None
    ) -> None:
        self._network = load(skill, path)
        self._sample = self._network.sample if sample is None else sample
        self._perception = Perception(self._network.inputs)

    @property
    def sees_laser(self) -> bool:
        """Whether the policy observes the base's laser."""
        return any(self._network.inputs.rays)

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._perception.begin(episode, goal, world)
        self._actor = NetworkActor(self._network, self._sample, 1, _seed(episode, world))

    def act(
        self,
        world: WorldState,
        depth: np.ndarray | None = None,
        measured: Readings | None = None,
    ) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`.

        Raises:
            UserError: the network needs depth, and `depth` is missing or has another size; or it
                needs measurements of the engine, and `measured` is missing.
        """
        result = self._actor.act(self._perception.observe(world, depth, measured))[0]
        self._perception.acted(result, self._network.mask, world)
        if not self._network.mask[act.STOP]:
            result[act.STOP] = -1.0
        return result

    def diagnosis(self) -> dict[str, Any]:
        """Returns {}: a network gives no reasons for its failure."""
        return {}


class NetworkActor:
    """Runs a network in n homes at once, with the memory of each.

    Args:
        network: the network
        sample: whether to sample actions
        num_envs: number n of homes
        seed: seed of the random generator
    """

    def __init__(self, network: "Network", sample: bool, num_envs: int, seed: int) -> None:
        self._network, self._sample = network, sample
        self._memory = network.policy.initial_memory(num_envs)
        self._previous = torch.zeros(num_envs, act.SIZE)
        self._start = torch.ones(num_envs, dtype=torch.bool)
        self._shown: dict[str, torch.Tensor] | None = None
        self._generator = torch.Generator().manual_seed(seed)
        rules, layout = network.deployment, network.inputs.layout()
        self._stuck: StuckNoise | None = None
        if network.stuck_noise:
            self._stuck = StuckNoise(network.stuck_noise, layout, num_envs, seed)
        self._rules: list[SteadyRelease | PathFollowing] = []
        release = rules.release_speed, rules.release_after, rules.release_upright
        if any(release):
            self._rules.append(SteadyRelease(*release, layout, num_envs))
        if rules.follow_path:
            self._rules.append(PathFollowing(rules.follow_path, layout, num_envs))

    def begin(self, homes: np.ndarray) -> None:
        """Starts an episode with the next observation in the homes of a mask (n,) bool."""
        self._start |= torch.from_numpy(homes)
        if self._stuck is not None:
            self._stuck.begin(homes)
        for rule in self._rules:
            rule.begin(homes)

    def act(self, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns actions (n, 11) float64 in [-1, 1] for the observations (n, ...) of a step."""
        policy, start = self._network.policy, self._start
        now = {name: torch.from_numpy(value) for name, value in seen.items()}
        shown = now
        if self._shown is not None and self._network.delay:
            shown = {name: _of_each(start, now[name], self._shown[name]) for name in now}
        self._shown = now
        with torch.inference_mode():
            step = policy.act(shown, self._previous, self._memory, start)
            action = step.mean
            if self._sample:
                action = gaussian.sample(action, step.std, policy.mask, self._generator)
            rules = self._network.deployment
            if rules.grip_within or rules.grip_beyond:
                action = self._gripping(action, seen["state"])
            if rules.stop_within:
                action = self._stopping(action, seen["state"])
            if self._stuck is not None:
                noise = torch.from_numpy(self._stuck.draw(seen["state"])).float()
                action = torch.where(policy.mask, action + noise, action).clamp(-1.0, 1.0)
            for rule in self._rules:
                action = torch.from_numpy(rule.changed(action.numpy(), seen["state"]))
        assert step.memory is not None
        self._memory, self._previous = step.memory, action
        self._start = torch.zeros_like(start)
        return np.clip(action.numpy().astype(np.float64), -1.0, 1.0)

    def _gripping(self, action: torch.Tensor, state: np.ndarray) -> torch.Tensor:
        """Returns actions (n, 11) whose grip depends on the cup's distance from the object."""
        rules, layout = self._network.deployment, self._network.inputs.layout()
        away = np.linalg.norm(state[:, layout[GRIP_SENSOR]], axis=1)
        action = action.clone()
        if rules.grip_beyond:
            free = state[:, layout[steady.HOLDING]][:, 0] < 0.5
            action[torch.from_numpy(free & (away > rules.grip_beyond)), act.GRIP] = -1.0
        action[torch.from_numpy(away < rules.grip_within), act.GRIP] = 1.0
        return action

    def _stopping(self, action: torch.Tensor, state: np.ndarray) -> torch.Tensor:
        """Returns actions (n, 11) that stop and stand still where the compass shows a near goal."""
        network = self._network
        away = state[:, network.inputs.layout()[STOP_SENSOR].start]
        near = torch.from_numpy(away < network.deployment.stop_within)
        action = action.clone()
        action[near, act.STOP], action[near, act.BASE] = 1.0, 0.0
        return action


def _of_each(choose: torch.Tensor, first: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Returns the rows (n, ...) of `first` where `choose` (n,) is True, else those of `other`."""
    return torch.where(choose.view(-1, *[1] * (first.dim() - 1)), first, other)


def find(skill: str, path: str | os.PathLike[str], field: str = "") -> Path:
    """Returns the checkpoint file that a path refers to.

    Args:
        skill: name of the skill
        path: a file, the folder of a training (for its best checkpoint), a folder of shipped
            policies, or "pretrained" for the folder that comes with tpsrl
        field: setting that named the path, for error messages; "" for `skills.SKILL`

    Raises:
        UserError: the file is missing; the message names the field, and the command that trains a
            policy or the policies that exist.
    """
    if path == pretrained.WORD:
        return pretrained.find(skill)
    field = field or f"skills.{skill}"
    where = given = files.user_path(path, field)
    shipped = where / pretrained.file_name(skill)
    if where.is_dir():
        best = where / checkpoints.FOLDER / checkpoints.BEST
        where = shipped if shipped.is_file() and not best.is_file() else best
    if not where.is_file():
        missing = f"no checkpoint {where}" if given.is_dir() else f"there is no {given}"
        raise UserError(f"{field}: {missing}; train one with `tpsrl train {skill}`")
    if where.suffix == ".py":
        raise UserError(f"{field}: {where} is Python code; name its class: {path}:CLASS")
    return where


def load(skill: str, path: str | os.PathLike[str]) -> "Network":
    """Loads the network of a skill, cached while the file does not change.

    Args:
        skill: name of the skill
        path: see `find`

    Raises:
        UserError: the file is missing, or is not a checkpoint of this skill.
    """
    where = find(skill, path)
    network = _load(where, where.stat().st_mtime_ns, f"skills.{skill}")
    if network.inputs.skill != skill:
        raise UserError(
            f"skills.{skill}: {where} is a policy for {network.inputs.skill}; "
            f"train one with `tpsrl train {skill}`"
        )
    return network


def about(skill: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Returns the entries about a learned policy for reports.

    These are its path (`checkpoint`), the number of steps trained (`trained_steps`), whether it
    samples actions (`sample`), its privileged sensors (`privileged`), and a digest of its behaviour
    (`policy`), which half precision does not change.
    """
    network = load(skill, path)
    return {
        "checkpoint": str(path),
        "trained_steps": network.steps,
        "sample": network.sample,
        **network.deployment.rules,
        "privileged": list(network.inputs.privileged),
        "policy": network.digest,
    }


def _seed(episode: Episode, world: WorldState) -> int:
    """Returns the seed of a run of the skill, which depends on the episode and the first step."""
    text = f"{episode.id} {int(world.step[0])}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


class Network:
    """Policy and deployment of a checkpoint.

    Args:
        path: file of the checkpoint
        field: setting that named the file, for error messages

    Raises:
        UserError: the file is not a checkpoint of a policy, or has no valid note on deployment.
    """

    def __init__(self, path: Path, field: str = "checkpoint") -> None:
        found = checkpoints.load(path, "policy", field)
        self.deployment = deployed.read(found, checkpoints.policy_spec(found))
        self.inputs, self.delay = self.deployment.inputs, self.deployment.delay
        self.sample, self.stuck_noise = self.deployment.sample, self.deployment.stuck_noise
        self.steps = found.steps
        self.policy = checkpoints.load_policy(found)
        self.mask = np.array(self.policy.spec.mask)

    @property
    def deploy(self) -> dict[str, Any]:
        """Deployment as JSON types, without other entries of the checkpoint's note."""
        return self.deployment.to_json()

    @functools.cached_property
    def digest(self) -> str:
        """Digest of the policy's behaviour, equal for full and half precision."""
        return halving.digest(self.policy, self.deploy)


@functools.lru_cache(maxsize=16)
def _load(path: Path, changed_ns: int, field: str) -> Network:
    """Loads the network of a file, once for all policies that are created from it."""
    return Network(path, field)
