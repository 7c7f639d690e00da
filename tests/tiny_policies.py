"""Checkpoints of untrained networks, and workers that use them."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from kinematic_home import PicturedHome

from eval.analysing.skill_results import SkillResult
from eval.running import agents
from eval.running.skill_runs import SkillJob, run_job
from eval.settings import SkillSettings
from skills import registry
from skills.core.inputs import PolicyInputs
from skills.policies.deployed import Deployment
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run import checkpoint
from tpsrl.world import action as act
from tpsrl.world.cameras import CLASSES

STATE = PolicySettings(encoder="state", state_width=8, lstm_layers=1, lstm_width=8)


def policy(
    skill: str,
    choice: str = "habitat",
    network: PolicySettings = STATE,
    depth: tuple[int, int] | None = None,
    seed: int = 1,
    cameras: str | None = None,
) -> tuple[ActorCritic, dict[str, Any]]:
    """Returns a network for a skill with a choice of sensors, and its deployment record."""
    definition = registry.get(skill).definition
    inputs = PolicyInputs.of(skill, choice, depth, cameras=cameras)
    torch.manual_seed(seed)
    mask = tuple(definition.mask().tolist())
    shown = {"gaze": inputs.gaze, "grip_rule": inputs.grip_rule}
    spec = EnvSpec(
        inputs.shapes(), mask, switches=(act.GRIP, act.STOP), classes=len(CLASSES), **shown
    )
    made = ActorCritic(spec, network)
    with torch.no_grad():
        made.action_head.mean.weight.mul_(100.0)  # so that actions depend on observations
    return made, Deployment(inputs, delay=False).to_json()


def save(path: Path, made: ActorCritic, deploy: dict[str, Any], steps: int = 1_500_000) -> Path:
    """Writes a checkpoint of a network in the format of a training."""
    tensors, note = checkpoint.policy_part(made)
    checkpoint.save(path, tensors, note | {"deploy": deploy, "steps": steps})
    return path


def trained(folder: Path, skill: str, choice: str = "habitat", **changes: Any) -> Path:
    """Writes the part of a training's folder from which its best checkpoint is loaded."""
    best = folder / checkpoint.FOLDER / checkpoint.BEST
    save(best, *policy(skill, choice, **changes))
    return folder


@dataclasses.dataclass(frozen=True)
class Acting:
    """Worker factory without physics, in whose homes the agent of the settings acts."""

    settings: SkillSettings

    def __call__(self) -> Callable[[SkillJob], SkillResult]:
        return self.work

    def work(self, job: SkillJob) -> SkillResult:
        acting = agents.make_for_skill(self.settings.agent, self.settings.skill)
        return run_job(self.settings, PicturedHome(), acting, job)
