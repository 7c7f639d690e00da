"""What the scenarios draw, as facts of habitat-lab's dataset configurations (0.3.3, hab/*.yaml)."""

import dataclasses
from collections.abc import Mapping

from tpsrl.world.objects import REARRANGE_EASY, TIDY_HOUSE

OPEN_RECEPTACLES = (
    "chair",
    "table_1",
    "table_2",
    "tv_stand",
    "sink",
    "counter_right",
    "counter_left",
    "sofa",
)
COUNTERS = ("counter_left", "counter_right")
# The drawers with a receptacle, and the marker that opens each.
DRAWERS = {
    "drawer_right_top": "cab_push_point_5",
    "drawer_middle_top": "cab_push_point_6",
    "drawer_left_top": "cab_push_point_7",
}
FRIDGE = "fridge_push_point"

# How far the scripted skills have opened by the time an object is grasped (rad, m).
FRIDGE_OPENED_RAD = 1.2
DRAWER_OPENED_M = 0.45
# HAB asks for drawers at 0.5 m; the rails end at 0.49.
_ALL_OPEN = {
    FRIDGE: 1.5,
    "cab_push_point_4": 0.49,
    "cab_push_point_5": 0.49,
    "cab_push_point_6": 0.49,
    "cab_push_point_7": 0.49,
}


@dataclasses.dataclass(frozen=True, slots=True)
class TargetDraw:
    """How one target is drawn: its kinds, where it starts, where it is to go.

    `opened` says by marker how far doors and drawers are open (rad, m) when the robot comes for
    the object and when it brings it, where that differs from the episode's start.
    """

    objects: tuple[str, ...]
    starts: tuple[str, ...]
    goals: tuple[str, ...]
    opened: Mapping[str, float] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Scenario:
    """What a scenario draws.

    `number` is part of the seed. `articulation` is the start of doors and drawers by marker.
    `target_region` is the middle share of a receptacle's sides in which starts and goals of
    targets have their centres (HAB's sample_region_ratio; 1 where none is given), `at_most` how
    many objects a receptacle takes. Where `swap_scarce` is set, an object for which the home has
    no slot of its primitive left gives way to another draw; else the whole mix is drawn anew.
    """

    number: int
    targets: tuple[TargetDraw, ...]
    clutter: tuple[str, ...]
    clutter_on: tuple[str, ...]
    articulation: Mapping[str, float] = dataclasses.field(default_factory=dict)
    target_region: Mapping[str, float] = dataclasses.field(default_factory=dict)
    at_most: Mapping[str, int] = dataclasses.field(default_factory=dict)
    swap_scarce: bool = False

    @property
    def num_targets(self) -> int:
        """Objects to be moved; they come first in an episode."""
        return len(self.targets)

    def opened(self, target: TargetDraw) -> dict[str, float]:
        """Doors and drawers by marker when a target is grasped or brought (rad, m)."""
        return {**self.articulation, **target.opened}


_TIDY = TargetDraw(TIDY_HOUSE, OPEN_RECEPTACLES, OPEN_RECEPTACLES)
_FROM_FRIDGE = TargetDraw(TIDY_HOUSE, ("fridge",), COUNTERS)
_INTO_FRIDGE = TargetDraw(TIDY_HOUSE, COUNTERS, ("fridge",))
_DRAWER = {"cab_push_point_5": DRAWER_OPENED_M}
_BOWL = TargetDraw(("024_bowl",), ("drawer_right_top",), ("table_1",), _DRAWER)
_APPLE = TargetDraw(
    ("013_apple",), ("fridge",), ("table_1",), {**_DRAWER, FRIDGE: FRIDGE_OPENED_RAD}
)
_EVERYWHERE = (*OPEN_RECEPTACLES, "fridge", *DRAWERS)

SCENARIOS = {
    "tidy_house": Scenario(0, (_TIDY,) * 5, TIDY_HOUSE, OPEN_RECEPTACLES),
    "prepare_groceries": Scenario(
        1,
        (_FROM_FRIDGE, _FROM_FRIDGE, _INTO_FRIDGE),
        TIDY_HOUSE,
        (*OPEN_RECEPTACLES, "fridge"),
        articulation={FRIDGE: 1.5},
        target_region={"fridge": 0.5},
    ),
    "set_table": Scenario(
        2,
        (_BOWL, _APPLE),
        TIDY_HOUSE,
        (*OPEN_RECEPTACLES, "fridge"),
        target_region={"fridge": 0.5},
    ),
    "rearrange_easy": Scenario(
        3,
        (TargetDraw(REARRANGE_EASY, _EVERYWHERE, _EVERYWHERE),),
        REARRANGE_EASY,
        _EVERYWHERE,
        articulation=_ALL_OPEN,
        at_most={"chair": 2, "sink": 2},
        swap_scarce=True,
    ),
    "in_drawer": Scenario(
        4,
        (TargetDraw(REARRANGE_EASY, ("drawer_right_top",), OPEN_RECEPTACLES, _DRAWER),),
        REARRANGE_EASY,
        OPEN_RECEPTACLES,
        at_most={"chair": 2, "sink": 2},
        swap_scarce=True,
    ),
    "in_fridge": Scenario(
        5,
        (TargetDraw(REARRANGE_EASY, ("fridge",), OPEN_RECEPTACLES, {FRIDGE: FRIDGE_OPENED_RAD}),),
        REARRANGE_EASY,
        OPEN_RECEPTACLES,
        target_region={"fridge": 0.5},
        at_most={"chair": 2, "sink": 2},
        swap_scarce=True,
    ),
}
