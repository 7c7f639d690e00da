import dataclasses
import itertools
import os
import subprocess
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pddlpy
import pytest
from hab_episodes import placement, prepare_groceries, receptacle, set_table, tidy_house
from kinematic_home import make_episode
from pddlpy.diagnostics import diagnose
from pddlpy.planning import BFSPlanner, GroundedTask, State

from planner.conditions import satisfied
from planner.entities import short_name
from planner.options import PlanOptions
from planner.plan import Plan, skill_goal
from planner.problem import Problem, problem_from_episode, start_world, with_goal
from planner.search import DOMAIN, HABITAT_DOMAIN, UnsolvableError, _steps_once, plan
from planner.stages import stage_goals
from tpsrl.errors import UserError
from tpsrl.world.episode import Target
from tpsrl.world.state import JOINTS

TIDY_HOUSE = [
    stage
    for n in range(5)
    for stage in (f"nav obj_{n}", f"pick obj_{n}", f"nav goal_{n}", f"place obj_{n}")
]

CLOSING = PlanOptions(close_after=True)


def parse(tmp_path: Path, domain: str, problem: str) -> pddlpy.DomainProblem:
    (tmp_path / "d.pddl").write_text(domain)
    (tmp_path / "p.pddl").write_text(problem)
    return pddlpy.DomainProblem(str(tmp_path / "d.pddl"), str(tmp_path / "p.pddl"))


def task_of(problem: Problem, domain: Path, tmp_path: Path) -> GroundedTask:
    return GroundedTask(parse(tmp_path, domain.read_text(), problem.text()))


# Behaviour of pddlpy that the planner relies on.

SMALL = """(define (domain d)
  (:requirements :strips :typing :negative-preconditions :universal-preconditions
                 :conditional-effects)
  (:types thing - object box - thing)
  (:predicates (at ?x - thing) (wet ?x - thing) (shut ?b - box) (in ?x - thing ?b - box))
  (:action go :parameters (?x - thing) :precondition (and)
    :effect (and (forall (?y - thing) (not (at ?y))) (at ?x)))
  (:action take :parameters (?x - thing)
    :precondition (forall (?b - box) (not (and (in ?x ?b) (shut ?b)))) :effect (wet ?x))
  (:action pour :parameters (?b - box) :precondition (and)
    :effect (forall (?y - thing) (when (in ?y ?b) (wet ?y)))))"""
SMALL_PROBLEM = """(define (problem p) (:domain d) (:objects a b - thing c e - box)
  (:init (at a) (in a c) (in b e) (shut c)) (:goal (and (wet a) (at b))))"""


def small(tmp_path: Path, action: str, argument: str) -> tuple[State, object]:
    task = GroundedTask(parse(tmp_path, SMALL, SMALL_PROBLEM))
    chosen = [
        a
        for a in task.actions
        if a.operator_name == action and argument in a.variable_list.values()
    ]
    assert len(chosen) == 1
    return task.initial, chosen[0]


def test_pddlpy_grounds_universal_effects_and_adds_after_deleting(tmp_path):
    state, go = small(tmp_path, "go", "b")
    after = state.apply(go)
    assert {atom for atom in after if atom[0] == "at"} == {("at", "b")}
    assert after.apply(go) == after


def test_pddlpy_grounds_universal_preconditions(tmp_path):
    state, take_from_shut = small(tmp_path, "take", "a")
    _, take_from_open = small(tmp_path, "take", "b")
    assert not state.applicable(take_from_shut)
    assert state.applicable(take_from_open)


def test_pddlpy_grounds_conditional_effects_under_quantifiers(tmp_path):
    state, pour = small(tmp_path, "pour", "c")
    assert {atom for atom in state.apply(pour) if atom[0] == "wet"} == {("wet", "a")}


def test_pddlpy_diagnosis_finds_mistakes_that_its_parser_ignores(tmp_path):
    parse(tmp_path, SMALL.replace(":effect (wet ?x)", ":effect (whet ?x)"), SMALL_PROBLEM)
    verdict = diagnose(str(tmp_path / "d.pddl"), str(tmp_path / "p.pddl"))
    assert not verdict["valid"] and "whet" in verdict["issues"][0]["message"]


