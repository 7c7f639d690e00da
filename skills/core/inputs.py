"""What a policy of a skill is shown: resolved once, and passed on whole from then on."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from skills import registry
from skills.core import cameras as asked
from skills.core.choices import CHOICES
from skills.core.sensors import EXPLORED, FETCH, FRONTIER, FULL, LASER, TEACHER, Sensor, known
from skills.core.skill import Skill
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import MAP
from tpsrl.world import cameras, height_map
from tpsrl.world.cameras import HEAD_DEPTH, Sides


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyInputs:
    """The inputs of a skill's policy; environments, checkpoints and policies hold the same ones.

    `sensors` are the parts of the vector "state", in their order (`skills.core.sensors`); `depth`
    is the (height, width) of the head camera's depth, None without it; `height_map` is whether the
    map of what that saw is among them (`tpsrl.world.height_map`). `cameras` are the other pictures
    with their sizes, in the order of `tpsrl.world.cameras.PICTURES`.
    """

    skill: str
    sensors: tuple[str, ...]
    depth: tuple[int, int] | None = None
    height_map: bool = False
    cameras: tuple[tuple[str, Sides], ...] = ()

    @staticmethod
    def of(
        skill: str,
        choice: str | tuple[str, ...] | None = None,
        depth: Sequence[int] | int | None = None,
        height_map: bool = False,
        cameras: asked.Cameras | None = None,
    ) -> "PolicyInputs":
        """The inputs that are asked for.

        Args:
            skill: name of the skill
            choice: "habitat", "fetch", "full", "teacher", "mapping", or names of sensors; None:
                habitat with a camera, full without one
            depth: (height, width) of the head depth in pixels, one number for both, None for none
            height_map: whether the height map is shown, which takes depth of the head
            cameras: pictures by name with their sizes in the place of `depth`, as
                `skills.core.cameras.parse` takes them

        Raises:
            UserError: there is no such skill, choice, sensor or picture (names the nearest), one is
                named twice or none is, a size is out of range, `depth` and `cameras` are both
                given, or a height map has no camera.
        """
        pictures = {} if cameras is None else asked.parse(cameras)
        if depth is not None:
            if pictures:
                raise UserError(
                    "depth: cameras says which pictures there are; leave depth out, and name "
                    f"{HEAD_DEPTH} there"
                )
            pictures[HEAD_DEPTH] = asked.sides(depth, "depth")
        names = _chosen(registry.get(skill).definition, choice, bool(pictures))
        size = pictures.pop(HEAD_DEPTH, None)
        if height_map and size is None:
            raise UserError("height_map: it needs a depth camera; nearest: false")
        return PolicyInputs(skill, names, size, height_map, tuple(pictures.items()))

    @property
    def size(self) -> int:
        """Length k of the vector "state"."""
        return sum(self.sizes().values())

    @property
    def rays(self) -> tuple[int, int]:
        """Where the laser's ranges begin and end in the vector, (0, 0) without a laser."""
        lies = self.layout().get(LASER, slice(0, 0))
        return lies.start, lies.stop

    @property
    def privileged(self) -> tuple[str, ...]:
        """The sensors that a robot does not have."""
        sensors = self._known()
        return tuple(name for name in self.sensors if sensors[name].privileged)

    @property
    def pictures(self) -> dict[str, Sides]:
        """The sizes of all pictures by their names in `tpsrl.world.cameras.PICTURES`."""
        head = {} if self.depth is None else {HEAD_DEPTH: self.depth}
        return head | dict(self.cameras)

    def shows(self, kind: str) -> bool:
        """Whether there is a picture of a kind, one of `tpsrl.world.cameras.KINDS`."""
        return any(cameras.split(name)[1] == kind for name in self.pictures)

    @property
    def picture_bytes(self) -> int:
        """How much memory the pictures of one observation take."""
        return cameras.bytes_of(self.pictures)

    def sizes(self) -> dict[str, int]:
        """How many numbers each sensor has."""
        sensors = self._known()
        return {name: sensors[name].size for name in self.sensors}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of an observation's parts, by name."""
        shapes: dict[str, tuple[int, ...]] = {"state": (self.size,)}
        if self.depth is not None:
            shapes["depth"] = self.depth
        if self.height_map:
            shapes[MAP] = height_map.SHAPE
        return shapes | {name: cameras.shape_of(name, sides) for name, sides in self.cameras}

    def layout(self) -> dict[str, slice]:
        """Where each sensor lies in the vector."""
        ends = itertools.accumulate(self.sizes().values())
        pairs = zip(self.sizes().items(), ends, strict=True)
        return {name: slice(end - size, end) for (name, size), end in pairs}

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """The least and the greatest vector (k,) float32."""
        sensors = self._known()
        held = [sensors[name] for name in self.sensors]
        low = [np.broadcast_to(np.asarray(each.low, np.float32), each.size) for each in held]
        high = [np.broadcast_to(np.asarray(each.high, np.float32), each.size) for each in held]
        return np.concatenate(low), np.concatenate(high)

    def places(self, others: "PolicyInputs") -> np.ndarray:
        """Where the numbers of others, whose sensors are among these, are in the vector."""
        columns = self.layout()
        return np.concatenate([np.r_[columns[name]] for name in others.sensors])

    def choices(self) -> list[str]:
        """The choices of sensors that mean these."""
        skill, camera = registry.get(self.skill).definition, bool(self.pictures)
        return [choice for choice in CHOICES if _chosen(skill, choice, camera) == self.sensors]

    def extend(self, other: "PolicyInputs") -> bool:
        """Whether these have the sensors of others and more."""
        return {*other.sensors} < {*self.sensors}

    def complete(self) -> "PolicyInputs":
        """The same cameras beside the sensors of all choices."""
        chosen = (PolicyInputs.of(self.skill, choice).sensors for choice in CHOICES)
        names = tuple(dict.fromkeys(itertools.chain.from_iterable(chosen)))
        return dataclasses.replace(self, sensors=names)

    def _known(self) -> Mapping[str, Sensor]:
        return known(registry.get(self.skill).definition)


def _chosen(skill: Skill, choice: str | tuple[str, ...] | None, camera: bool) -> tuple[str, ...]:
    """The names of a skill's sensors in their order; names are taken as they are.

    Raises:
        UserError: there is no such choice, or no sensor of a name (names the nearest); there are
            no names, or one twice.
    """
    if isinstance(choice, tuple):
        for name in choice:
            if not isinstance(name, str) or name not in known(skill):
                raise unknown("sensors", name, known(skill))
        if not choice:
            raise UserError("sensors: name at least one")
        if len(set(choice)) < len(choice):
            raise UserError(f"sensors: {', '.join(choice)} contains a duplicate")
        return choice
    choice = choice or ("habitat" if camera else "full")
    if choice not in CHOICES:
        raise unknown("sensors", choice, CHOICES)
    if choice in ("full", "teacher"):
        full = skill.full_sensors or FULL
        return full if choice == "full" else tuple(dict.fromkeys((*full, *TEACHER)))
    if choice in ("fetch", "mapping"):
        mapping = _on_own_map(skill) if choice == "mapping" else ()
        return tuple(dict.fromkeys((*skill.sensors, *skill.fetch_sensors, *FETCH, *mapping)))
    return skill.sensors


def _on_own_map(skill: Skill) -> tuple[str, ...]:
    """The sensors by a map of what the robot has seen itself."""
    return (*([EXPLORED] if skill.explores else []), *([FRONTIER] if skill.searches else []))
