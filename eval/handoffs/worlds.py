"""Episode records with effects of plan steps applied."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from planner.containers import containers
from planner.entities import Entities
from planner.plan import Plan
from planner.predicates import Atom
from tpsrl.world.doors import joints_at, travel
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.handles import handle
from tpsrl.world.scenarios import FRIDGE, Scenario
from tpsrl.world.state import JOINTS, WorldState

_OPEN = {True: 1.2, False: 0.45}  # fridge (rad), drawers (m); default openings
_SHUT = 1e-3  # tolerance (rad, m) of a closed joint


def opened_by_plan(scenario: Scenario) -> dict[str, float]:
    """Returns the opening (rad, m) of doors and drawers once a plan has opened them, by marker."""
    found = {marker: _OPEN[marker == FRIDGE] for marker in JOINTS}
    for target in scenario.targets:
        found |= {marker: wide for marker, wide in target.opened.items() if wide > 0.0}
    return found


def open_before(plan: Plan, index: int, opened: Mapping[str, float]) -> dict[str, float]:
    """Returns the opening (rad, m) of doors and drawers that are open before a step of a plan."""
    found: dict[str, float] = {}
    for kind, *names in (atom for step in plan.steps[:index] for atom in step.adds):
        if kind.startswith("opened"):
            found[names[0]] = opened[names[0]]
        elif kind.startswith("closed"):
            found.pop(names[0], None)
    return found


def as_record(episode: Episode, world: WorldState) -> Episode:
    """Returns the record of an episode that starts as a world of batch one, except for the arm.

    In the start of an episode the arm is at rest, and a held object hangs upright from the cup.
    """
    objects = tuple(
        dataclasses.replace(
            placement,
            pos=tuple(world.object_pos[0, index].tolist()),
            quat=tuple(world.object_quat[0, index].tolist()),
        )
        for index, placement in enumerate(episode.objects)
    )
    joints = {
        marker: float(value)
        for marker, value in zip(JOINTS, world.joints[0], strict=True)
        if abs(value) > _SHUT
    }
    x, y, yaw = (float(value) for value in world.base[0])
    return dataclasses.replace(
        episode,
        robot_start=(x, y, yaw),
        objects=objects,
        articulation=joints,
        held=int(world.held[0]),
    )


def planned(episode: Episode, plan: Plan, index: int, opened: Mapping[str, float]) -> Episode:
    """Returns the episode with the effects of the plan's first `index` steps; the robot stays.

    `opened` is the opening (rad, m) of doors and drawers that were opened, by marker.
    """
    for step in plan.steps[:index]:
        for atom in step.adds:
            episode = with_fact(episode, atom, True, plan.problem.entities, opened)
    return episode


def with_fact(
    record: Episode, atom: Atom, holds: bool, entities: Entities, opened: Mapping[str, float]
) -> Episode:
    """Returns the record with an atom made true or false; the robot stays.

    Atoms that do not depend on objects, doors and drawers (`robot_at`) leave the record unchanged.
    """
    kind, *names = atom
    if kind == "holding":
        thing = entities[names[0]].object
        return dataclasses.replace(record, held=thing if holds else -1)
    if kind == "not_holding":
        return dataclasses.replace(record, held=-1) if holds else record
    if kind.startswith(("opened", "closed")):
        wide = kind.startswith("opened") == holds
        return with_joint(record, names[0], opened[names[0]] if wide else 0.0)
    if kind in ("object_at", "in") and holds:
        moved, where = (entities[name] for name in names)
        placement = record.objects[moved.object]
        if where.joint >= 0:  # back to its place at the start
            placement = entities.episode.objects[moved.object]
        elif where.position is not None:
            upright = entities.episode.objects[moved.object].quat
            placement = dataclasses.replace(placement, pos=where.position, quat=upright)
        held = -1 if record.held == moved.object else record.held
        return dataclasses.replace(
            record, held=held, objects=_replaced(record.objects, moved.object, placement)
        )
    return record


def with_joint(record: Episode, marker: str, value: float) -> Episode:
    """Returns the record with a door or drawer at `value` (rad, m), its contents moved along."""
    value = min(value, handle(record.layout, marker).limit)
    after = {**record.articulation, marker: value}
    way = travel(record.layout, marker, joints_at(record.articulation), joints_at(after))
    boxes = [box for box in containers(record.layout, marker) if box.slide.any()]
    now = record.articulation.get(marker, 0.0)
    objects = tuple(
        dataclasses.replace(o, pos=tuple((way + o.pos).tolist()))
        if any(box.depth_inside(way * 0.0 + o.pos, now) > 0.0 for box in boxes)
        else o
        for o in record.objects
    )
    return dataclasses.replace(record, articulation=after, objects=objects)


def _replaced(
    objects: tuple[ObjectPlacement, ...], index: int, placement: ObjectPlacement
) -> tuple[ObjectPlacement, ...]:
    return (*objects[:index], placement, *objects[index + 1 :])


def marker_positions(record: Episode, world: WorldState) -> np.ndarray:
    """Returns the positions (5, 3) of the handles in a record (m).

    A handle whose joint has the same position in the world keeps its position there.
    """
    found = np.array(world.marker_pos[0], dtype=float)
    for index, marker in enumerate(JOINTS):
        if record.articulation.get(marker, 0.0) != float(world.joints[0, index]):
            found[index] = marker_position(record, marker)
    return found


def marker_position(record: Episode, marker: str) -> np.ndarray:
    """Returns the position (3,) of a handle in a record (m)."""
    where = handle(record.layout, marker)
    pos, turn = where.pose(record.articulation.get(marker, 0.0))
    return pos + turn @ np.array(where.link.marker)