@pytest.mark.parametrize("domain", [DOMAIN, HABITAT_DOMAIN])
def test_shipped_domains_pass_the_diagnosis(domain, tmp_path):
    problem = tmp_path / "problem.pddl"
    problem.write_text(problem_from_episode(set_table()).text())
    assert diagnose(str(domain), str(problem))["issues"] == []


# HAB's scenarios.


@pytest.mark.parametrize("seed", range(3))
def test_tidy_house_with_30_objects_gets_habs_skill_sequence_in_target_order(seed):
    found = plan(problem_from_episode(tidy_house(seed)))
    assert found.stages == TIDY_HOUSE
    assert [s.skill for s in found] == ["navigate", "pick", "navigate", "place"] * 5


def test_set_table_opens_drawer_and_fridge_before_picking():
    assert plan(problem_from_episode(set_table())).stages == [
        "nav_to_receptacle cab_push_point_5",
        "open_cab cab_push_point_5",
        "nav obj_0",
        "pick obj_0",
        "nav goal_0",
        "place obj_0",
        "nav_to_receptacle fridge_push_point",
        "open_fridge fridge_push_point",
        "nav obj_1",
        "pick obj_1",
        "nav goal_1",
        "place obj_1",
    ]


def test_set_table_without_the_navigation_after_opening_is_habs_plan_of_11_steps():
    problem = problem_from_episode(set_table(), options=PlanOptions(nav_after_open_drawer=False))
    found = plan(problem)
    assert found.stages == [
        "nav_to_receptacle cab_push_point_5",
        "open_cab cab_push_point_5",
        "pick obj_0",
        "nav goal_0",
        "place obj_0",
        "nav_to_receptacle fridge_push_point",
        "open_fridge fridge_push_point",
        "nav obj_1",
        "pick obj_1",
        "nav goal_1",
        "place obj_1",
    ]
    assert found[0].purpose == ("robot_at", "cab_push_point_5", "robot_0")


def test_prepare_groceries_is_habs_plan_of_12_steps():
    assert plan(problem_from_episode(prepare_groceries())).stages == TIDY_HOUSE[:12]


def test_an_opened_receptacle_is_closed_before_the_next_object_is_fetched():
    stages = plan(problem_from_episode(set_table(), options=CLOSING)).stages
    assert stages[5:10] == [
        "place obj_0",
        "nav_to_receptacle cab_push_point_5",
        "close_cab cab_push_point_5",
        "nav_to_receptacle fridge_push_point",
        "open_fridge fridge_push_point",
    ]
    assert stages[13:] == [
        "place obj_1",
        "nav_to_receptacle fridge_push_point",
        "close_fridge fridge_push_point",
    ]


def test_receptacles_open_at_the_start_do_not_have_to_be_closed():
    problem = problem_from_episode(prepare_groceries(), options=CLOSING)
    assert problem.goal == problem_from_episode(prepare_groceries()).goal


def test_a_fridge_with_two_of_the_objects_is_opened_and_closed_once():
    episode = prepare_groceries(fridge_push_point=0.0)
    stages = plan(problem_from_episode(episode, options=CLOSING)).stages
    assert [s for s in stages if "open" in s or "close" in s] == [
        "open_fridge fridge_push_point",
        "close_fridge fridge_push_point",
    ]
    assert stages[-1] == "close_fridge fridge_push_point"


def test_closing_stays_in_the_goal_of_a_later_plan():
    world = start_world(set_table())
    world.joints[0, JOINTS.index("cab_push_point_5")] = 0.45
    world.object_pos[0, 0] = set_table().targets[0].goal
    problem = problem_from_episode(set_table(), world, options=CLOSING)
    assert ("closed_cab", "cab_push_point_5") in problem.goal
    assert plan(problem).stages[:2] == [
        "nav_to_receptacle cab_push_point_5",
        "close_cab cab_push_point_5",
    ]


def test_a_held_handle_does_not_count_as_a_held_object():
    world = dataclasses.replace(start_world(set_table()), held_joint=np.array([2]))
    assert ("not_holding", "robot_0") in problem_from_episode(set_table(), world).init


# Cached plans.


def test_episodes_of_one_structure_are_searched_once():
    _steps_once.cache_clear()
    plans = [plan(problem_from_episode(tidy_house(seed))) for seed in range(3)]
    assert (_steps_once.cache_info().misses, _steps_once.cache_info().hits) == (1, 2)
    assert plans[0].steps == plans[2].steps


