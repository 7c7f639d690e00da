import contextlib
import dataclasses
import functools
import re
from pathlib import Path

import pytest
from hab_episodes import placement, prepare_groceries, receptacle, set_table, tidy_house
from kinematic_home import make_episode

from planner.definition import (
    Definition,
    definition_of,
    habitat_definition,
    read_definition,
)
from planner.grounding import ground, problem_text
from planner.lint import describe, lint
from planner.lint.replay import ground_actions
from planner.options import PlanOptions
from planner.predicates import Atom, PredicateThresholds
from planner.problem import problem_from_episode, with_goal
from planner.search import DOMAIN, HABITAT_DOMAIN, plan
from skills import tables
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.runtime import progress
from tpsrl.world.episode import Episode, Target, save_episodes

BOWL, APPLE = "obj_0_024_bowl", "obj_1_013_apple"


def without_action(text: str, name: str) -> str:
    start = text.index(f"  (:action {name}\n")
    end = text.find("  (:action", start + 1)
    return text[:start] + (text[end:] if end >= 0 else ")")


# The actions that a plan for Set Table needs. Each further action costs time in the parser.
SHORT_DOMAIN = functools.reduce(
    without_action,
    re.findall(r"\(:action (close_\w+|\w+_by_name)\n", DOMAIN.read_text()),
    DOMAIN.read_text(),
)

# Thresholds of predicates that equal those of habitat-lab's skills.
SAME = PredicateThresholds(1.5, 0.15, 0.4, 0.05, 1.1708, 0.05)


def own(episode: Episode, **options: bool) -> Definition:
    """Returns our definition of an episode, with equal limits for a skill and its predicate."""
    problem = problem_from_episode(episode, options=PlanOptions(**options))
    return definition_of(plan(problem), DOMAIN, SAME, tables.thresholds())


@functools.cache
def mended(close_after: bool = False) -> Definition:
    return own(set_table(), close_after=close_after)


def found(definition: Definition) -> list[tuple[str, str]]:
    """Returns the code and the place of each finding."""
    return [(finding.code, finding.where) for finding in lint(definition)]


def without_steps(definition: Definition, *numbers: int) -> Definition:
    kept = [s for n, s in enumerate(definition.steps, start=1) if n not in numbers]
    return dataclasses.replace(definition, steps=tuple(kept))


def with_stages(definition: Definition, **stages: tuple[Atom, ...] | None) -> Definition:
    """Returns the definition with stages replaced, or removed where None."""
    changed = {**definition.stages, **stages}
    kept = {name: atoms for name, atoms in changed.items() if atoms is not None}
    return dataclasses.replace(definition, stages=kept)


def with_domain(path: Path, old: str, new: str) -> Definition:
    assert old in SHORT_DOMAIN
    path.write_text(SHORT_DOMAIN.replace(old, new))
    return dataclasses.replace(mended(), domain=path)


# Correct definitions.


@pytest.mark.parametrize("episode", [tidy_house(), prepare_groceries(), set_table()])
def test_our_definitions_have_no_findings_if_skills_and_predicates_agree(episode):
    assert found(own(episode)) == []
    assert describe(mended(), []) == "lint of test/0 with domain.pddl: no findings"


def test_a_plan_that_closes_receptacles_has_no_findings():
    assert found(mended(close_after=True)) == []


def test_a_goal_in_the_open_fridge_is_not_a_closed_receptacle():
    episode = prepare_groceries()
    assert episode.targets[2].receptacle == "fridge"
    assert own(episode).contents["goal_2"] == "fridge"
    assert "closed-receptacle" not in dict(found(own(episode)))


def test_names_of_actions_do_not_matter(tmp_path):
    renamed = with_domain(tmp_path / "d.pddl", "(:action nav\n", "(:action roam\n")
    steps = tuple(("roam" if s[0] == "nav" else s[0], *s[1:]) for s in renamed.steps)
    assert found(dataclasses.replace(renamed, steps=steps)) == []


# habitat-lab's own definitions.

