"""Definition of a planned scenario: domain, goal, stage goals and plan, as input of the linter."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from planner.containers import HandleContents, handles
from planner.domains import HABITAT_DOMAIN
from planner.plan import Plan
from planner.predicates import Atom, PredicateThresholds, parse
from planner.stages import stage_goals
from skills.tables import thresholds
from tpsrl.errors import UserError, unknown

_HABITAT_PROBLEMS = Path(__file__).with_name("habitat_problems.yaml")


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """Definition of a planned scenario, by this project or another author.

    `entities` maps the names in the problem to their types (handles are constants of the domain);
    `stages` are named stage goals in order; `steps` is the plan, each step an action with its
    arguments. `contents` maps objects and goals to their receptacles, where these can be closed,
    and `handles` maps each handle to the receptacles that it opens. The two sources should agree.
    """

    name: str
    domain: Path
    entities: Mapping[str, str]
    init: tuple[Atom, ...]
    goal: tuple[Atom, ...]
    stages: Mapping[str, tuple[Atom, ...]]
    steps: tuple[Atom, ...]
    contents: Mapping[str, str]
    handles: Mapping[str, HandleContents]
    predicates: PredicateThresholds
    skills: Any  # thresholds by skill, see `skills.tables.thresholds`


def definition_of(
    plan: Plan,
    domain: Path,
    predicates: PredicateThresholds | None = None,
    skills: Any = None,
) -> Definition:
    """Returns this project's definition of an episode's scenario, from its plan.

    `contents` are taken from the receptacles named in the episode, not from the objects' positions.
    """
    problem = plan.problem
    episode = problem.entities.episode
    opened = handles(episode.layout.partition("/")[0])
    shut = {name for handle in opened.values() for name in handle.receptacles}
    entities = [*problem.entities.objects, *problem.entities.goals]
    receptacles = [placement.receptacle for placement in episode.objects]
    receptacles += [target.receptacle for target in episode.targets]
    places = {e.name: place for e, place in zip(entities, receptacles, strict=True)}
    return Definition(
        name=episode.id,
        domain=domain,
        entities={e.name: e.type for e in problem.declared if e.joint < 0},
        init=problem.init,
        goal=problem.goal,
        stages=stage_goals(plan),
        steps=tuple((step.action, *step.args) for step in plan),
        contents={name: place for name, place in places.items() if place in shut},
        handles=opened,
        predicates=predicates or PredicateThresholds(),
        skills=thresholds() if skills is None else skills,
    )


def habitat_definition(
    scenario: str,
    predicates: PredicateThresholds | None = None,
    skills: Any = None,
) -> Definition:
    """Returns habitat-lab's own definition of a scenario (0.3.3), unchanged.

    Raises:
        UserError: habitat-lab has no such scenario; names the nearest.
    """
    return read_definition(_HABITAT_PROBLEMS, scenario, HABITAT_DOMAIN, predicates, skills)


def read_definition(
    path: Path,
    scenario: str,
    domain: Path,
    predicates: PredicateThresholds | None = None,
    skills: Any = None,
) -> Definition:
    """Reads one scenario of a YAML file such as planner/habitat_problems.yaml.

    Objects and goals in a receptacle that a handle opens are `in` that handle at the start.

    Raises:
        UserError: the file has no such scenario, or an entry is missing or malformed.
    """
    scenarios = _load(path)
    if scenario not in scenarios:
        raise unknown("scenario", scenario, scenarios)
    record, where = scenarios[scenario], f"{path.name}: {scenario}"
    opened = handles(_entry(record, "layouts", where))
    contents = dict(_entry(record, "contents", where))
    inside = [
        ("in", thing, marker)
        for thing, place in contents.items()
        for marker, handle in opened.items()
        if place in handle.receptacles
    ]
    kinds = _entry(record, "objects", where)
    stages = _entry(record, "stage_goals", where)
    return Definition(
        name=scenario,
        domain=domain,
        entities={name: kind for kind, names in kinds.items() for name in names},
        init=(*_atoms(_entry(record, "init", where), where), *inside),
        goal=_atoms(_entry(record, "goal", where), where),
        stages={name: _atoms(atoms, f"{where}: {name}") for name, atoms in stages.items()},
        steps=_atoms(_entry(record, "solution", where), where),
        contents=contents,
        handles=opened,
        predicates=predicates or PredicateThresholds(),
        skills=thresholds() if skills is None else skills,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        scenarios: Any = OmegaConf.to_container(OmegaConf.load(path))
    except OSError as error:
        raise UserError(f"definition: cannot read {path}: {error.strerror}") from None
    except Exception as error:
        # The YAML and decoding errors that can be raised here share no base class.
        raise UserError(f"{path.name}: {' '.join(str(error).split())}") from None
    if not isinstance(scenarios, dict):
        raise UserError(f"{path.name}: must be a mapping from scenarios to their definitions")
    return scenarios


def _atoms(texts: Sequence[str], where: str) -> tuple[Atom, ...]:
    return tuple(parse(text, where) for text in texts)


def _entry(record: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in record:
        raise UserError(f"{where}: entry '{key}' is missing")
    return record[key]
