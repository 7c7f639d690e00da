"""Policies that were trained, as the executor and the environments use them."""

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
from skills.policies import deployed, pretrained
from skills.policies.perception import Perceiving, Perception
from tpsrl.errors import UserError
from tpsrl.rl.policy import gaussian
from tpsrl.rl.run import checkpoint as checkpoints
from tpsrl.rl.run import halving
from tpsrl.runtime import files
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState


class LearnedPolicy(Perceiving):
    """Acts by a checkpoint's network; a skill is begun with an empty memory.

    Draws actions as in training, from a generator that episode and step seed, so that it does the
    same again; without `sample` it takes the mean of their distribution, which was not trained: the
    mean of a stop may stay under the threshold for ever while one draw in three is above it. The
    checkpoint says which, under "sample" of its note on deployment; one that does not is drawn by.

    What it senses is measured by the skill's default thresholds, by which it was trained, whatever
    the protocol that judges it.

    Args:
        skill: that it is to act for
        path: as `find` takes it
        sample: whether to draw actions; None: as the checkpoint says

    Raises:
        UserError: there is no such file, or it is not a checkpoint of this skill; names the skill
            and the command that trains it.
    """

    def __init__(
        self, skill: str, path: str | os.PathLike[str], sample: bool | None = None
    ) -> None:
        self._network = load(skill, path)
        self._sample = self._network.sample if sample is None else sample
        self._perception = Perception(self._network.inputs)

    @property
    def sees_laser(self) -> bool:
        """Whether it looks at the base's laser."""
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
            UserError: the network looks at depth, and there is none of its size, or it is shown
                what the engine measures, and there is nothing.
        """
        result = self._actor.act(self._perception.observe(world, depth, measured))[0]
        self._perception.acted(result, self._network.mask, world)
        if not self._network.mask[act.STOP]:
            result[act.STOP] = -1.0
        return result

    def diagnosis(self) -> dict[str, Any]:
        """Always {}: a network does not say why it fails."""
        return {}


class NetworkActor:
    """Acts by a network in n homes at once, from observations; has their memory.

    `sample` is whether actions are drawn, by a generator with `seed`.
    """

    def __init__(self, network: "Network", sample: bool, num_envs: int, seed: int) -> None:
        self._network, self._sample = network, sample
        self._memory = network.policy.initial_memory(num_envs)
        self._previous = torch.zeros(num_envs, act.SIZE)
        self._start = torch.ones(num_envs, dtype=torch.bool)
        self._shown: dict[str, torch.Tensor] | None = None
        self._generator = torch.Generator().manual_seed(seed)

    def begin(self, homes: np.ndarray) -> None:
        """An episode begins in the homes of a mask (n,) bool, with the next observation."""
        self._start |= torch.from_numpy(homes)

    def act(self, seen: Mapping[str, np.ndarray]) -> np.ndarray:
        """Actions (n, 11) float64 in [-1, 1] for the observations (n, ...) of this step."""
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
        assert step.memory is not None
        self._memory, self._previous = step.memory, action
        self._start = torch.zeros_like(start)
        return np.clip(action.numpy().astype(np.float64), -1.0, 1.0)


def _of_each(choose: torch.Tensor, first: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Rows (n, ...) of the first where it is chosen (n,) bool, else of the other."""
    return torch.where(choose.view(-1, *[1] * (first.dim() - 1)), first, other)


def find(skill: str, path: str | os.PathLike[str], field: str = "") -> Path:
    """The file that a path means.

    It is that file itself, the best checkpoint of a training's folder, or the skill's policy in a
    folder of shipped ones; the word "pretrained" means the folder that comes with tpsrl.

    Args:
        skill: that it acts for
        path: of the file or folder
        field: where the path was named; "" for `skills.SKILL`

    Raises:
        UserError: there is none; names the field, and the command that trains it or what there is.
    """
    if path == pretrained.WORD:
        return pretrained.find(skill)
    field = field or f"skills.{skill}"
    where = files.user_path(path, field)
    shipped = where / pretrained.file_name(skill)
    if where.is_dir():
        best = where / checkpoints.FOLDER / checkpoints.BEST
        where = shipped if shipped.is_file() and not best.is_file() else best
    if not where.is_file():
        raise UserError(f"{field}: no checkpoint {where}; train one with `tpsrl train {skill}`")
    if where.suffix == ".py":
        raise UserError(f"{field}: {where} is Python code; name its class: {path}:CLASS")
    return where


def load(skill: str, path: str | os.PathLike[str]) -> "Network":
    """The network of a skill that a path means, see `find`; the same one while the file is.

    Raises:
        UserError: there is no such file, or it is not a checkpoint of this skill.
    """
    where = find(skill, path)
    network = _load(where, where.stat().st_mtime_ns, f"skills.{skill}")
    if network.inputs.skill != skill:
        raise UserError(
            f"skills.{skill}: {where} acts for {network.inputs.skill}; "
            f"train one with `tpsrl train {skill}`"
        )
    return network


def about(skill: str, path: str | os.PathLike[str]) -> dict[str, Any]:
    """What reports say of a learned policy.

    Its file (`checkpoint`), the steps it was trained for (`trained_steps`), whether it draws its
    actions (`sample`), which of its sensors no robot has (`privileged`), and a digest of how it
    acts (`policy`), which half precision does not change.
    """
    network = load(skill, path)
    return {
        "checkpoint": str(path),
        "trained_steps": network.steps,
        "sample": network.sample,
        "privileged": list(network.inputs.privileged),
        "policy": network.digest,
    }


def _seed(episode: Episode, world: WorldState) -> int:
    """What a run of the skill is drawn by: another one in every episode, and at every step."""
    text = f"{episode.id} {int(world.step[0])}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")


class Network:
    """What a checkpoint of a skill holds: the policy, and how to act by it.

    `field` is where the file was named.

    Raises:
        UserError: the file is none, or does not say how to act by it.
    """

    def __init__(self, path: Path, field: str = "checkpoint") -> None:
        found = checkpoints.load(path, "policy", field)
        self._deployment = deployed.read(found, checkpoints.policy_spec(found))
        self.inputs, self.delay = self._deployment.inputs, self._deployment.delay
        self.sample = self._deployment.sample
        self.steps = found.steps
        self.policy = checkpoints.load_policy(found)
        self.mask = np.array(self.policy.spec.mask)

    @property
    def deploy(self) -> dict[str, Any]:
        """How to act by it, as JSON types; what else the note on deployment has is left out."""
        return self._deployment.to_json()

    @functools.cached_property
    def digest(self) -> str:
        """The same for two that act alike but for half precision."""
        return halving.digest(self.policy, self.deploy)


@functools.lru_cache(maxsize=16)
def _load(path: Path, changed_ns: int, field: str) -> Network:
    """The network of a file; a policy is made for every episode, the network once."""
    return Network(path, field)
