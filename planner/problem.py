"""The planning problem of an episode, from its start or from what is observed later."""

import dataclasses

import numpy as np

from planner.entities import CAB, FRIDGE, ROBOT, Entities, Entity
from planner.predicates import Atom, PredicateThresholds, Scene, evaluate
from tpsrl.world.episode import Episode
from tpsrl.world.state import JOINTS, WorldState


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Initial facts and goal atoms over the entities of an episode.

    `declared` are the entities that the problem is about, in the order of preference in search.
    The goal's order is the order in which search achieves its atoms.
    """

    entities: Entities
    declared: tuple[Entity, ...]
    init: tuple[Atom, ...]
    goal: tuple[Atom, ...]

    def text(self, domain: str = "home_assistant") -> str:
        """The problem in PDDL; the handles are constants of the domain."""
        objects = [f"{e.name} - {e.type}" for e in self.declared if e.joint < 0]
        lines = [
            f"(define (problem {_identifier(self.entities.episode.id)})",
            f"  (:domain {domain})",
            "  (:objects",
            *(f"    {line}" for line in objects),
            "  )",
            "  (:init",
            *(f"    ({' '.join(atom)})" for atom in self.init),
            "  )",
            "  (:goal (and",
            *(f"    ({' '.join(atom)})" for atom in self.goal),
            "  )))",
        ]
        return "\n".join(lines) + "\n"


def problem_from_episode(
    episode: Episode,
    world: WorldState | None = None,
    thresholds: PredicateThresholds | None = None,
) -> Problem:
    """HAB's goal for an episode, from its start or from an observed world of batch one.

    Facts are what the predicates say of the geometry, with two exceptions. There is no `robot_at`
    at the start: within 2 m is not within reach, and HAB's plans always navigate first. And
    `object_at` is only asked of an object and its own goal: 0.3 m around a goal there may well
    stand others.

    Raises:
        UserError: the episode names an unknown layout.
    """
    entities = Entities(episode)
    observed = start_world(episode) if world is None else world
    scene = Scene(observed, entities, thresholds or PredicateThresholds())
    homes = [home for home in entities.homes if home.object == observed.held[0]]
    declared = [e for e in entities if e in homes or not e.name.startswith("home_")]
    pairs = [(entities.objects[g.object].name, g.name) for g in [*entities.goals, *homes]]
    candidates: list[Atom] = [("not_holding", ROBOT)]
    candidates += [("holding", obj.name, ROBOT) for obj in entities.objects]
    candidates += [("goal_of", goal, obj) for obj, goal in pairs]
    candidates += [("object_at", obj, goal) for obj, goal in pairs]
    for marker in entities.markers:
        kind = {FRIDGE: "fridge", CAB: "cab"}[marker.type]
        candidates += [(f"opened_{kind}", marker.name), (f"closed_{kind}", marker.name)]
        things = [*entities.objects, *entities.goals, *homes]
        candidates += [("in", thing.name, marker.name) for thing in things]
    goal: list[Atom] = [
        ("object_at", entities.objects[g.object].name, g.name) for g in entities.goals
    ]
    return Problem(
        entities,
        declared=tuple(declared),
        init=tuple(atom for atom in candidates if evaluate(atom, scene).holds),
        goal=(*goal, ("not_holding", ROBOT)),
    )


def start_world(episode: Episode) -> WorldState:
    """What an episode's record says of its start; arm and handle points are not in it (NaN)."""
    base = np.array([episode.robot_start], dtype=float)
    return WorldState(
        base=base,
        base_velocity=np.zeros((1, 3)),
        arm=np.full((1, 7), np.nan),
        ee_pos=np.full((1, 3), np.nan),
        ee_quat=np.full((1, 4), np.nan),
        object_pos=np.array([[placement.pos for placement in episode.objects]], dtype=float),
        object_quat=np.array([[placement.quat for placement in episode.objects]], dtype=float),
        held=np.array([-1]),
        held_joint=np.array([-1]),
        joints=np.array([[episode.articulation.get(name, 0.0) for name in JOINTS]]),
        marker_pos=np.full((1, len(JOINTS), 3), np.nan),
        force=np.zeros(1),
        force_total=np.zeros(1),
        violation=np.zeros(1, dtype=bool),
        step=np.zeros(1, dtype=int),
    )


def _identifier(name: str) -> str:
    return "episode-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
