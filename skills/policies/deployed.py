"""How a policy is acted by, as the note of its checkpoint says."""

import dataclasses
from typing import Annotated, Any

import msgspec

from skills import registry
from skills.core import sensors
from tpsrl import config
from tpsrl.rl.envs.vec_env import MAP, EnvSpec
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.world import action as act

Pixels = Annotated[int, msgspec.Meta(ge=1, le=config.MOST_PIXELS)]  # of a picture's side


@dataclasses.dataclass(frozen=True, slots=True)
class Deployment:
    """The skill that a policy acts for, and what it is shown and does in its homes.

    `depth` is height and width of the camera's pictures, None without camera; `delay` whether it
    acts on the observation before, `sample` whether it draws its actions, `height_map` whether it
    is shown the map of what the camera saw.
    """

    skill: str
    sensors: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    depth: tuple[Pixels, Pixels] | None
    delay: bool
    sample: bool = True
    height_map: bool = False

    def to_json(self) -> dict[str, Any]:
        """JSON types by name; what else a note on deployment has is left out."""
        depth = None if self.depth is None else list(self.depth)
        note = dataclasses.asdict(self) | {"sensors": list(self.sensors), "depth": depth}
        if not self.height_map:  # as files have it from before there were any
            del note["height_map"]
        return note


def read(checkpoint: Checkpoint, spec: EnvSpec) -> Deployment:
    """How the policy of a checkpoint, which sees `spec`, is acted by.

    Raises:
        UserError: the checkpoint does not say, its skill is not known or has no such sensor, or it
            does not fit what the policy sees and does; names where the checkpoint was given.
    """
    found: Deployment = checkpoint.get("deploy", Deployment)
    if found.skill not in registry.names():
        raise checkpoint.refused(
            f"acts for '{found.skill}', a skill that is not known; skill_modules=FILE_OR_MODULE "
            "makes one of your own known"
        )
    known = sensors.known(registry.get(found.skill).definition)
    for name in found.sensors:
        if name not in known or found.sensors.count(name) > 1:
            wrong = "a sensor twice" if name in known else "an unknown sensor"
            raise checkpoint.refused(f"has {wrong}, {name}")
    size = sum(known[name].size for name in found.sensors)
    for what, told, seen in (
        ("state", size, spec.observations["state"][0]),
        ("depth", found.depth, spec.observations.get("depth")),
        ("height_map", found.height_map, MAP in spec.observations),
        ("action", act.SIZE, spec.action_size),
    ):
        if told != seen:
            raise checkpoint.refused(f"contradicts itself: {what} is {told}, its network's {seen}")
    return found