def test_a_cached_plan_names_the_objects_of_its_own_episode():
    _steps_once.cache_clear()
    first, other = tidy_house(), tidy_house()
    sugar = [dataclasses.replace(thing, name="004_sugar_box") for thing in other.objects]
    other = dataclasses.replace(other, objects=tuple(sugar))
    one, two = (plan(problem_from_episode(episode)) for episode in (first, other))
    assert _steps_once.cache_info().misses == 1
    assert one.stages == two.stages and one[1].args[0] != two[1].args[0]
    assert two[1].args[0] == "obj_0_004_sugar_box"
    assert two[1].purpose == ("holding", "obj_0_004_sugar_box", "robot_0")


@pytest.fixture(scope="module")
def own_domain(tmp_path_factory):
    """Path of a custom domain, which is searched in the problem's own names."""
    path = tmp_path_factory.mktemp("domain") / "domain.pddl"
    path.write_text(DOMAIN.read_text())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("episode", [tidy_house(), prepare_groceries(), set_table()])
@pytest.mark.parametrize("options", [PlanOptions(), CLOSING])
def test_plans_in_shared_names_equal_plans_in_the_problems_own_names(episode, options, own_domain):
    problem = problem_from_episode(episode, options=options)
    assert plan(problem).steps == plan(problem, own_domain).steps


def test_different_facts_cause_a_new_search():
    _steps_once.cache_clear()
    problem = problem_from_episode(set_table())
    opened = dataclasses.replace(
        problem, init=tuple(atom for atom in problem.init if atom[0] != "closed_fridge")
    )
    assert len(plan(problem)) == 12 and len(plan(opened)) == 10
    assert _steps_once.cache_info().misses == 2


# Stage goals.


def reading(stages: dict[str, tuple[tuple[str, ...], ...]]) -> dict[str, list[str]]:
    return {
        name: [" ".join(short_name(term) for term in atom if term != "robot_0") for atom in atoms]
        for name, atoms in stages.items()
    }


def test_stage_goals_of_set_table_are_habs_with_the_hand_empty_at_the_end():
    assert reading(stage_goals(plan(problem_from_episode(set_table())))) == {
        "stage_0_5": ["holding obj_0"],
        "stage_1": ["object_at obj_0 goal_0", "not_holding"],
        "stage_1_5": ["object_at obj_0 goal_0", "holding obj_1"],
        "stage_2": ["object_at obj_0 goal_0", "object_at obj_1 goal_1", "not_holding"],
    }


def test_the_last_half_stage_of_tidy_house_is_the_fifth_object_in_the_hand():
    stages = reading(stage_goals(plan(problem_from_episode(tidy_house()))))
    placed = [f"object_at obj_{number} goal_{number}" for number in range(5)]
    assert stages["stage_4_5"] == [*placed[:4], "holding obj_4"]
    # This is habitat-lab's stage_4_5 with the empty hand as an additional condition.
    assert stages["stage_5"] == [*placed, "not_holding"]


def test_stage_goals_have_a_stage_for_closing():
    stages = reading(stage_goals(plan(problem_from_episode(set_table(), options=CLOSING))))
    assert list(stages) == [
        "stage_0_5",
        "stage_1",
        "stage_1_closed",
        "stage_1_5",
        "stage_2",
        "stage_2_closed",
    ]
    drawer = "closed_cab cab_push_point_5"
    assert stages["stage_1_closed"] == ["object_at obj_0 goal_0", drawer, "not_holding"]
    assert stages["stage_1_5"] == ["object_at obj_0 goal_0", drawer, "holding obj_1"]


@pytest.mark.parametrize(
    ("episode", "count"), [(tidy_house(), 5), (prepare_groceries(), 3), (set_table(), 2)]
)
def test_stage_goals_have_habs_names_with_none_left_out(episode, count):
    stages = stage_goals(plan(problem_from_episode(episode)))
    assert list(stages) == [n for k in range(count) for n in (f"stage_{k}_5", f"stage_{k + 1}")]


def test_an_object_held_at_the_start_has_no_pick_stage():
    held = dataclasses.replace(start_world(set_table()), held=np.array([0]))
    held.object_pos[0, 0] = [9.0, 9.0, 1.0]
    stages = stage_goals(plan(problem_from_episode(set_table(), held)))
    assert list(stages) == ["stage_1", "stage_1_5", "stage_2"]


