"""Objects that a robot displaces without picking them."""

import copy
import dataclasses

import numpy as np

from planner.containers import containers
from planner.entities import Entities
from planner.execution.trace import Moved
from tpsrl.world.state import JOINTS, WorldState

MOVED_M = 0.1


@dataclasses.dataclass(frozen=True, slots=True)
class Knock:
    """An object that was displaced without ever being in the hand, and the control step of that."""

    object: int
    name: str
    metres: float
    step: int


class Disturbance:
    """Objects' positions at the start of an episode, and the objects held since.

    Worlds are of batch one. The contents of a drawer move with it: an object that is still in the
    drawer in which it started has not been moved.
    """

    def __init__(self, entities: Entities, world: WorldState) -> None:
        self._targets = {target.object for target in entities.episode.targets}
        self._start = np.array(world.object_pos[0, : len(entities.objects)], dtype=float)
        self._drawers = [
            (marker.joint, box)
            for marker in entities.markers
            for box in containers(entities.episode.layout, marker.name)
            if box.slide.any()
        ]
        self._inside = self._contents(world)
        self._names = [entity.name for entity in entities.objects]
        self._slides = np.zeros((len(self._start), len(JOINTS), 3))
        for thing, joint in self._inside:
            boxes = [box for marker, box in self._drawers if marker == joint]
            self._slides[thing, joint] = boxes[0].slide
        self._joints = np.array(world.joints[0], dtype=float)
        self._handled: set[int] = set()
        self._since: dict[int, int] = {}

    def copy(self) -> "Disturbance":
        """Returns an independent copy."""
        other = copy.copy(self)
        other._handled, other._since = set(self._handled), dict(self._since)
        return other

    def note(self, world: WorldState, step: int) -> None:
        """Records the held object and the displaced objects after a control step."""
        self._handled.add(int(world.held[0]))
        away = np.flatnonzero(self._away(world) > MOVED_M).tolist()
        self._since = {thing: self._since.get(thing, step) for thing in away}

    def knocked(self, world: WorldState, since: int) -> list[Knock]:
        """Returns objects displaced after step `since` and never held, the earliest first."""
        away = self._away(world)
        order = sorted(self._since.items(), key=lambda item: item[1])
        return [
            Knock(thing, self._names[thing], float(away[thing]), step)
            for thing, step in order
            if step > since and thing not in self._handled and away[thing] > MOVED_M
        ]

    def _away(self, world: WorldState) -> np.ndarray:
        """Returns the displacement (n,) of objects in metres, relative to their drawers."""
        carried = (self._slides * (world.joints[0] - self._joints)[:, None]).sum(axis=1)
        now = world.object_pos[0, : len(self._start)]
        return np.asarray(np.linalg.norm(now - self._start - carried, axis=1))

    def moved(self, world: WorldState) -> Moved:
        """Counts the displaced objects."""
        now = world.object_pos[0, : len(self._start)]
        away = np.linalg.norm(now - self._start, axis=1) > MOVED_M
        carried = {thing for thing, _ in self._inside & self._contents(world)}
        found = set(np.flatnonzero(away).tolist()) - carried
        return Moved(
            clutter=len(found - self._targets),
            clutter_objects=len(self._start) - len(self._targets),
            targets=len((found & self._targets) - self._handled),
        )

    def _contents(self, world: WorldState) -> set[tuple[int, int]]:
        """Returns pairs of an object and the joint of the drawer that contains it."""
        return {
            (thing, joint)
            for joint, box in self._drawers
            for thing, pos in enumerate(world.object_pos[0, : len(self._start)])
            if box.depth_inside(pos, float(world.joints[0, joint])) > 0.0
        }
