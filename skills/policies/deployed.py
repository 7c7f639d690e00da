"""Deployment of a policy, from the note of its checkpoint."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from skills import registry
from skills.core import sensors
from skills.core.inputs import PolicyInputs
from skills.policies import follow, steady, stuck, upright
from skills.policies.rules import RULES
from tpsrl import config
from tpsrl.rl.envs.vec_env import MAP, EnvSpec
from tpsrl.rl.run.checkpoint import Checkpoint
from tpsrl.world import action as act
from tpsrl.world.cameras import HEAD_DEPTH, PICTURES

FARTHEST_M = 1.0  # greatest distance of a rule
FASTEST_MPS = 1.0  # greatest speed of a rule
NoiseStd = Annotated[float, msgspec.Meta(ge=0.0, le=stuck.MOST)]
Within = Annotated[float, msgspec.Meta(ge=0.0, le=FARTHEST_M)]
PathSteps = Annotated[int, msgspec.Meta(ge=0, le=follow.LONGEST)]
NearSteps = Annotated[int, msgspec.Meta(ge=0, le=steady.MOST_NEAR)]
UprightSteps = Annotated[int, msgspec.Meta(ge=0, le=upright.MOST)]
HandSpeed = Annotated[float, msgspec.Meta(ge=0.0, le=FASTEST_MPS)]
Pixels = Annotated[int, msgspec.Meta(ge=1, le=config.MOST_PIXELS)]  # side of a picture


@dataclasses.dataclass(frozen=True, slots=True)
class Deployment:
    """Inputs of a policy, and how actions are computed.

    `delay` is whether the policy acts on the previous observation, `sample` whether actions are
    sampled from their distribution instead of its mean, `stuck_noise` the standard deviation of
    the noise of actions while the robot is stuck, 0 for none (`skills.policies.stuck`).
    `grip_within` is the distance in metres of the cup from the object's first position within
    which the grip is closed whatever the network says, `grip_beyond` the one beyond which it is
    open, `stop_within` the distance in metres of the goal by the compass within which stop is
    called, `release_speed` the speed of the hand in m/s below which an object is released,
    `release_after` the steps near the goal after which it is (`skills.policies.steady`),
    `release_upright` the most steps in which it is turned upright before
    (`skills.policies.upright`), `follow_path` the steps for which a robot that does not
    advance follows its path (`skills.policies.follow`); 0 for none.
    """

    inputs: PolicyInputs
    delay: bool
    sample: bool = True
    stuck_noise: float = 0.0
    grip_within: float = 0.0
    grip_beyond: float = 0.0
    stop_within: float = 0.0
    release_speed: float = 0.0
    release_after: int = 0
    release_upright: int = 0
    follow_path: int = 0

    @property
    def rules(self) -> dict[str, float]:
        """The values of `RULES` that are not 0."""
        return {name: getattr(self, name) for name in RULES if getattr(self, name)}

    def missing(self, rule: str) -> str | None:
        """Returns a sensor that a rule needs and the policy lacks, None if there is none."""
        return next((name for name in RULES[rule].sensors if name not in self.inputs.sensors), None)

    def to_json(self) -> dict[str, Any]:
        """Returns the note for a checkpoint, as JSON types."""
        inputs = self.inputs
        return {
            "skill": inputs.skill,
            "sensors": list(inputs.sensors),
            "depth": None if inputs.depth is None else list(inputs.depth),
            "delay": self.delay,
            "sample": self.sample,
            # Omitted if empty, as in older files.
            **self.rules,
            **({"height_map": True} if inputs.height_map else {}),
            **({"cameras": dict(inputs.cameras)} if inputs.cameras else {}),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class _Note:
    """Note of a checkpoint; older ones lack the fields with defaults."""

    skill: str
    sensors: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    depth: tuple[Pixels, Pixels] | None
    delay: bool
    sample: bool = True
    stuck_noise: NoiseStd = 0.0
    grip_within: Within = 0.0
    grip_beyond: Within = 0.0
    stop_within: Within = 0.0
    release_speed: HandSpeed = 0.0
    release_after: NearSteps = 0
    release_upright: UprightSteps = 0
    follow_path: PathSteps = 0
    height_map: bool = False
    cameras: dict[str, tuple[Pixels, Pixels]] = dataclasses.field(default_factory=dict)


def read(checkpoint: Checkpoint, spec: EnvSpec) -> Deployment:
    """Reads the deployment of a checkpoint's policy.

    Args:
        checkpoint: the checkpoint
        spec: observations and actions of the policy's network

    Raises:
        UserError: the note is missing, its skill or a sensor is unknown, or it contradicts `spec`;
            the message names where the checkpoint was given.
    """
    note: _Note = checkpoint.get("deploy", _Note)
    if note.skill not in registry.names():
        raise checkpoint.refused(
            f"is a policy of the unknown skill '{note.skill}'; register your own skills with "
            "skill_modules=FILE_OR_MODULE"
        )
    known = sensors.known(registry.get(note.skill).definition)
    for name in note.sensors:
        if name not in known or note.sensors.count(name) > 1:
            wrong = "a sensor twice" if name in known else "an unknown sensor"
            raise checkpoint.refused(f"has {wrong}, {name}")
    for name in note.cameras:
        if name not in PICTURES or name == HEAD_DEPTH:
            raise checkpoint.refused(f"has an unknown image, {name}")
    cameras = tuple((name, note.cameras[name]) for name in PICTURES if name in note.cameras)
    inputs = PolicyInputs(note.skill, note.sensors, note.depth, note.height_map, cameras)
    for what, noted, seen in (
        ("state", inputs.size, spec.observations["state"][0]),
        ("depth", inputs.depth, spec.observations.get("depth")),
        ("height_map", inputs.height_map, MAP in spec.observations),
        ("cameras", *(_others(names) for names in (inputs.shapes(), spec.observations))),
        ("action", act.SIZE, spec.action_size),
    ):
        if noted != seen:
            raise checkpoint.refused(f"is inconsistent: {what} is {noted}, in its network {seen}")
    deployment = Deployment(
        inputs, note.delay, note.sample, **{name: getattr(note, name) for name in RULES}
    )
    for name in deployment.rules:
        if missing := deployment.missing(name):
            raise checkpoint.refused(f"has {name}, but not the sensor {missing}")
    return deployment


def _others(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of the pictures other than depth of the head ("depth")."""
    return {name: shape for name, shape in shapes.items() if name in PICTURES}
