"""Inputs of a skill's policy: sensors, pictures and height map, resolved from the user's choice."""

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from skills import registry
from skills.core import cameras as camera_sizes
from skills.core.choices import CHOICES
from skills.core.sensors import (
    EXPLORED,
    FETCH,
    FRONTIER,
    FULL,
    GAZES,
    GRIP_RULE,
    LASER,
    OF_SEARCH,
    SEARCH,
    SPOTTED,
    TEACHER,
    Sensor,
    known,
)
from skills.core.skill import Skill
from tpsrl.errors import UserError, unknown
from tpsrl.rl.envs.vec_env import MAP
from tpsrl.world import action as act
from tpsrl.world import cameras, height_map
from tpsrl.world.cameras import HEAD_CATEGORY, HEAD_DEPTH, Sides


@dataclasses.dataclass(frozen=True, slots=True)
class PolicyInputs:
    """Inputs of a skill's policy, shared by environments, checkpoints and policies.

    `sensors` are the parts of the vector "state", in order (`skills.core.sensors`). `depth` is the
    (height, width) of the head camera's depth, None without it. `height_map` is whether the height
    map built from that depth is an input (`tpsrl.world.height_map`). `cameras` are the other
    pictures with their sizes, in the order of `tpsrl.world.cameras.PICTURES`.
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
        cameras: camera_sizes.Cameras | None = None,
    ) -> "PolicyInputs":
        """Resolves the inputs that a user chose.

        Args:
            skill: name of the skill
            choice: "habitat", "fetch", "full", "teacher", "mapping", "gaze", or a tuple of names
                of sensors; None: "habitat" with a camera, "full" without one
            depth: (height, width) of the head depth in pixels, one number for both, None for none
            height_map: whether to include the height map, which requires head depth
            cameras: pictures with their sizes instead of `depth`; see `skills.core.cameras.parse`

        Raises:
            UserError: a skill, choice, sensor or picture is unknown (the message names the
                nearest), is named twice or missing, a size is out of range, `depth` and `cameras`
                are both given, `height_map` is set without head depth, or a sensor needs depth and
                category pictures of the head of one size.
        """
        pictures = {} if cameras is None else camera_sizes.parse(cameras)
        if depth is not None:
            if pictures:
                raise UserError(
                    f"depth: contradicts cameras; leave depth out, and add {HEAD_DEPTH} to cameras"
                )
            pictures[HEAD_DEPTH] = camera_sizes.sides(depth, "depth")
        names = _chosen(registry.get(skill).definition, choice, pictures)
        _check_search(names, pictures)
        size = pictures.pop(HEAD_DEPTH, None)
        if height_map and size is None:
            raise UserError("height_map: needs a depth camera; nearest: false")
        return PolicyInputs(skill, names, size, height_map, tuple(pictures.items()))

    @property
    def size(self) -> int:
        """Length k of the vector "state"."""
        return sum(self.sizes().values())

    @property
    def rays(self) -> tuple[int, int]:
        """Begin and end of the laser's ranges in the vector "state"; (0, 0) without a laser."""
        lies = self.layout().get(LASER, slice(0, 0))
        return lies.start, lies.stop

    @property
    def gaze(self) -> tuple[int, int]:
        """Begin and end of the gaze (`skills.core.sensors.GAZES`) in "state"; (0, 0) without it."""
        layout = self.layout()
        lies = next((layout[name] for name in GAZES if name in layout), slice(0, 0))
        return lies.start, lies.stop

    @property
    def grip_rule(self) -> tuple[int, int]:
        """Column of "state" with the grip of the rule, and the grip's dimension in an action.

        (0, 0) without the sensor.
        """
        column = self.layout().get(GRIP_RULE)
        return (0, 0) if column is None else (column.start, act.GRIP)

    @property
    def privileged(self) -> tuple[str, ...]:
        """Names of the privileged sensors, which a robot does not have."""
        sensors = self._known()
        return tuple(name for name in self.sensors if sensors[name].privileged)

    @property
    def pictures(self) -> dict[str, Sides]:
        """(height, width) of all pictures by their names in `tpsrl.world.cameras.PICTURES`."""
        head = {} if self.depth is None else {HEAD_DEPTH: self.depth}
        return head | dict(self.cameras)

    def shows(self, kind: str) -> bool:
        """Returns whether a picture has `kind`, one of `tpsrl.world.cameras.KINDS`."""
        return any(cameras.split(name)[1] == kind for name in self.pictures)

    @property
    def mapped(self) -> frozenset[str]:
        """Names of the pictures from which a sensor's map is built."""
        searches = not OF_SEARCH.isdisjoint(self.sensors)
        if not searches and {EXPLORED, FRONTIER}.isdisjoint(self.sensors):
            return frozenset()
        return frozenset((HEAD_DEPTH, HEAD_CATEGORY) if searches else (HEAD_DEPTH,))

    @property
    def picture_bytes(self) -> int:
        """Size in bytes of the pictures of one observation."""
        return cameras.bytes_of(self.pictures)

    def sizes(self) -> dict[str, int]:
        """Returns the number of entries of each sensor, by name."""
        sensors = self._known()
        return {name: sensors[name].size for name in self.sensors}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of an observation's parts, by name."""
        shapes: dict[str, tuple[int, ...]] = {"state": (self.size,)}
        if self.depth is not None:
            shapes["depth"] = self.depth
        if self.height_map:
            shapes[MAP] = height_map.SHAPE
        return shapes | {name: cameras.shape_of(name, sides) for name, sides in self.cameras}

    def layout(self) -> dict[str, slice]:
        """Returns the slice of each sensor in the vector "state"."""
        ends = itertools.accumulate(self.sizes().values())
        pairs = zip(self.sizes().items(), ends, strict=True)
        return {name: slice(end - size, end) for (name, size), end in pairs}

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the lower and upper bounds of the vector "state", (k,) float32 each."""
        sensors = self._known()
        held = [sensors[name] for name in self.sensors]
        low = [np.broadcast_to(np.asarray(each.low, np.float32), each.size) for each in held]
        high = [np.broadcast_to(np.asarray(each.high, np.float32), each.size) for each in held]
        return np.concatenate(low), np.concatenate(high)

    def places(self, others: "PolicyInputs") -> np.ndarray:
        """Returns the indices of `others`' entries in this vector, which has all their sensors."""
        columns = self.layout()
        return np.concatenate([np.r_[columns[name]] for name in others.sensors])

    def choices(self) -> list[str]:
        """Returns the choices, such as "full", that give exactly these sensors."""
        skill, pictures = registry.get(self.skill).definition, self.pictures
        return [choice for choice in CHOICES if _chosen(skill, choice, pictures) == self.sensors]

    def extend(self, other: "PolicyInputs") -> bool:
        """Returns whether these sensors are a proper superset of `other`'s."""
        return {*other.sensors} < {*self.sensors}

    def complete(self) -> "PolicyInputs":
        """Returns inputs with the same cameras and the sensors of all choices."""
        skill, pictures = registry.get(self.skill).definition, self.pictures
        if HEAD_DEPTH not in pictures or pictures[HEAD_DEPTH] != pictures.get(HEAD_CATEGORY):
            pictures.pop(HEAD_CATEGORY, None)  # The search needs both, of one size.
        chosen = (_chosen(skill, choice, pictures) for choice in CHOICES)
        names = tuple(dict.fromkeys(itertools.chain.from_iterable(chosen)))
        return dataclasses.replace(self, sensors=names)

    def _known(self) -> Mapping[str, Sensor]:
        return known(registry.get(self.skill).definition)