HABITAT_DOMAIN_FINDINGS = [
    ("navigation-deletes-nothing", "nav, nav_to_receptacle, nav_to_receptacle_by_name"),
    ("closed-not-checked", "pick"),
    ("closed-not-checked", "place"),
    ("closed-not-checked", "place"),
    (
        "hand-not-checked",
        "pick, open_fridge, close_fridge, open_cab, close_cab, open_fridge_by_name, "
        "close_fridge_by_name, open_cab_by_name, close_cab_by_name",
    ),
]
NAV, PLACE = ("tolerance", "navigate against robot_at"), ("tolerance", "place against object_at")


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        (
            "tidy_house",
            [
                ("missing-stage", "step 18, pick(any_targets_4, robot_0)"),
                ("stage-without-not-holding", "stage stage_4_5"),
                ("stage-name", "stage stage_4_5"),
                NAV,
                PLACE,
            ],
        ),
        (
            "prepare_groceries",
            [("stage-without-not-holding", "stage stage_3"), NAV, PLACE],
        ),
        (
            "set_table",
            [
                ("no-navigation-after-opening", "step 3, pick(bowl_target_0, robot_0)"),
                ("stage-without-not-holding", "stage stage_2"),
                NAV,
                PLACE,
                ("tolerance", "open_drawer against opened_cab"),
                ("tolerance", "open_fridge against opened_fridge"),
            ],
        ),
    ],
)
def test_habitat_labs_definitions_have_exactly_their_known_findings(scenario, expected):
    domain = f"domain {HABITAT_DOMAIN.name}, "
    about_domain = [(code, domain + where) for code, where in HABITAT_DOMAIN_FINDINGS]
    assert found(habitat_definition(scenario)) == about_domain + expected


def test_habitat_labs_pick_has_an_error_because_it_ignores_the_closed_fridge():
    findings = [f for f in lint(habitat_definition("set_table")) if f.code == "closed-not-checked"]
    pick = next(f for f in findings if f.where.endswith(", pick"))
    assert "closed_fridge" in pick.problem and "closed_fridge" in pick.change
    assert pick.level == "error"


def test_the_tolerance_finding_of_place_states_both_limits():
    finding = next(f for f in lint(habitat_definition("tidy_house")) if f.where == PLACE[1])
    assert "within 0.15 m, the predicate holds within 0.3 m" in finding.problem
    assert finding.level == "warning"


def test_habitat_labs_plans_and_stages_have_the_known_lengths():
    sizes = {
        scenario: (len(definition.steps), len(definition.stages))
        for scenario in ("tidy_house", "prepare_groceries", "set_table")
        for definition in [habitat_definition(scenario)]
    }
    assert sizes == {"tidy_house": (20, 9), "prepare_groceries": (12, 6), "set_table": (11, 4)}


def test_habitat_labs_marker_5_agrees_with_the_right_top_drawer():
    definition = habitat_definition("set_table")
    assert definition.contents["bowl_target_0"] == "drawer_right_top"
    assert definition.handles["cab_push_point_5"].link == "drawer3"
    assert "handle-and-receptacle-differ" not in dict(found(definition))


# Handles.


def renamed(definition: Definition, old: str, new: str) -> Definition:
    steps = tuple(tuple(new if t == old else t for t in step) for step in definition.steps)
    return dataclasses.replace(definition, steps=steps)


@pytest.mark.parametrize("wrong", ["cab_push_point_4", "cab_push_point_6", "fridge_push_point"])
def test_a_handle_of_another_drawer_is_an_error_that_names_the_right_one(wrong):
    definition = habitat_definition("set_table")
    claims = dataclasses.replace(
        definition, init=(*definition.init, ("in", "bowl_target_0", wrong))
    )
    findings = [f for f in lint(claims) if f.code == "handle-and-receptacle-differ"]
    assert [f.where for f in findings] == [f"init, in(bowl_target_0, {wrong})"]
    assert findings[0].level == "error" and "use cab_push_point_5 " in findings[0].change


def test_a_plan_with_a_wrong_drawer_has_findings_at_its_steps_and_at_the_pick():
    definition = habitat_definition("set_table")
    wrong = renamed(definition, "cab_push_point_5", "cab_push_point_6")
    wrong = dataclasses.replace(
        wrong, init=(*definition.init, ("in", "bowl_target_0", "cab_push_point_6"))
    )
    codes = [c for c in found(wrong) if c[0] in ("handle-and-receptacle-differ", "precondition")]
    assert [where.split(",")[0] for _, where in codes] == ["init", "step 1", "step 2"]
    assert ("closed-receptacle", "step 3, pick(bowl_target_0, robot_0)") in found(wrong)


