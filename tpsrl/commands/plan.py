"""`tpsrl plan`: prints the plan of one episode, or checks its definition."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from eval.protocols import Protocol
from planner import domains
from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError, renamed
from tpsrl.runtime import files, progress
from tpsrl.world.scenarios import NO_TARGETS, Scenario

if TYPE_CHECKING:
    from planner.plan import Plan

DESCRIPTION = """Plans one episode and prints the steps of the plan, with their preconditions and
effects, and the named stage goals.

lint=true checks instead whether domain, goal, stage goals, plan, handles and thresholds are
consistent, and suggests a fix for each finding. The exit code is then 1 if a finding is an error
(the plan cannot be executed, a stage is unreachable, or the domain allows physically impossible
actions), 0 if there are only warnings. lint=true domain=habitat checks habitat-lab's own definition
of the scenario.

write=DIR writes the episode's domain and problem as PDDL for other planners, and the plan.
plan=FILE follows a plan of another planner, with lines (ACTION ENTITY ...), instead of searching.
The exit code is then 1 if a step's precondition or the goal does not hold."""


@dataclasses.dataclass(frozen=True, slots=True)
class PlanSettings:
    """Settings of `tpsrl plan`."""

    scenario: Scenario = config.preset(
        "scenario", Scenario, None, "name or file of the scenario", files=True
    )
    protocol: Protocol = config.preset(
        "protocol",
        Protocol,
        "habitat",
        "evaluation protocol; protocol.plan.KEY=... changes how it plans",
        minimum=0,
        files=True,
    )
    episode: int = config.option(0, "index of the episode, from 0", minimum=0, maximum=10**8 - 1)
    split: Literal["train", "val", "rearranged"] = config.option(
        "val", "split of the apartments: train, val, or rearranged (train with furniture moved)"
    )
    seed: int = config.option(0, "seed of episode generation", minimum=0)
    episodes: str | None = config.option(
        None, "episode dataset (.jsonl.gz) to use instead of generated episodes"
    )
    domain: str = config.option(
        domains.DEFAULT, "planning domain; habitat: the benchmark's own; or a PDDL file"
    )
    goal: str | None = config.option(
        None, 'goal expression, such as "object_at(obj_1, goal_1) and not_holding(robot_0)"'
    )
    lint: bool = config.option(False, "check the definition instead of printing the plan")
    plan: str | None = config.option(
        None, "plan file to check and print instead of searching, with lines (ACTION ENTITY ...)"
    )
    write: str | None = config.option(
        None, "folder to write domain.pddl, problem.pddl and plan.txt into; replaces no other file"
    )
    actions: str = config.option(
        "", "comma-separated ACTION:SKILL pairs, for actions that several skills can carry out"
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )


def run(settings: PlanSettings) -> int:
    """Prints the plan or the findings; returns 1 if a finding is an error or a given plan fails."""
    domain = domains.find(settings.domain)
    if settings.lint:
        for key in ("plan", "write"):
            if getattr(settings, key) is not None:
                raise UserError(f"{key}: cannot be combined with lint=true")
        with progress.if_long("checking the definition"):
            return _lint(settings, domain)
    from planner.predicates import text
    from planner.stages import stage_goals

    with progress.if_long("searching for a plan"):
        found = _plan(settings, domain)
    if settings.write:
        _write(settings.write, found, domain)
    episode = found.problem.entities.episode
    print(f"episode {episode.id} in {episode.layout}, {len(episode.targets)} objects to move")
    print(found.describe())
    for name, atoms in stage_goals(found).items():
        print(f"{name}  {' and '.join(text(atom) for atom in atoms)}")
    return 0


def _plan(settings: PlanSettings, domain: Path) -> "Plan":
    from eval.running.episodes import obtain
    from planner import given, problem, search
    from skills import registry
    from tpsrl.world.episode import load_episodes

    dataset = (settings.scenario, settings.split, settings.seed)
    if settings.episodes is None:  # only this episode is generated
        episode = obtain(*dataset, None, None, one=str(settings.episode))[0]
    else:
        count = len(load_episodes(settings.episodes))
        if 0 < count <= settings.episode:
            raise UserError(
                f"episode: must be between 0 and {count - 1}, since {settings.episodes} has "
                f"{count} episodes, got {settings.episode}"
            )
        episode = obtain(*dataset, settings.episode + 1, settings.episodes)[settings.episode]
    if not episode.targets and settings.goal is None:
        raise UserError(f"episodes: {settings.episodes}: {episode.id}: {NO_TARGETS}")
    protocol = settings.protocol
    stated = problem.problem_from_episode(episode, None, protocol.predicates, protocol.plan)
    if settings.goal is not None:
        stated = problem.with_goal(stated, settings.goal)
    choices = registry.choices(settings.actions)
    if settings.plan:
        return given.follow(
            given.read(files.user_path(settings.plan, "plan")), stated, domain, choices
        )
    with renamed("plan", "plan" if settings.goal is None else "goal"):
        return search.plan(stated, domain, choices)


def _write(name: str, found: "Plan", domain: Path) -> None:
    """Writes an episode's domain, problem and plan for other planners.

    Raises:
        UserError: the folder cannot be written, or has another file of one of these names.
    """
    from planner.given import plan_text
    from planner.grounding import domain_file

    folder = files.check_writable(name, "write")
    texts = {
        "domain.pddl": domain_file(domain).text,
        "problem.pddl": found.problem.text(domain_file(domain).domain),
        "plan.txt": plan_text(found),
    }
    files.check_replaceable(folder, texts, "write")
    for file, text in texts.items():
        # Existing files may be written by hand or by other planners, so they are kept.
        path = folder / file
        if path.exists() and files.read_data(path, "write") != text.encode():
            raise UserError(f"write: {path} has other contents; choose another folder")
    for file, text in texts.items():
        files.write_text(folder / file, text, "write")


def _lint(settings: PlanSettings, domain: Path) -> int:
    from planner.definition import definition_of, habitat_definition
    from planner.lint import describe, lint

    thresholds = (settings.protocol.predicates, settings.protocol.skills)
    if settings.domain != "habitat":
        definition = definition_of(_plan(settings, domain), domain, *thresholds)
    elif settings.goal is None:
        definition = habitat_definition(settings.scenario.name, *thresholds)
    else:
        raise UserError("goal: lint=true domain=habitat checks habitat-lab's own goal")
    findings = lint(definition)
    print(describe(definition, findings))
    return int(any(finding.level == "error" for finding in findings))


COMMAND = Command(DESCRIPTION, PlanSettings, run, positional=("scenario",))
