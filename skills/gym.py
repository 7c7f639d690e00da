"""Registers the skills and PointNav with gymnasium when imported: `tpsrl/Pick-v0` and so on.

    import gymnasium, skills.gym
    env = gymnasium.make("tpsrl/Pick-v0", depth=(64, 64))

or `gymnasium.make("skills.gym:tpsrl/Pick-v0")`. Nothing that simulates is imported before an
environment is made.
"""

import gymnasium

SKILLS = {
    "Navigate": "navigate",
    "Pick": "pick",
    "Place": "place",
    "OpenFridge": "open_fridge",
    "CloseFridge": "close_fridge",
    "OpenDrawer": "open_drawer",
    "CloseDrawer": "close_drawer",
    "PointNav": "pointnav",
}


def env_id(skill: str) -> str:
    """The id that a skill is registered by."""
    return f"tpsrl/{next(title for title, name in SKILLS.items() if name == skill)}-v0"


def register() -> None:
    """Registers all of them that are not yet."""
    for skill in SKILLS.values():
        if env_id(skill) not in gymnasium.registry:
            gymnasium.register(
                id=env_id(skill),
                entry_point="skills.envs.environment:SkillEnv",
                vector_entry_point="skills.envs.vector:SkillVectorEnv",
                kwargs={"skill": skill},
            )


register()
