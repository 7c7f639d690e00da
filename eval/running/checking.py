"""Checks that the episodes of a file can be run, before the first one starts."""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence

from rich.console import Console

from eval.running import chains
from eval.running.episodes import Selection
from eval.settings import BankSettings, EvalSettings
from planner.domains import SHIPPED
from planner.execution.limits import ExecutionRules
from planner.given import searched_or_read
from planner.grounding import domain_file
from planner.predicates import PredicateThresholds
from planner.problem import problem_from_episode
from tpsrl.errors import RunError, UserError, one_line
from tpsrl.runtime import machine, pool, progress
from tpsrl.sim.base import HomeLost, Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.floor import in_room
from tpsrl.world.layouts import resolve
from tpsrl.world.scenarios import NO_TARGETS

_WORTH_A_PROCESS = 60  # episodes per process, which takes seconds to start
_NAMED = 3  # invalid episodes that an error lists


def checked(
    selection: Selection, settings: EvalSettings | BankSettings, console: Console
) -> Selection:
    """Returns the selection with the episodes that can be run; prints why the others cannot.

    Generated episodes are valid, and are checked only with the user's own plan or domain.

    Raises:
        UserError: no episode can be run, or some cannot and `skip_invalid` is off; names them. A
            fault of the domain or plan that affects all episodes is reported as an error of that
            file.
    """
    rules = settings.rules()
    domain_file(rules.domain)
    own = settings.episodes, rules.plan_file, None if rules.domain in SHIPPED else rules.domain
    if own == (None, None, None):
        return selection
    invalid = {**selection.invalid, **_faults(selection, settings)}
    valid = [episode for episode in selection.episodes if episode.id not in invalid]
    if (reason := _of_file(invalid)) and not valid:
        raise UserError(reason)
    if invalid:
        lines = [one_line(f"  {name}: {reason}") for name, reason in invalid.items()]
        console.print(
            "\n".join([f"invalid episodes in {_where(settings)}:", *lines]),
            highlight=False,
            markup=False,
            soft_wrap=True,
        )
    if invalid and not (settings.skip_invalid and valid):
        raise _refused(invalid, len(valid), settings)
    return dataclasses.replace(selection, episodes=valid, invalid=invalid)


def _of_file(invalid: Mapping[str, str]) -> str:
    """Returns the fault of the domain or plan file if all episodes share it, else ""."""
    reasons = {reason for reason in invalid.values() if reason.startswith(("domain: ", "plan: "))}
    return reasons.pop() if len(reasons) == 1 and len({*invalid.values()}) == 1 else ""


def _refused(
    invalid: Mapping[str, str], valid: int, settings: EvalSettings | BankSettings
) -> UserError:
    named = "; ".join(f"{name}: {reason}" for name, reason in list(invalid.items())[:_NAMED])
    if len(invalid) > _NAMED:
        named += f"; and {len(invalid) - _NAMED} more"
    count = f"{len(invalid)} of {len(invalid) + valid} episodes are invalid ({named})"
    advice = "; skip_invalid=true leaves them out" if valid else ""
    return UserError(f"episodes: {_where(settings)}: {count}{advice}")


def _where(settings: EvalSettings | BankSettings) -> str:
    return settings.episodes or f"{settings.scenario.name}, split {settings.split}"


def _faults(selection: Selection, settings: EvalSettings | BankSettings) -> dict[str, str]:
    """Returns the fault of each invalid episode, by id."""
    episodes = selection.episodes
    if not episodes:
        return {}
    processes = settings.processes or machine.cores()
    workers = max(1, min(processes, len(episodes) // _WORTH_A_PROCESS))
    names = [f"episode {episode.id}" for episode in episodes]
    work = pool.run(_Checker(settings), episodes, workers, names)
    with progress.if_long("checking the episodes"), contextlib.closing(work) as done:
        faults = dict(done)
    return {episode.id: faults[number] for number, episode in enumerate(episodes) if faults[number]}


@dataclasses.dataclass(frozen=True, slots=True)
class _Checker:
    """Builds in each worker the function that checks one episode."""

    settings: EvalSettings | BankSettings

    def __call__(self) -> Callable[[Episode], str]:
        simulator, rules = chains.make_simulator(self.settings), self.settings.rules()
        predicates = self.settings.protocol.predicates
        return lambda episode: _fault(episode, simulator, predicates, rules)


def _fault(
    episode: Episode,
    simulator: Simulator,
    predicates: PredicateThresholds,
    rules: ExecutionRules,
) -> str:
    """Returns the fault of an episode, "" if it has none."""
    if not episode.targets:
        return NO_TARGETS
    try:
        _check_places(episode)
        simulator.reset([0], [episode])
        problem = problem_from_episode(episode, simulator.state([0]), predicates, rules.plan)
        searched_or_read(problem, rules.domain, rules.carried_out_by, rules.plan_file)
    except HomeLost:
        return ""  # no fault of the episode; if it happens in the run, the episode counts as lost
    except (UserError, RunError) as error:
        return str(error).removeprefix(f"episode {episode.id}: ")
    return ""


def _check_places(episode: Episode) -> None:
    """Checks that robot, objects and goals are inside the apartment.

    Raises:
        UserError: one is outside; names the field.
    """
    layout_set, _ = resolve(episode.layout)
    if not in_room(layout_set, *episode.robot_start[:2]):
        raise _outside("robot_start", episode.robot_start[:2], episode)
    low, high = layout_set.floor
    places = [(f"objects[{n}].pos", placed.pos) for n, placed in enumerate(episode.objects)]
    places += [(f"targets[{n}].goal", target.goal) for n, target in enumerate(episode.targets)]
    for field, (x, y, _) in places:
        if not (low[0] <= x <= high[0] and low[1] <= y <= high[1]):
            raise _outside(field, (x, y), episode)


def _outside(field: str, place: Sequence[float], episode: Episode) -> UserError:
    x, y = place
    return UserError(f"{field}: ({x:.2f}, {y:.2f}) is outside of {episode.layout}")
