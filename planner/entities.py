"""Named entities of an episode's planning problem, and their positions."""

import dataclasses
import re
from collections.abc import Iterator

import numpy as np

from tpsrl.errors import unknown
from tpsrl.world.episode import Episode
from tpsrl.world.state import JOINTS, WorldState

ROBOT = "robot_0"

MOVABLE = "movable_entity_type"
GOAL = "goal_entity_type"
CAB = "cab_type"
FRIDGE = "fridge_type"
ROBOT_TYPE = "robot_entity_type"

# Types of the handles of drawers and fridge.
HANDLES = {name: FRIDGE if name.startswith("fridge") else CAB for name in JOINTS}


@dataclasses.dataclass(frozen=True, slots=True)
class Entity:
    """A PDDL name with its type.

    `object` is the index into `Episode.objects` (for a goal, the index of the object that belongs
    there), `position` (3,) the fixed position (m) of a goal, `joint` the index into `JOINTS`; -1
    and None where they do not apply.
    """

    name: str
    type: str
    object: int = -1
    position: tuple[float, float, float] | None = None
    joint: int = -1


class Entities:
    """All entities of one episode, in the order of preference in search.

    Targets come first, in target order, as `obj_TARGET_NAME`; then `goal_TARGET`; then clutter as
    `clutter_OBJECT_NAME`; then, for every object that is not a target, `home_OBJECT`, its start
    position, to which it is returned if it was taken by mistake; then the handles of `JOINTS` and
    the robot.
    """

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        targets = {
            target.object: number for number, target in reversed([*enumerate(episode.targets)])
        }
        self.objects = tuple(
            Entity(_object_name(episode, index, targets), MOVABLE, object=index)
            for index in range(len(episode.objects))
        )
        self.goals = tuple(
            Entity(f"goal_{number}", GOAL, object=target.object, position=target.goal)
            for number, target in enumerate(episode.targets)
        )
        self.homes = tuple(
            Entity(f"home_{index}", GOAL, object=index, position=placement.pos)
            for index, placement in enumerate(episode.objects)
            if index not in targets
        )
        self.markers = tuple(
            Entity(name, kind, joint=joint) for joint, (name, kind) in enumerate(HANDLES.items())
        )
        self.robot = Entity(ROBOT, ROBOT_TYPE)
        wanted = dict.fromkeys(target.object for target in episode.targets)
        ordered = [
            *(self.objects[index] for index in wanted),
            *self.goals,
            *(entity for entity in self.objects if entity.object not in targets),
            *self.homes,
            *self.markers,
            self.robot,
        ]
        self._by_name = {entity.name: entity for entity in ordered}

    def __iter__(self) -> Iterator[Entity]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> Entity:
        """Returns the entity called `name`.

        Raises:
            UserError: there is no such entity; names the nearest.
        """
        if name not in self._by_name:
            raise unknown("entity", name, self._by_name)
        return self._by_name[name]

    def position(self, entity: Entity, world: WorldState) -> np.ndarray:
        """Returns the position (3,) of an entity in metres, in a world of batch one."""
        if entity.position is not None:
            return np.asarray(entity.position)
        if entity.joint >= 0:
            return np.asarray(world.marker_pos[0, entity.joint])
        if entity.object >= 0:
            return np.asarray(world.object_pos[0, entity.object])
        return np.asarray([*world.base[0, :2], 0.0])


def short_name(name: str) -> str:
    """Returns the name without its YCB part, the same in every episode: "obj_0", "goal_0"."""
    match = re.match(r"(obj|clutter)_\d+", name)
    return match.group() if match else name


def _object_name(episode: Episode, index: int, targets: dict[int, int]) -> str:
    ycb = re.sub(r"[^a-z0-9_]", "_", episode.objects[index].name.lower())
    if index in targets:
        return f"obj_{targets[index]}_{ycb}"
    return f"clutter_{index}_{ycb}"
