"""What a robot pushes about on its way: objects that are not where they were."""

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
    """An object that was never in the hand and is not where it was: since which control step."""

    object: int
    name: str
    metres: float
    step: int


class Disturbance:
    """Where everything was at the start of an episode, and what has been in the hand since.

    Worlds are of batch one. The contents of a drawer move with it: an object that was in one at the
    start, and is in the same one, has not been moved.
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
        """One that goes on from here by itself."""
        other = copy.copy(self)
        other._handled, other._since = set(self._handled), dict(self._since)
        return other

    def note(self, world: WorldState, step: int) -> None:
        """Remembers what is in the hand, and what is not where it was, after a control step."""
        self._handled.add(int(world.held[0]))
        away = np.flatnonzero(self._away(world) > MOVED_M).tolist()
        self._since = {thing: self._since.get(thing, step) for thing in away}

    def knocked(self, world: WorldState, since: int) -> list[Knock]:
        """What has been pushed about after step `since` and was never held, the earliest first."""
        away = self._away(world)
        order = sorted(self._since.items(), key=lambda item: item[1])
        return [
            Knock(thing, self._names[thing], float(away[thing]), step)
            for thing, step in order
            if step > since and thing not in self._handled and away[thing] > MOVED_M
        ]

    def _away(self, world: WorldState) -> np.ndarray:
        """How far (n,) objects are from where they were, but for the drawers' own ways."""
        carried = (self._slides * (world.joints[0] - self._joints)[:, None]).sum(axis=1)
        now = world.object_pos[0, : len(self._start)]
        return np.asarray(np.linalg.norm(now - self._start - carried, axis=1))

    def moved(self, world: WorldState) -> Moved:
        """What is not where it was."""
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
        """Pairs of an object and the drawer's joint."""
        return {
            (thing, joint)
            for joint, box in self._drawers
            for thing, pos in enumerate(world.object_pos[0, : len(self._start)])
            if box.depth_inside(pos, float(world.joints[0, joint])) > 0.0
        }
