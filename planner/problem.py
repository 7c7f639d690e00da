"""Planning problem of an episode, from its start or from an observed world state."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from planner.entities import CAB, FRIDGE, ROBOT, Entities, Entity, short_name
from planner.grounding import problem_text
from planner.options import PlanOptions
from planner.pddl.domain import PddlDomain
from planner.predicates import Atom, PredicateContext, PredicateThresholds, check, evaluate, parse
from tpsrl.errors import UserError, unknown
from tpsrl.world.episode import Episode
from tpsrl.world.state import JOINTS, WorldState

_MOST_GOALS = 100  # maximum atoms of a goal; Tidy House has 6


@dataclasses.dataclass(frozen=True, slots=True)
class Problem:
    """Initial facts and goal atoms over the entities of an episode.

    `declared` are the entities of the problem, in the order of preference in search. The order of
    `goal` is the order in which search achieves its atoms.
    """

    entities: Entities
    declared: tuple[Entity, ...]
    init: tuple[Atom, ...]
    goal: tuple[Atom, ...]

    def text(self, domain: PddlDomain | None = None) -> str:
        """Returns the problem in PDDL for a domain, this project's own by default.

        Handles are objects of the problem if they are not constants of the domain.
        """
        name = _identifier(self.entities.episode.id)
        if domain is None:
            objects = [(e.name, e.type) for e in self.declared if e.joint < 0]
            return problem_text(name, objects, self.init, self.goal, "home_assistant")
        constants, typed = domain.model.objects, bool(domain.model.types)
        objects = [
            (e.name, e.type if typed else "") for e in self.declared if e.name not in constants
        ]
        return problem_text(name, objects, self.init, self.goal, domain.name)


def problem_from_episode(
    episode: Episode,
    world: WorldState | None = None,
    thresholds: PredicateThresholds | None = None,
    options: PlanOptions | None = None,
) -> Problem:
    """Returns the problem of HAB's goal for an episode, from its start or an observed `world`.

    `world` has batch one. The facts are the predicates that hold in the geometry, with two
    exceptions. There is no `robot_at` at the start: within 2 m is not within reach, and HAB's plans
    always navigate first. And `object_at` is evaluated only for an object and its own goal: other
    objects may stand within the 0.3 m around a goal.

    Raises:
        UserError: the episode names an unknown layout.
    """
    entities = Entities(episode)
    thresholds, options = thresholds or PredicateThresholds(), options or PlanOptions()
    observed = start_world(episode) if world is None else world
    homes = [home for home in entities.homes if home.object == observed.held[0]]
    declared = [e for e in entities if e in homes or not e.name.startswith("home_")]
    scene = PredicateContext(observed, entities, thresholds)
    init = [atom for atom in _candidates(entities, homes) if evaluate(atom, scene).holds]
    if not options.nav_after_open_drawer:
        drawers = [marker.name for marker in entities.markers if marker.type == CAB]
        init += [("reached_from_handle", name) for name in drawers]
    goal = [_placed(entities, goal) for goal in entities.goals]
    if options.close_after:
        goal = _closed_after(goal, PredicateContext(start_world(episode), entities, thresholds))
    return Problem(entities, tuple(declared), tuple(init), (*goal, ("not_holding", ROBOT)))


def with_goal(problem: Problem, goal: str) -> Problem:
    """Returns the problem with another goal, a text such as "object_at(obj_0, goal_0) and ...".

    Objects may be given by their short names.

    Raises:
        UserError: an atom is malformed, its predicate or an entity unknown, or there are too many.
    """
    readings = goal.split(" and ")
    if len(readings) > _MOST_GOALS:
        raise UserError(f"goal: has {len(readings):,} atoms, must have {_MOST_GOALS} at most")
    names = {short_name(entity.name): entity.name for entity in problem.entities}
    atoms: list[Atom] = []
    for reading in readings:
        predicate, *terms = parse(reading, "goal")
        check((predicate, *terms), "goal: ")
        for term in terms:
            if term not in names and term not in names.values():
                raise unknown("goal", term, names)
        atoms.append((predicate, *(problem.entities[names.get(t, t)].name for t in terms)))
    return dataclasses.replace(problem, goal=tuple(atoms))


def _candidates(entities: Entities, homes: Sequence[Entity]) -> list[Atom]:
    """Returns the atoms that are evaluated for the initial facts of a problem."""
    candidates: list[Atom] = [("not_holding", ROBOT)]
    candidates += [("holding", obj.name, ROBOT) for obj in entities.objects]
    pairs = [(entities.objects[g.object].name, g.name) for g in [*entities.goals, *homes]]
    candidates += [("goal_of", goal, obj) for obj, goal in pairs]
    candidates += [("object_at", obj, goal) for obj, goal in pairs]
    things = [*entities.objects, *entities.goals, *homes]
    for marker in entities.markers:
        candidates += [(f"opened_{_kind(marker)}", marker.name), _closed(marker)]
        candidates += [("in", thing.name, marker.name) for thing in things]
    return candidates


def _closed_after(placed: Sequence[Atom], start: PredicateContext) -> list[Atom]:
    """Returns the goal extended by closing everything that has to be opened.

    That is every handle closed at the start behind which an object or its goal lies. The handle is
    closed after the last object that it concerns, so that it is opened only once.
    """
    last: dict[str, int] = {}
    closed = {}
    for number, (_, *things) in enumerate(placed):
        for marker in start.entities.markers:
            if any(evaluate(("in", thing, marker.name), start).holds for thing in things):
                last[marker.name] = number
                closed[marker.name] = _closed(marker)
    goal: list[Atom] = []
    for number, atom in enumerate(placed):
        ended = [closed[name] for name in last if last[name] == number]
        goal += [atom, *(c for c in ended if evaluate(c, start).holds)]
    return goal


def _placed(entities: Entities, goal: Entity) -> Atom:
    return ("object_at", entities.objects[goal.object].name, goal.name)


def _closed(marker: Entity) -> Atom:
    return (f"closed_{_kind(marker)}", marker.name)


def _kind(marker: Entity) -> str:
    return {FRIDGE: "fridge", CAB: "cab"}[marker.type]


def start_world(episode: Episode) -> WorldState:
    """Returns the world state of an episode's start; arm and handle positions are unknown (NaN)."""
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
