"""HAB's predicates as functions of the world state, with the margin of each.

Definitions and thresholds are those of habitat-lab 0.3.3
(multi_task/domain_configs/replica_cad.yaml and pddl_defined_predicates.py). World states are numpy
with batch one.
"""

import dataclasses
import re
from collections.abc import Callable

import numpy as np

from planner.containers import containers
from planner.entities import Entities, Entity
from skills.core.conditions import Margin
from tpsrl import config
from tpsrl.errors import UserError, unknown
from tpsrl.world.state import WorldState

Atom = tuple[str, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class PredicateThresholds:
    """Thresholds of the predicates. Between opened and closed is a gap in which neither holds."""

    robot_at_m: float = config.option(2.0, "maximum distance of the base for robot_at (m)")
    object_at_m: float = config.option(0.3, "maximum distance of an object for at (m)")
    opened_cab_m: float = config.option(0.35, "minimum opening of an open drawer (m)")
    closed_cab_m: float = config.option(0.15, "maximum opening of a closed drawer (m)")
    opened_fridge_rad: float = config.option(1.07, "minimum opening of an open fridge (rad)")
    closed_fridge_rad: float = config.option(0.15, "maximum opening of a closed fridge (rad)")


@dataclasses.dataclass(frozen=True, slots=True)
class PredicateContext:
    """Input of a predicate: a world of batch one, its entities, and the thresholds."""

    world: WorldState
    entities: Entities
    thresholds: PredicateThresholds = PredicateThresholds()

    def position(self, entity: Entity) -> np.ndarray:
        """Returns the position (3,) of an entity in metres."""
        return self.entities.position(entity, self.world)

    def joint(self, entity: Entity) -> float:
        """Returns the opening of a drawer (m) or the fridge door (rad)."""
        return float(self.world.joints[0, entity.joint])


def holding(context: PredicateContext, obj: Entity, robot: Entity) -> Margin:
    """Flags whether the robot holds this particular object."""
    return Margin.flag(context.world.held[0] == obj.object)


def not_holding(context: PredicateContext, robot: Entity) -> Margin:
    """Flags whether the robot holds no object; a handle does not count, as in habitat-lab."""
    return Margin.flag(context.world.held[0] < 0)


def inside(context: PredicateContext, obj: Entity, receptacle: Entity) -> Margin:
    """Returns the margin (m) of the centre of an object or goal inside the fridge or a drawer.

    habitat-lab uses the bounding boxes of the whole fridge and of the drawer's body; the boxes here
    are smaller (`docs/protocols.md`).
    """
    boxes = containers(context.entities.episode.layout, receptacle.name)
    if not boxes:
        return Margin.flag(False)
    point, joint = context.position(obj), context.joint(receptacle)
    return Margin.above(max(box.depth_inside(point, joint) for box in boxes), 0.0, "m")


def opened_cab(context: PredicateContext, cab: Entity) -> Margin:
    """Returns the margin of the drawer's opening above the minimum."""
    return Margin.above(context.joint(cab), context.thresholds.opened_cab_m, "m")


def closed_cab(context: PredicateContext, cab: Entity) -> Margin:
    """Returns the margin of the drawer's opening below the maximum."""
    return Margin.below(abs(context.joint(cab)), context.thresholds.closed_cab_m, "m")


def opened_fridge(context: PredicateContext, fridge: Entity) -> Margin:
    """Returns the margin of the door's angle above the minimum."""
    return Margin.above(context.joint(fridge), context.thresholds.opened_fridge_rad, "rad")


def closed_fridge(context: PredicateContext, fridge: Entity) -> Margin:
    """Returns the margin of the door's angle below the maximum."""
    return Margin.below(abs(context.joint(fridge)), context.thresholds.closed_fridge_rad, "rad")


def robot_at(context: PredicateContext, at: Entity, robot: Entity) -> Margin:
    """Returns the margin of the base's planar distance to an entity."""
    away = np.linalg.norm(context.position(at)[:2] - context.world.base[0, :2])
    return Margin.below(float(away), context.thresholds.robot_at_m, "m")


def object_at(context: PredicateContext, obj: Entity, at: Entity) -> Margin:
    """Returns the margin of the object's distance to a goal, or inside a drawer or the fridge."""
    if at.joint >= 0:
        return inside(context, obj, at)
    away = np.linalg.norm(context.position(at) - context.position(obj))
    return Margin.below(float(away), context.thresholds.object_at_m, "m")


def goal_of(context: PredicateContext, goal: Entity, obj: Entity) -> Margin:
    """Flags whether the goal belongs to the object, which depends only on the episode."""
    return Margin.flag(goal.position is not None and goal.object == obj.object)


# Function and number of entities of each predicate.
PREDICATES: dict[str, tuple[Callable[..., Margin], int]] = {
    "holding": (holding, 2),
    "not_holding": (not_holding, 1),
    "in": (inside, 2),
    "opened_cab": (opened_cab, 1),
    "closed_cab": (closed_cab, 1),
    "opened_fridge": (opened_fridge, 1),
    "closed_fridge": (closed_fridge, 1),
    "robot_at": (robot_at, 2),
    "object_at": (object_at, 2),
    "goal_of": (goal_of, 2),
}

# Predicates used only by search, which cannot be evaluated in a world state.
PLANNING_ONLY = ("reached_from_handle",)


Resolved = tuple[Callable[..., Margin], tuple[Entity, ...]]  # predicate function and arguments


def resolve(atom: Atom, entities: Entities) -> Resolved:
    """Returns the function and entities of an atom such as ("robot_at", "goal_0", "robot_0").

    Raises:
        UserError: the predicate or an entity is unknown, or the number of entities is wrong.
    """
    check(atom, "")
    return PREDICATES[atom[0]][0], tuple(entities[term] for term in atom[1:])


def evaluate(atom: Atom, context: PredicateContext) -> Margin:
    """Returns the margin of a ground atom.

    Raises:
        UserError: see `resolve`.
    """
    predicate, terms = resolve(atom, context.entities)
    return predicate(context, *terms)


def text(atom: Atom) -> str:
    """Formats an atom: "robot_at(goal_0, robot_0)"."""
    return f"{atom[0]}({', '.join(atom[1:])})"


def parse(reading: str, where: str) -> Atom:
    """Parses an atom such as "robot_at(goal_0, robot_0)"; `where` is the prefix of messages.

    Raises:
        UserError: the text has another form.
    """
    match = re.fullmatch(r"\s*([\w-]+)\s*\(([\w\s,-]*)\)\s*", reading)
    terms = [term.strip() for term in match[2].split(",")] if match else []
    if match is None or not all(re.fullmatch(r"[\w-]+", term) for term in terms):
        raise UserError(f"{where}: '{reading}' must have the form predicate(entity, ...)")
    return (match[1], *terms)


def check(atom: Atom, where: str) -> None:
    """Checks that an atom has a known predicate and the right number of entities.

    Raises:
        UserError: the predicate is unknown (names the nearest), or the number is wrong.
    """
    name, *terms = atom
    if name not in PREDICATES:
        raise unknown(f"{where}predicate", name, PREDICATES)
    arity = PREDICATES[name][1]
    if len(terms) != arity:
        raise UserError(f"{where}predicate {name}: takes {arity} entities, {len(terms)} given")
