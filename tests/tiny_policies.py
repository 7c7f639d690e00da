"""Checkpoints of networks that were not trained, and what is made of them."""

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
    """A network for a skill with sensors of a choice, and the note on its deployment."""
    definition = registry.get(skill).definition
    inputs = PolicyInputs.of(skill, choice, depth, cameras=cameras)
    torch.manual_seed(seed)
    mask = tuple(definition.mask().tolist())
    made = ActorCritic(EnvSpec(inputs.shapes(), mask, classes=len(CLASSES)), network)
    with torch.no_grad():
        made.action_head.mean.weight.mul_(100.0)  # so that what is seen makes a difference
    return made, Deployment(inputs, delay=False).to_json()


def save(path: Path, made: ActorCritic, deploy: dict[str, Any], steps: int = 1_500_000) -> Path:
    """A checkpoint of it, as a training writes one."""
    tensors, note = checkpoint.policy_part(made)
    checkpoint.save(path, tensors, note | {"deploy": deploy, "steps": steps})
    return path


def trained(folder: Path, skill: str, choice: str = "habitat", **changes: Any) -> Path:
    """The folder of a training, as far as somebody looks at it who acts by its best checkpoint."""
    best = folder / checkpoint.FOLDER / checkpoint.BEST
    save(best, *policy(skill, choice, **changes))
    return folder


@dataclasses.dataclass(frozen=True)
class Acting:
    """Builds workers with a home without physics, in which the agent of the settings acts."""

    settings: SkillSettings

    def __call__(self) -> Callable[[SkillJob], SkillResult]:
        return self.work

    def work(self, job: SkillJob) -> SkillResult:
        acting = agents.make_for_skill(self.settings.agent, self.settings.skill)
        return run_job(self.settings, PicturedHome(), acting, job)