# Plans with one change each. Steps of `mended()`: 1 navigate to the drawer, 2 open, 3 navigate to
# the bowl, 4 pick, 5 navigate to the table, 6 place, 7 navigate to the fridge, 8 open, 9 navigate
# to the apple, 10 pick, 11 navigate to the goal, 12 place.


def test_a_pick_right_after_opening_lacks_its_navigation():
    definition = without_steps(mended(), 3)
    assert found(definition) == [("no-navigation-after-opening", f"step 3, pick({BOWL}, robot_0)")]
    assert found(own(set_table(), nav_after_open_drawer=False)) == found(definition)


def test_navigation_before_opening_does_not_count():
    steps = mended().steps
    early = (steps[2], *steps[:2], *steps[3:])
    assert found(dataclasses.replace(mended(), steps=early)) == [
        ("no-navigation-after-opening", f"step 4, pick({BOWL}, robot_0)")
    ]


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [
        (2, [("closed-receptacle", f"step 3, pick({BOWL}, robot_0)")]),
        (5, [("precondition", f"step 5, place({BOWL}, goal_0, robot_0)")]),
        (8, [("closed-receptacle", f"step 9, pick({APPLE}, robot_0)")]),
        (7, [("precondition", f"step 7, open_fridge(fridge_push_point, {APPLE}, robot_0)")]),
        (
            12,
            [
                ("goal-not-reached", "plan"),
                ("unreachable-stage", "stage stage_2"),
            ],
        ),
    ],
)
def test_a_missing_step_is_found_at_the_step_that_needs_it(left_out, expected):
    assert found(without_steps(mended(), left_out)) == expected


def test_the_suggested_change_names_the_missing_step():
    finding = lint(without_steps(mended(), 5))[0]
    assert finding.problem == "robot_at(goal_0, robot_0) is required and does not hold"
    assert "nav(goal_0, robot_0)" in finding.change


def works(definition: Definition) -> bool:
    """Returns whether the plan is executable in pddlpy and reaches the goal."""
    text = problem_text(
        "p", definition.entities.items(), definition.init, definition.goal, "home_assistant"
    )
    task = ground(text, definition.domain)
    actions, state = ground_actions(task), task.initial
    for step in definition.steps:
        if not state.applicable(actions[step]):
            return False
        state = state.apply(actions[step])
    return bool(task.is_goal(state))


@pytest.mark.parametrize("left_out", range(1, 17))
def test_a_plan_has_an_error_or_no_navigation_exactly_if_it_cannot_be_executed(left_out):
    definition = without_steps(mended(close_after=True), left_out)
    broken = {
        "precondition",
        "closed-receptacle",
        "goal-not-reached",
        "no-navigation-after-opening",
    }
    assert bool(broken & dict(found(definition)).keys()) == (not works(definition))


# Stage goals with one change each.


def test_a_last_stage_that_lacks_a_goal_is_an_error():
    assert found(with_stages(mended(), stage_2=None)) == [
        ("goal-not-covered", "stage stage_1_5"),
    ]


def test_a_stage_that_never_holds_is_an_error():
    both = (("closed_cab", "cab_push_point_5"), ("holding", APPLE, "robot_0"))
    stages = {"both": both, **mended().stages}
    assert found(dataclasses.replace(mended(), stages=stages)) == [
        ("unreachable-stage", "stage both")
    ]


def test_stages_in_the_wrong_order_are_an_error():
    stages = dict(mended().stages)
    swapped = {"stage_1": stages.pop("stage_1"), **stages}
    findings = lint(dataclasses.replace(mended(), stages=swapped))
    assert [(f.code, f.where) for f in findings] == [("stage-order", "stage stage_0_5")]
    assert findings[0].change == "list it before stage_1"


def test_a_stage_equal_to_another_is_a_duplicate():
    again = {**mended().stages, "again": mended().stages["stage_2"]}
    assert found(dataclasses.replace(mended(), stages=again)) == [
        ("duplicate-stage", "stage again")
    ]


