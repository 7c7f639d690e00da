"""How a policy is acted by, as the note of its checkpoint says."""

import dataclasses
from typing import Any

from skills import registry
from skills.core import sensors
from tpsrl import config
from tpsrl.rl.envs.vec_env import MAP, EnvSpec
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.world import action as act


@dataclasses.dataclass(frozen=True, slots=True)
class Deployment:
    """The skill that a policy acts for, and what it is shown and does in its homes.

    `depth` is height and width of the camera's pictures, None without camera; `delay` whether it
    acts on the observation before, `sample` whether it draws its actions, `height_map` whether it
    is shown the map of what the camera saw.
    """

    skill: str
    sensors: tuple[str, ...]
    depth: tuple[int, int] | None
    delay: bool
    sample: bool
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
    note = checkpoint.get("deploy", dict)
    try:
        found = _read(note)
    except (LookupError, TypeError, ValueError):
        raise checkpoint.refused("does not say how to act by it") from None
    if found.skill not in registry.names():
        raise checkpoint.refused(
            f"acts for '{found.skill}', a skill that is not known; skill_modules=FILE_OR_MODULE "
            "makes one of your own known"
        )
    if not all(1 <= side <= config.MOST_PIXELS for side in found.depth or ()):
        sides = " x ".join(map(str, found.depth or ()))
        raise checkpoint.refused(
            f"looks at pictures of {sides}; a side has 1 to {config.MOST_PIXELS} pixels"
        )
    known = sensors.known(registry.get(found.skill).definition)
    for name in found.sensors:
        if name not in known:
            raise checkpoint.refused(f"has an unknown sensor, {name}")
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


def _read(note: dict[str, Any]) -> Deployment:
    """The entries of a note, of the right types."""
    names, depth = note["sensors"], note["depth"]
    found = Deployment(
        note["skill"],
        tuple(names),
        None if depth is None else (depth[0], depth[1]),
        note["delay"],
        note.get("sample", True),
        note.get("height_map", False),
    )
    texts = (found.skill, *found.sensors)
    if not isinstance(names, list) or not names or len(set(names)) < len(names):
        raise ValueError
    if not all(isinstance(text, str) for text in texts):
        raise ValueError
    if any(type(word) is not bool for word in (found.delay, found.sample, found.height_map)):
        raise ValueError
    if depth is not None and (len(depth) != 2 or not all(type(side) is int for side in depth)):
        raise ValueError
    return found