def test_an_object_already_at_its_goal_counts_as_placed():
    world = start_world(set_table())
    world.object_pos[0, 0] = set_table().targets[0].goal
    stages = reading(stage_goals(plan(problem_from_episode(set_table(), world))))
    assert list(stages) == ["stage_1_5", "stage_2"]
    assert stages["stage_1_5"] == ["object_at obj_0 goal_0", "holding obj_1"]


def test_habs_own_domain_leaves_the_fridge_shut():
    stages = plan(problem_from_episode(set_table()), HABITAT_DOMAIN).stages
    assert "open_cab cab_push_point_5" in stages
    assert "open_fridge fridge_push_point" not in stages


def test_navigating_everywhere_first_is_a_plan_in_habs_own_domain_only(tmp_path):
    problem = problem_from_episode(make_episode(2, 2))
    order = ["nav obj_0", "nav obj_1", "nav goal_0", "nav goal_1"]
    order += ["pick obj_0", "place obj_0", "pick obj_1", "place obj_1"]

    def works(domain: Path) -> bool:
        task = task_of(problem, domain, tmp_path)
        state = task.initial
        for name in order:
            action, short = name.split()
            number = short[-1]
            terms = {short if short.startswith("goal") else f"{short}_003_cracker_box"}
            terms |= {f"goal_{number}"} if action == "place" else set()
            chosen = next(
                a
                for a in task.actions
                if a.operator_name == action and terms <= set(a.variable_list.values())
            )
            if not state.applicable(chosen):
                return False
            state = state.apply(chosen)
        return task.is_goal(state)

    assert works(HABITAT_DOMAIN)
    assert not works(DOMAIN)


def test_a_closed_drawer_is_opened_and_an_open_fridge_is_not():
    stages = plan(
        problem_from_episode(set_table(cab_push_point_5=0.0, fridge_push_point=1.5))
    ).stages
    assert "open_fridge fridge_push_point" not in stages
    assert "open_cab cab_push_point_5" in stages


def test_a_closed_fridge_that_holds_a_goal_is_opened_before_the_pick():
    episode = make_episode(1, 1)
    goal = dataclasses.replace(episode.targets[0], goal=receptacle("fridge"))
    stages = plan(problem_from_episode(dataclasses.replace(episode, targets=(goal,)))).stages
    assert stages.index("open_fridge fridge_push_point") < stages.index("pick obj_0")
    assert stages[-1] == "place obj_0"


def test_a_plan_from_a_later_state_has_only_the_remaining_steps():
    episode = make_episode(3, 3)
    world = start_world(episode)
    world.object_pos[0, 0] = episode.targets[0].goal
    held = dataclasses.replace(world, held=np.array([2]))
    assert plan(problem_from_episode(episode, held)).stages == [
        "nav goal_2",
        "place obj_2",
        "nav obj_1",
        "pick obj_1",
        "nav goal_1",
        "place obj_1",
    ]


def test_held_clutter_is_placed_back_at_its_initial_position():
    episode = make_episode(3, 1)
    held = dataclasses.replace(start_world(episode), held=np.array([2]))
    found = plan(problem_from_episode(episode, held))
    assert found.stages[:2] == ["nav home_2", "place clutter_2"]
    goal = skill_goal(found[1], found.problem.entities, held)
    assert (goal.object, goal.position) == (2, episode.objects[2].pos)


# Plans in general.


def random_problem(seed: int, options: PlanOptions | None = None) -> Problem:
    """Returns a problem with 2 to 4 objects on tables, in drawers and in the fridge.

    Drawers and fridge are randomly open or closed, and one object may be held.
    """
    rng = np.random.default_rng(seed)
    places = ["drawer_right_top", "drawer_left_top", "fridge", "table_1", "table_2", "sofa"]
    count = int(rng.integers(2, 5))
    start = rng.choice(places, count)
    targets = rng.permutation(count)[: rng.integers(1, min(count, 2) + 1)]
    episode = make_episode(
        objects=tuple(placement("013_apple", str(where)) for where in start),
        targets=tuple(Target(int(i), receptacle(str(rng.choice(places))), "any") for i in targets),
        articulation={name: float(rng.choice([0.0, 0.2, 1.5])) for name in JOINTS},
    )
    world = start_world(episode)
    held = np.array([int(rng.integers(-2, count))]).clip(-1)
    if held[0] >= 0:
        world.object_pos[0, held[0]] = [9.0, 9.0, 1.0]
    return problem_from_episode(episode, dataclasses.replace(world, held=held), None, options)