def test_a_stage_that_places_an_object_without_not_holding_is_found():
    atoms = mended().stages["stage_1"]
    bare = with_stages(mended(), stage_1=tuple(a for a in atoms if a[0] != "not_holding"))
    findings = lint(bare)
    assert [(f.code, f.where) for f in findings] == [("stage-without-not-holding", "stage stage_1")]
    assert findings[0].change == "add not_holding(robot_0)"


def test_a_picked_object_that_no_stage_holds_is_a_missing_stage():
    assert found(with_stages(mended(), stage_1_5=None)) == [
        ("missing-stage", f"step 10, pick({APPLE}, robot_0)")
    ]


def test_only_stage_names_of_the_benchmarks_form_are_checked():
    stages = mended().stages
    wrong = {("stage_7" if n == "stage_1_5" else n): atoms for n, atoms in stages.items()}
    free = {("fetched" if n == "stage_1_5" else n): atoms for n, atoms in stages.items()}
    findings = lint(dataclasses.replace(mended(), stages=wrong))
    assert [(f.code, f.change) for f in findings] == [("stage-name", "rename it to stage_1_5")]
    assert found(dataclasses.replace(mended(), stages=free)) == []


# Domains with one change each.


@pytest.mark.parametrize(
    ("old", "new", "code", "action"),
    [
        (
            """  (:action nav
    :parameters (?obj - obj_type ?robot - robot_entity_type)
    :precondition (and)
    :effect (and
      (forall (?other - static_obj_type) (not (robot_at ?other ?robot)))
""",
            """  (:action nav
    :parameters (?obj - obj_type ?robot - robot_entity_type)
    :precondition (and)
    :effect (and
""",
            "navigation-deletes-nothing",
            "nav",
        ),
        (
            """      (not_holding ?robot)
      (forall (?cab - cab_type) (not (and (in ?obj ?cab) (closed_cab ?cab))))
      (forall (?fridge - fridge_type) (not (and (in ?obj ?fridge) (closed_fridge ?fridge)))))
""",
            """      (not_holding ?robot)
      (forall (?cab - cab_type) (not (and (in ?obj ?cab) (closed_cab ?cab)))))
""",
            "closed-not-checked",
            "pick",
        ),
        (
            "      (not_holding ?robot)\n      (forall (?cab",
            "      (forall (?cab",
            "hand-not-checked",
            "pick",
        ),
    ],
)
def test_a_rule_removed_from_the_domain_is_found(old, new, code, action, tmp_path):
    definition = with_domain(tmp_path / "d.pddl", old, new)
    assert found(definition) == [(code, f"domain d.pddl, {action}")]


# Thresholds.


def changed(skill: str, change: dict[str, float], table=None):
    """Returns the thresholds of all skills, with `change` applied to those of `skill`."""
    table = tables.thresholds() if table is None else table
    return dataclasses.replace(table, **{skill: dataclasses.replace(table.of(skill), **change)})


@pytest.mark.parametrize(
    ("change", "where", "level"),
    [
        (("place", {"goal_m": 0.1}), PLACE[1], "warning"),
        (("place", {"goal_m": 0.2}), PLACE[1], "error"),
        (("navigate", {"distance_m": 1.0}), NAV[1], "warning"),
        (("navigate", {"region_m": 1.0}), NAV[1], "error"),
        (("open_drawer", {"target": 0.5}), "open_drawer against opened_cab", "warning"),
        (("open_fridge", {"target": 1.1}), "open_fridge against opened_fridge", "error"),
    ],
)
def test_a_skill_stricter_than_its_predicate_warns_and_a_laxer_one_is_an_error(
    change, where, level
):
    skills = changed(*change)
    findings = lint(dataclasses.replace(mended(), skills=skills))
    assert [(f.where, f.level) for f in findings] == [(where, level)]


def test_only_predicates_in_the_plan_are_compared():
    skills = changed(
        "close_fridge", {"tolerance": 0.01}, changed("close_drawer", {"tolerance": 0.01})
    )
    assert found(dataclasses.replace(mended(), skills=skills)) == []
    closing = dataclasses.replace(mended(close_after=True), skills=skills)
    assert [where for _, where in found(closing)] == [
        "close_drawer against closed_cab",
        "close_fridge against closed_fridge",
    ]


