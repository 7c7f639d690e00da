"""Reachability of an episode's starts and goals, with the required doors and drawers open.

Applies to scenarios that set `reachable`. habitat-lab's generator has no such check.
"""

import functools
from collections.abc import Sequence

import numpy as np

from tpsrl.world.collision import object_bodies
from tpsrl.world.doors import joints_at, moved, moved_receptacles, travel
from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.floor import CLOSED, Joints
from tpsrl.world.handles import handle
from tpsrl.world.layouts import PlacedReceptacle, placed_receptacles, resolve
from tpsrl.world.objects import ObjectKind, object_kind
from tpsrl.world.reach import reachable, stances
from tpsrl.world.scenarios import Scenario, TargetDraw


def in_reach(
    scenario: Scenario, layout: str, marker: str, top: np.ndarray, draw: TargetDraw
) -> bool:
    """Returns whether the cup can reach a target's start or goal, ignoring other objects.

    Args:
        scenario: scenario of the target
        layout: "SET/NAME"
        marker: marker of the drawer that carries the point, "" for a point that does not move
        top: (3,) point that the cup has to touch, metres, with the scenario's articulation
        draw: description of the target
    """
    joints = joints_at(scenario.opened(draw))
    way = travel(layout, marker, joints_at(scenario.articulation), joints)
    return reachable(layout, top + way, joints=joints)


def blocked(
    scenario: Scenario,
    layout: str,
    objects: Sequence[ObjectPlacement],
    targets: Sequence[Target],
) -> str:
    """Returns which end of a target the cup cannot reach among all other objects and goals.

    Returns:
        "start", "goal", or "" if every start and goal can be reached.
    """
    joints = joints_at(scenario.articulation)
    kinds = [object_kind(o.name) for o in objects]
    marker = {r.name: r.marker for r in moved_receptacles(layout, joints)}
    names = [o.receptacle for o in objects] + [t.receptacle for t in targets]
    pos = np.array([o.pos for o in objects] + [t.goal for t in targets])
    quat = np.array([o.quat for o in objects] + [(1.0, 0.0, 0.0, 0.0)] * len(targets))
    standing = [*kinds, *(kinds[t.object] for t in targets)]
    places = [*(t.object for t in targets), *range(len(kinds), len(standing))]
    draws = scenario.targets[: len(targets)] * 2
    for place, draw in zip(places, draws, strict=True):
        end = joints_at(scenario.opened(draw))
        there = pos + [travel(layout, marker.get(name, ""), joints, end) for name in names]
        rows = [i for i in range(len(standing)) if i != place]
        others = object_bodies([standing[i] for i in rows], there[rows], quat[rows])
        if not reachable(layout, cup_point(there[place], standing[place]), others, end):
            return "start" if place < len(kinds) else "goal"
    return ""


def faults(scenario: Scenario, episode: Episode) -> list[str]:
    """Returns the reasons for which a scenario with `reachable` would reject an episode.

    The episode's targets are in the order of the scenario's targets; there may be fewer.
    """
    found = []
    joints = joints_at(scenario.articulation)
    marker = {r.name: r.marker for r in moved_receptacles(episode.layout, joints)}
    for target, draw in zip(episode.targets, scenario.targets, strict=False):
        thing = episode.objects[target.object]
        kind = object_kind(thing.name)
        for what, pos, name in (
            ("start", thing.pos, thing.receptacle),
            ("goal", target.goal, target.receptacle),
        ):
            top = cup_point(pos, kind)
            if not in_reach(scenario, episode.layout, marker.get(name, ""), top, draw):
                found.append(f"{what} out of reach")
    if not found:
        where = blocked(scenario, episode.layout, episode.objects, episode.targets)
        found += [f"{where} blocked"] if where else []
    return sorted(set(found))


@functools.lru_cache(maxsize=512)
def layout_suits(scenario: Scenario, layout: str) -> bool:
    """Returns whether the doors and drawers of a scenario can be used in layout "SET/NAME".

    The base must have room to stand at each handle that has to be opened, with the door or drawer
    closed and open. With everything open, the cup must reach the front of a fridge shelf or drawer
    in which a target starts or ends.
    """
    layout_set, chosen = resolve(layout)
    placed = placed_receptacles(layout_set, chosen)
    links = {name for name, body in layout_set.bodies.items() if body.links}
    for draw in scenario.targets:
        joints = joints_at(scenario.opened(draw))
        for marker in draw.opened:
            grip = handle(layout, marker)
            for state in (CLOSED, joints):
                if not len(stances(layout, grip.point(state[grip.index]), joints=state)):
                    return False
        for names in (draw.starts, draw.goals):
            choices = [moved(layout, r, joints) for r in placed if r.name in names]
            if not any(r.body not in links or _front_in_reach(layout, r, joints) for r in choices):
                return False
    return True


def _front_in_reach(layout: str, receptacle: PlacedReceptacle, joints: Joints) -> bool:
    front = receptacle.rotation @ np.array([receptacle.half[0] / 2, 0.0, 0.0])
    return reachable(layout, receptacle.pos + front, joints=joints)


def cup_point(centre: Sequence[float] | np.ndarray, kind: ObjectKind) -> np.ndarray:
    """Returns the point (3,) at which the cup touches an upright object, metres."""
    return np.array([centre[0], centre[1], centre[2] + kind.half[2]])