def replay(found: Plan) -> set[tuple[str, ...]]:
    """Checks the preconditions of each step and returns the facts after the plan."""
    facts = set(found.problem.init)
    for step in found:
        for clause in step.preconditions:
            assert any(satisfied(literal, facts) for literal in clause), (step.text, clause)
        facts = (facts - set(step.deletes)) | set(step.adds)
        assert sum(atom[0] == "robot_at" for atom in facts) <= 1
        assert sum(atom[0] in ("holding", "not_holding") for atom in facts) == 1
    return facts


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("close_after", [False, True])
def test_stage_goals_are_reached_in_order_and_the_last_is_the_goal(seed, close_after):
    found = plan(random_problem(seed, PlanOptions(close_after=close_after)))
    facts, reached = set(found.problem.init), []
    stages = stage_goals(found)
    for step in found:
        facts = (facts - set(step.deletes)) | set(step.adds)
        due = [name for name in stages if name not in reached][:1]
        reached += [name for name in due if set(stages[name]) <= facts]
    assert reached == list(stages)
    if stages:
        assert set(stages[reached[-1]]) == set(found.problem.goal)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_plans_reach_the_goal_and_are_as_short_as_those_of_a_full_search(seed, tmp_path):
    problem = random_problem(seed)
    found = plan(problem)
    assert set(problem.goal) <= replay(found)
    task = task_of(problem, DOMAIN, tmp_path)
    names = {e.name for e in problem.declared if not e.name.startswith("clutter")}
    names |= {atom[1] for atom in problem.init if atom[0] == "holding"}
    task.actions = [
        a
        for a in task.actions
        if not a.operator_name.startswith("close") and not a.operator_name.endswith("by_name")
        if set(a.variable_list.values()) <= names
    ]

    class Whole(BFSPlanner):
        def prepare(self, domainproblem):
            return task

    shortest = Whole().solve(None)
    assert shortest is not None and len(found) == len(shortest)


@pytest.mark.slow
def test_a_plan_does_not_depend_on_the_hash_seed():
    code = (
        "import test_planner_search as t\n"
        "from planner.problem import problem_from_episode as p\n"
        "print(t.plan(p(t.tidy_house())).describe(), t.plan(p(t.set_table())).describe())"
    )
    path = os.pathsep.join(map(str, Path(__file__).parents[:3]))
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] and b"open_fridge" in runs[0]


def test_a_goal_that_already_holds_gives_an_empty_plan():
    episode = make_episode(1, 1)
    there = dataclasses.replace(episode.objects[0], pos=episode.targets[0].goal)
    found = plan(problem_from_episode(dataclasses.replace(episode, objects=(there,))))
    assert len(found) == 0 and "empty plan" in found.describe()


def test_unreachable_goal_is_a_user_error_of_one_line():
    problem = problem_from_episode(make_episode(1, 1))
    stuck = dataclasses.replace(
        problem, init=tuple(atom for atom in problem.init if atom[0] != "goal_of")
    )
    with pytest.raises(UnsolvableError, match=r"no action can reach object_at\(obj_0") as error:
        plan(stuck)
    assert "\n" not in str(error.value)


def test_search_for_a_contradictory_goal_ends_at_the_state_limit(monkeypatch):
    monkeypatch.setattr("planner.search._MOST_STATES", 500)
    problem = with_goal(
        problem_from_episode(tidy_house()), "holding(obj_0, robot_0) and not_holding(robot_0)"
    )
    with pytest.raises(UnsolvableError, match=r"not_holding\(robot_0\) .* 500 states searched"):
        plan(problem)


def test_two_different_goals_for_one_object_are_unsolvable():
    episode = make_episode(1, 1)
    second = dataclasses.replace(episode.targets[0], goal=(5.0, 5.0, 0.8))
    both = dataclasses.replace(episode, targets=(episode.targets[0], second))
    with pytest.raises(UnsolvableError, match="while keeping the goals before it"):
        plan(problem_from_episode(both))


