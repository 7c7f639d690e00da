"""What a robot pushes about on its way: objects that are not where they were."""

import numpy as np

from planner.containers import containers
from planner.entities import Entities
from planner.execution.trace import Moved
from tpsrl.world.state import WorldState

MOVED_M = 0.1


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
        self._handled: set[int] = set()

    def note(self, world: WorldState) -> None:
        """Remembers what is in the hand."""
        self._handled.add(int(world.held[0]))

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
