"""Registers the skills with gymnasium when imported: `tpsrl/Pick-v0` and so on.

    import gymnasium, skills.gym
    env = gymnasium.make("tpsrl/Pick-v0", depth=(64, 64))

or `gymnasium.make("skills.gym:tpsrl/Pick-v0")`. Nothing that simulates is imported before an
environment is made. A skill that is registered later is made known by `register()`. A trained
policy that acts in them is loaded by `load_policy`.
"""

import os
from typing import TYPE_CHECKING

import gymnasium

from skills import registry

if TYPE_CHECKING:
    from skills.policies.observing import ObservationPolicy


def register() -> None:
    """Registers all skills that are not yet."""
    for name, spec in registry.specs().items():
        if spec.env_id not in gymnasium.registry:
            gymnasium.register(
                id=spec.env_id,
                entry_point="skills.envs.environment:SkillEnv",
                vector_entry_point="skills.envs.vector:SkillVectorEnv",
                kwargs={"skill": name},
            )


def load_policy(
    skill: str, path: str | os.PathLike[str], sample: bool | None = None
) -> "ObservationPolicy":
    """A trained policy that acts by observations, see `ObservationPolicy` for the arguments.

    Raises:
        UserError: there is no such file, or it is not a checkpoint of this skill.
    """
    from skills.policies.observing import ObservationPolicy

    return ObservationPolicy(skill, path, sample)


register()