def test_an_action_that_no_skill_carries_out_is_a_user_error_of_one_line(tmp_path):
    text = DOMAIN.read_text()
    assert "(:action nav\n" in text
    path = tmp_path / "domain.pddl"
    path.write_text(text.replace("(:action nav\n", "(:action navigate\n"))
    with pytest.raises(UserError, match="did you mean 'nav") as error:
        plan(problem_from_episode(make_episode(1, 1)), path)
    assert "\n" not in str(error.value)


def test_missing_domain_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="cannot read"):
        plan(problem_from_episode(make_episode(1, 1)), tmp_path / "none.pddl")


# The problem and the plan as data.


def test_initial_facts_of_a_problem_follow_from_the_geometry():
    init = set(problem_from_episode(set_table(fridge_push_point=1.5)).init)
    assert init == {
        ("not_holding", "robot_0"),
        ("goal_of", "goal_0", "obj_0_024_bowl"),
        ("goal_of", "goal_1", "obj_1_013_apple"),
        ("in", "obj_0_024_bowl", "cab_push_point_5"),
        ("in", "obj_1_013_apple", "fridge_push_point"),
        ("opened_fridge", "fridge_push_point"),
        *(("closed_cab", f"cab_push_point_{n}") for n in range(4, 8)),
    }


def test_problem_text_is_parsed_by_pddlpy_without_loss(tmp_path):
    problem = problem_from_episode(make_episode(4, 2, id="Set Table #7/ä"))
    parsed = parse(tmp_path, DOMAIN.read_text(), problem.text())
    assert {tuple(atom.predicate) for atom in parsed.initialstate()} == set(problem.init)
    assert {tuple(atom.predicate) for atom in parsed.goals()} == set(problem.goal)
    assert parsed.worldobjects()["clutter_3_003_cracker_box"] == "movable_entity_type"


def test_causal_links_run_from_producers_to_consumers():
    found = plan(problem_from_episode(set_table()))
    links = {
        (found[a].name, found[b].name): data["atoms"]
        for a, b, data in found.graph.edges(data=True)
        if data["atoms"]
    }
    assert links["open_cab cab_push_point_5", "pick obj_0"] == [
        "not in(obj_0_024_bowl, cab_push_point_5) or not closed_cab(cab_push_point_5)"
    ]
    assert links["pick obj_0", "place obj_0"] == ["holding(obj_0_024_bowl, robot_0)"]
    assert links["nav goal_0", "place obj_0"] == ["robot_at(goal_0, robot_0)"]
    assert links["place obj_0", "pick obj_1"] == ["not_holding(robot_0)"]


def test_graph_orders_the_steps():
    found = plan(problem_from_episode(tidy_house()))
    assert list(nx.topological_sort(found.graph)) == list(range(20))
    order = [(a, b) for a, b, data in found.graph.edges(data=True) if data["order"]]
    assert order == list(itertools.pairwise(range(20)))
    assert [found.graph.nodes[n]["step"] for n in found.graph] == list(found)


def test_receptacle_clauses_are_omitted_if_no_object_can_be_in_a_receptacle():
    pick = plan(problem_from_episode(tidy_house()))[1]
    assert [clause[0].atom[0] for clause in pick.preconditions] == ["robot_at", "not_holding"]


def test_skill_goals_take_positions_from_the_world():
    episode = set_table()
    found = plan(problem_from_episode(episode))
    world = start_world(episode)
    world.object_pos[0, 0] = [1.0, 2.0, 3.0]
    world.marker_pos[0, 2] = [4.0, 5.0, 6.0]
    goals = [skill_goal(step, found.problem.entities, world) for step in found.steps[:6]]
    assert (goals[0].object, goals[0].position, goals[0].marker) == (
        -1,
        (4.0, 5.0, 6.0),
        "cab_push_point_5",
    )
    assert goals[1].marker == "cab_push_point_5"
    assert (goals[2].object, goals[2].position) == (0, (1.0, 2.0, 3.0))
    assert (goals[3].object, goals[3].position) == (0, None)
    assert (goals[4].object, goals[4].position) == (-1, episode.targets[0].goal)
    assert (goals[5].object, goals[5].position) == (0, episode.targets[0].goal)


def test_the_description_lists_needs_of_each_step_and_the_steps_that_meet_them():
    text = plan(problem_from_episode(tidy_house())).describe()
    assert text.count("[pick]") == 5
    assert "needs   holding(obj_0_003_cracker_box, robot_0)  (from step 2)" in text
    assert "makes   object_at(obj_0_003_cracker_box, goal_0)" in text