# Definitions that cannot be read.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"stages": {"stage_1": (("holdin", BOWL, "robot_0"),)}},
            "stage_1: predicate: unknown value 'holdin'; did you mean 'holding'",
        ),
        (
            {"stages": {"stage_1": (("holding", BOWL),)}},
            "stage_1: predicate holding: takes 2 entities, 1 given",
        ),
        (
            {"stages": {"stage_1": (("holding", "obj_0_024_bow", "robot_0"),)}},
            f"stage_1: entity: unknown value 'obj_0_024_bow'; did you mean '{BOWL}'",
        ),
        (
            {"steps": (("pik", BOWL, "robot_0"),)},
            f"step 1: unknown value 'pik({BOWL}, robot_0)'; did you mean 'pick({BOWL}, robot_0)'",
        ),
    ],
)
def test_unknown_names_are_user_errors_with_their_location(changes, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        lint(dataclasses.replace(mended(), **changes))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("other: {}", "scenario: unknown value 'mine' (valid: other)"),
        ("mine: {}", "f.yaml: mine: entry 'layouts' is missing"),
        (
            "mine: {layouts: replica_cad, contents: {}, objects: {}, stage_goals: {}, init: [at]}",
            "f.yaml: mine: 'at' must have the form predicate(entity, ...)",
        ),
        ("mine: {layouts: replica_cat}", "layout set: unknown value 'replica_cat'"),
        ("mine: [", "f.yaml: "),
        ("- mine", "f.yaml: must be a mapping"),
    ],
)
def test_malformed_definition_files_are_user_errors(text, message, tmp_path):
    path = tmp_path / "f.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        read_definition(path, "mine", DOMAIN)
    assert "\n" not in str(error.value)


