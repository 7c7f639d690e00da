"""Registration of the skills with gymnasium, on import: `tpsrl/Pick-v0` and so on.

    import gymnasium, skills.gym
    env = gymnasium.make("tpsrl/Pick-v0", depth=(64, 64))

or `gymnasium.make("skills.gym:tpsrl/Pick-v0")`. The simulator is imported only when the first
environment is made. `register()` also registers skills that were defined after this import.
`load_policy` loads a trained policy that acts in these environments.
"""

import os
from typing import TYPE_CHECKING

import gymnasium

from skills import registry

if TYPE_CHECKING:
    from skills.policies.observing import ObservationPolicy


def register() -> None:
    """Registers all skills that gymnasium does not have yet."""
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
    """Loads a trained policy that acts on observations; see `ObservationPolicy` for the arguments.

    Raises:
        UserError: the file is missing, or is not a checkpoint of this skill.
    """
    from skills.policies.observing import ObservationPolicy

    return ObservationPolicy(skill, path, sample)


register()