def _chosen(
    skill: Skill, choice: str | tuple[str, ...] | None, pictures: Collection[str]
) -> tuple[str, ...]:
    """Resolves a choice to the names of sensors, in order; a tuple of names is only checked.

    Args:
        skill: definition of the skill
        choice: see `PolicyInputs.of`
        pictures: names of the pictures among the inputs

    Raises:
        UserError: a choice or sensor is unknown (the message names the nearest), the tuple is
            empty, or it has a duplicate.
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
    choice = choice or ("habitat" if pictures else "full")
    if choice not in CHOICES:
        raise unknown("sensors", choice, CHOICES)
    if choice in ("full", "teacher"):
        full = skill.full_sensors or FULL
        more = () if choice == "full" else (*TEACHER, *skill.teacher_sensors)
        return tuple(dict.fromkeys((*full, *more)))
    if choice in ("fetch", "mapping", "gaze"):
        more = () if choice == "fetch" else skill.gaze_sensors
        more += _on_own_map(skill, pictures) if choice == "mapping" else ()
        return tuple(dict.fromkeys((*skill.sensors, *skill.fetch_sensors, *FETCH, *more)))
    return skill.sensors


def _on_own_map(skill: Skill, pictures: Collection[str]) -> tuple[str, ...]:
    """Returns the sensors based on a map that the robot builds while it drives."""
    search = (SEARCH, SPOTTED) if HEAD_CATEGORY in pictures else (FRONTIER,)
    return (*([EXPLORED] if skill.explores else []), *(search if skill.searches else []))


def _check_search(names: Collection[str], pictures: Mapping[str, Sides]) -> None:
    """Checks that a search (`tpsrl.world.search_maps`) has the pictures that it needs."""
    needs = [name for name in names if name in OF_SEARCH]
    depth, category = (pictures.get(name) for name in (HEAD_DEPTH, HEAD_CATEGORY))
    if needs and (depth is None or depth != category):
        height, width = category or depth or (64, 64)
        size = f"{height}" if height == width else f"{height}x{width}"
        raise UserError(
            f"sensors: {needs[0]} needs depth and categories of one size; nearest: "
            f"cameras={HEAD_DEPTH}:{size},{HEAD_CATEGORY}:{size}"
        )