# The command.


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suppresses messages about slow work, so that output does not depend on the machine."""
    monkeypatch.setattr(progress, "if_long", lambda text: contextlib.nullcontext())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> str:
    """Override that selects a file with one Set Table episode."""
    path = tmp_path_factory.mktemp("lint") / "set_table.jsonl.gz"
    save_episodes(path, [dataclasses.replace(set_table(), scenario="set_table")])
    return f"episodes={path}"


def test_the_command_prints_the_findings_and_passes_with_warnings_alone(dataset, capsys):
    assert cli.main(["plan", "set_table", dataset, "lint=true"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("lint of test/0 with domain.pddl: 4 warnings\n")
    assert printed.count("change: ") == 4


def test_the_command_fails_on_errors_in_habitat_labs_definition(capsys):
    assert cli.main(["plan", "tidy_house", "lint=true", "domain=habitat"]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("lint of tidy_house with domain_habitat.pddl: 4 errors, 6 warnings\n")
    assert "missing-stage: step 18, pick(any_targets_4, robot_0)" in printed


def test_the_command_plans_and_lints_by_the_protocol(dataset, capsys):
    plain = ["plan", "set_table", dataset]
    assert cli.main([*plain, "lint=true", "protocol.predicates.object_at_m=0.15"]) == 0
    assert "place against" not in capsys.readouterr().out
    assert cli.main([*plain, "protocol.plan.nav_after_open_drawer=false"]) == 0
    printed = capsys.readouterr().out
    assert f"  3. pick({BOWL}, robot_0)  [pick]" in printed and " 12. " not in printed
    assert "stage_1_5  object_at(obj_0_024_bowl, goal_0) and holding(obj_1_013_apple" in printed
    assert cli.main([*plain, "protocol.plan.close_after=true"]) == 0
    assert " 16. close_fridge_by_name(fridge_push_point, robot_0)" in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_accepts_a_domain_file_and_another_goal(dataset, capsys, tmp_path, patient):
    path = tmp_path / "mine.pddl"
    path.write_text(DOMAIN.read_text())
    goal = f"goal=holding({BOWL}, robot_0)"
    assert cli.main(["plan", "set_table", dataset, f"domain={path}", goal]) == 0
    by_short_name = capsys.readouterr().out
    assert cli.main(["plan", "set_table", dataset, "goal=holding(obj_0, robot_0)"]) == 0
    assert capsys.readouterr().out == by_short_name
    assert "  4. pick(" in by_short_name and "  5. " not in by_short_name


@pytest.mark.slow
def test_the_command_finds_a_condition_missing_from_a_domain_file(dataset, capsys, tmp_path):
    path = tmp_path / "mine.pddl"
    path.write_text(
        re.sub(r"\(not_holding \?robot\)\n      \(forall", "(forall", DOMAIN.read_text())
    )
    assert cli.main(["plan", "set_table", dataset, f"domain={path}", "lint=true"]) == 0
    assert "hand-not-checked: domain mine.pddl, pick" in capsys.readouterr().out


PARAMETERS = " ".join(f"?p{number} - obj_type" for number in range(7))
REST = "(:action rest :parameters () :effect (opened_fridge fridge_push_point)) "
NAV = """:precondition (and)
    :effect (and
      (forall (?other - static_obj_type) (not (robot_at ?other ?robot)))
      (robot_at ?obj ?robot)))"""


def with_nav(condition: str = "(and)", effect: str = "(robot_at ?obj ?robot)") -> str:
    """Returns our domain with another condition and effect of `nav`."""
    assert NAV in SHORT_DOMAIN
    text = SHORT_DOMAIN.replace(NAV, f":precondition {condition}\n    :effect {effect})")
    return text.replace(":strips", ":adl :strips")


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        (
            SHORT_DOMAIN.replace("(:action pick", "(:acton pick"),
            "mine.pddl, line 57, column 3: section: unknown value ':acton'; did you mean ':action'",
        ),
        (SHORT_DOMAIN[:2000], "mine.pddl, line 36, column 5: the bracket is never closed"),
        ("", "mine.pddl, line 1, column 1: expected (define (domain NAME) ...), got nothing"),
        (SHORT_DOMAIN.replace("(holding ?obj ?robot)\n", "(holdin ?obj ?robot)\n"), "'holdin'"),
        (
            SHORT_DOMAIN.replace("(:predicates", "(:predicates (holdin ?x - obj_type)"),
            "predicate: unknown value 'holdin'; did you mean 'holding'?",
        ),
        (
            re.sub(r"\(goal_of \?goal -.*\)", "", SHORT_DOMAIN).replace(
                "(goal_of ?obj ?place_obj)", ""
            ),
            "mine.pddl: predicate 'goal_of' of the problem is not declared",
        ),
        (
            SHORT_DOMAIN.replace("(robot_at ?marker ?robot)", "(robot_at ?here ?robot)"),
            "?here is not one",
        ),
        (
            SHORT_DOMAIN.replace("(:action place", "(:action pick"),
            "'pick' is defined twice, first in",
        ),
        (
            SHORT_DOMAIN.replace("?obj - movable_entity_type", "?obj - moveable", 1),
            "mine.pddl, line 28, column 21: type: unknown value 'moveable'",
        ),
        (
            with_nav("(>= (f) 0)"),
            "mine.pddl, line 42, column 19: action 'nav': numeric comparisons",
        ),
        (
            with_nav(effect="(and (robot_at ?obj ?robot) (when (>= (f) 0) (not_holding ?robot)))"),
            "mine.pddl, line 43, column 47: action 'nav': numeric comparisons",
        ),
        (
            with_nav("(and " * 3000 + ")" * 3000),
            "mine.pddl, line 42, column 209: brackets are nested",
        ),
        (
            with_nav(f"(or {'(and (not_holding ?robot) (robot_at ?obj ?robot)) ' * 24})"),
            "mine.pddl, line 40, column 3: action 'nav': its parameters, conditions and effects",
        ),
        (
            with_nav(f"(forall ({' '.join(f'?p{n}' for n in range(9))} - obj_type) (and))"),
            "mine.pddl, line 40, column 3: action 'nav': its parameters, conditions and effects",
        ),
        (
            SHORT_DOMAIN.replace("(?obj - obj_type ", f"({PARAMETERS} ?obj - obj_type ", 1),
            "mine.pddl, line 40, column 3: action 'nav': its parameters, conditions and effects",
        ),
        (
            SHORT_DOMAIN.replace("(:action nav\n", f"{REST}(:action nav\n"),
            "mine.pddl, line 40, column 3: action 'rest': must have at least one parameter",
        ),
        (with_nav(effect="(not (robot_at ?obj ?robot))"), "action 'nav': must have an effect"),
        (
            with_nav(effect="(robot_at ?obj)"),
            "line 43, column 13: action 'nav': robot_at takes 2 entities, 1",
        ),
        (
            SHORT_DOMAIN.replace("?obj - movable_entity_type ?at_entity", "?at_entity"),
            "line 68, column 48: action 'pick': object_at takes 1 entity, 2 given (declared",
        ),
        (";" * 2**17 + SHORT_DOMAIN, "mine.pddl: more than 131,072 bytes"),
        (
            without_action(SHORT_DOMAIN, "place"),
            f"plan: no action can reach object_at({BOWL}, goal_0) from the start",
        ),
    ],
)
def test_an_invalid_domain_is_refused_in_one_line(domain, message, tmp_path):
    path = tmp_path / "mine.pddl"
    path.write_text(domain)
    with pytest.raises(UserError) as error:
        plan(problem_from_episode(set_table()), path)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("domain=mendet", "domain: unknown value 'mendet'; did you mean 'mended'?"),
        ("domain=nowhere.pddl", "domain: cannot read nowhere.pddl: No such file"),
        ("domain=/", "domain: cannot read /: Is a directory"),
        ("goal=holding(obj_7, robot_0)", "goal: unknown value 'obj_7'; did you mean 'obj_1'?"),
        ("goal=object_at(obj_0, goal_1)", "goal: no action can reach object_at(obj_0_024_bowl,"),
        (
            "goal=holding(obj_0, robot_0) and holding(obj_1, robot_0)",
            "goal: no plan reaches holding(obj_1_013_apple, robot_0) while keeping the goals",
        ),
        ("episode=1", "episode: must be between 0 and 0, since "),
    ],
)
def test_the_command_refuses_an_invalid_domain_or_goal_in_one_line(
    argument, message, dataset, capsys
):
    assert cli.main(["plan", "set_table", dataset, argument]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("tpsrl: error: ")
    assert message in printed.err and printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("goal", "message"),
    [
        ("holdin(obj_0, robot_0)", "goal: predicate: unknown value 'holdin'; did you mean"),
        ("holding(obj_0)", "goal: predicate holding: takes 2 entities, 1 given"),
        ("holding", "goal: 'holding' must have the form predicate(entity, ...)"),
        (" and ".join(["not_holding(robot_0)"] * 101), "goal: has 101 atoms, must have 100 at"),
    ],
)
def test_an_invalid_goal_is_refused_in_one_line(goal, message):
    with pytest.raises(UserError, match=re.escape(message)) as error:
        with_goal(problem_from_episode(set_table()), goal)
    assert "\n" not in str(error.value)


@pytest.mark.slow
def test_a_domain_may_compare_entities_for_equality(tmp_path):
    path, problem = tmp_path / "mine.pddl", problem_from_episode(make_episode(1, 1))
    plans = []
    for condition in ("(= ?obj ?obj)", "(not (= ?obj ?robot))", "(and)"):
        path.write_text(with_nav(condition))
        plans.append(plan(problem, path).describe())
    assert plans[0] == plans[1] == plans[2]
    path.write_text(with_nav("(= ?obj ?robot)"))
    with pytest.raises(UserError, match="plan: no action can reach"):
        plan(problem, path)


def test_habitat_labs_definition_accepts_no_other_goal(capsys):
    goal = "goal=not_holding(robot_0)"
    assert cli.main(["plan", "tidy_house", "lint=true", "domain=habitat", goal]) == 2
    assert "goal: lint=true domain=habitat" in capsys.readouterr().err


def test_a_receptacle_name_that_geometry_contradicts_is_found():
    episode = make_episode(
        objects=(
            dataclasses.replace(placement("024_bowl", "fridge"), receptacle="drawer_left_top"),
        ),
        targets=(Target(0, receptacle("table_1"), "table_1"),),
    )
    findings = [f for f in lint(own(episode)) if f.code == "handle-and-receptacle-differ"]
    assert findings[0].where == f"init, in({BOWL}, fridge_push_point)"
    assert "opens fridge; obj_0_024_bowl is in drawer_left_top" in findings[0].problem
