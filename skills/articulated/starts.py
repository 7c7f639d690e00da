"""Start states of opening and closing: in a region before the handle, facing it with noise."""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from skills.core.interface import SkillGoal
from skills.starts.dataset import DatasetStarts
from skills.starts.room import HEADING_NOISE_RAD, Draw, Room, near
from skills.starts.start import Start
from tpsrl.world.doors import joints_at, travel
from tpsrl.world.episode import Episode
from tpsrl.world.handles import Handle, handle
from tpsrl.world.layouts import resolve
from tpsrl.world.placement import Prism, box_prism, furniture
from tpsrl.world.reach import point_to_base
from tpsrl.world.scenarios import DRAWERS, FRIDGE

DRAWER = DRAWERS["drawer_right_top"]  # the one drawer of habitat-lab's tasks
REGION_SCALE = 0.2  # habitat-lab shrinks its spawn regions about their centres by this
CLOSE_DRAWER_M = (0.4, 0.5)
CLOSE_FRIDGE_RAD = (math.pi / 4, 2 * math.pi / 3)
_ARM_BOX_M = (1.2, 0.7, 1.5)  # upper corner of the arm's box, which must contain the handle
_ARM_BOX_SLACK_M = 0.01
_HAND_M = 0.2  # free depth behind a face that is to be pushed shut
_TOUCH_M = 0.001  # by which a drawer may overlap its neighbour


@dataclasses.dataclass(frozen=True, slots=True)
class _Region:
    """Region of base positions before a handle or fridge, in its frame (m)."""

    x: tuple[float, float]
    y: tuple[float, float]

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """Draws a point (3,) at height 0 from the region, scaled by `REGION_SCALE`."""
        low, high = np.array([self.x, self.y]).T
        reach = REGION_SCALE * (high - low) / 2
        return np.append(rng.uniform((low + high) / 2 - reach, (low + high) / 2 + reach), 0.0)


_OPEN_DRAWER = _Region((0.80, 0.95), (-0.35, 0.35))
_CLOSE_DRAWER = _Region((0.80, 0.85), (-0.35, 0.35))
_BEFORE_FRIDGE = _Region((0.833, 1.25), (-0.6, 0.6))


def _articulated(
    marker: str, region: _Region, openings: tuple[float, float] | None
) -> Callable[[Episode, np.random.Generator], Draw]:
    """Returns the draw of start states in `region`, facing the handle with noise.

    With `openings` the initial joint position is drawn between them, up to the joint's limit. It
    must leave room for a hand between the door or drawer and the walls, because closing without
    suction is impossible otherwise. In the validation family the fridge's hinge is next to a wall,
    which may explain why MS-HAB reports that closing never succeeded there.
    """

    def prepare(base: Episode, rng: np.random.Generator) -> Draw:
        limit = handle(base.layout, marker).limit

        def draw(attempt: int) -> Start | None:
            joint = 0.0
            if openings is not None:
                joint = min(float(rng.uniform(*openings)), limit)
                if not _swings_free(base.layout, marker, joint):
                    return None
            return _before(_opened(base, marker, joint), marker, region, rng)

        return draw

    return prepare


def _towards(region: _Region) -> Callable[[Episode, SkillGoal, np.random.Generator], Draw]:
    """Returns the draw for a given goal, with the joint where the episode has it."""

    def prepare(base: Episode, goal: SkillGoal, rng: np.random.Generator) -> Draw:
        return lambda attempt: _before(base, goal.marker, region, rng)

    return prepare


def _around(marker: str) -> Callable[[Episode, np.random.Generator, float], Draw]:
    """Returns the draw within `within` metres of a closed handle, facing it with noise."""

    def prepare(base: Episode, rng: np.random.Generator, within: float) -> Draw:
        point = tuple(handle(base.layout, marker).point(0.0))
        return near(base, rng, point, SkillGoal(marker=marker), held=-1, within=within)

    return prepare


def _before(base: Episode, marker: str, region: _Region, rng: np.random.Generator) -> Start | None:
    """Returns a start before a handle of the episode, or None if the drawn pose is not free."""
    grip, joint = handle(base.layout, marker), base.articulation.get(marker, 0.0)
    # The region's frame is the marker for a drawer, the body for the fridge.
    pos, turn = grip.pose(joint)
    marked = pos + turn @ np.array(grip.link.marker)
    origin, rotation = (marked, turn) if grip.slides else (grip.origin, grip.rotation)
    room = Room(base, moving=marker)
    spot = room.nearest_spot(origin + rotation @ region.draw(rng))
    noise = float(rng.normal(0.0, HEADING_NOISE_RAD))
    if spot is None:
        return None
    heading = math.atan2(origin[1] - spot[1], origin[0] - spot[0]) + noise
    seen = point_to_base((*spot, heading), marked)
    if (seen > np.array(_ARM_BOX_M) + _ARM_BOX_SLACK_M).any():
        return None
    return room.start_at((*spot, heading), SkillGoal(marker=marker))


def _opened(base: Episode, marker: str, joint: float) -> Episode:
    """Returns the episode with one joint at `joint`; objects in a drawer move with it."""
    articulation = {**base.articulation, marker: joint}
    before, after = joints_at(base.articulation), joints_at(articulation)
    inside = {name for name, key in DRAWERS.items() if key == marker}
    moved = np.zeros(3) if marker == FRIDGE else travel(base.layout, marker, before, after)
    x, y, z = (float(v) for v in moved)
    objects = tuple(
        dataclasses.replace(o, pos=(o.pos[0] + x, o.pos[1] + y, o.pos[2] + z))
        if o.receptacle in inside
        else o
        for o in base.objects
    )
    return dataclasses.replace(base, objects=objects, articulation=articulation)


def _swings_free(layout: str, marker: str, joint: float) -> bool:
    """Returns whether a door or drawer is clear of walls and furniture, with room for a hand."""
    body, _ = resolve(layout)[0].link(marker)
    others = furniture(layout, without=body)
    where = handle(layout, marker)
    boxes = where.boxes(joint)
    return all(
        others.fits(box_prism(centre, turn, half), -_TOUCH_M)
        for centre, turn, half in zip(boxes.centre, boxes.rotation, boxes.half, strict=True)
    ) and others.fits(_hand(where, joint), 0.0)


def _hand(where: Handle, joint: float) -> Prism:
    """Returns the space of a hand beyond the handle, along the face's normal."""
    _, turn = where.pose(joint)
    centre = where.point(joint) + (_HAND_M / 2 + _TOUCH_M) * where.normal(joint)
    return box_prism(centre, turn, np.array([_HAND_M / 2, 0.06, 0.06]))


def _starts(
    dataset: str, marker: str, region: _Region, openings: tuple[float, float] | None
) -> DatasetStarts:
    around = _around(marker) if openings is None else None
    return DatasetStarts(dataset, _articulated(marker, region, openings), _towards(region), around)


OPEN_FRIDGE = _starts("in_fridge", FRIDGE, _BEFORE_FRIDGE, None)
CLOSE_FRIDGE = _starts("in_fridge", FRIDGE, _BEFORE_FRIDGE, CLOSE_FRIDGE_RAD)
OPEN_DRAWER = _starts("in_drawer", DRAWER, _OPEN_DRAWER, None)
CLOSE_DRAWER = _starts("in_drawer", DRAWER, _CLOSE_DRAWER, CLOSE_DRAWER_M)
