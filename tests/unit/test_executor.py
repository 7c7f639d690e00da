import dataclasses
import json

import numpy as np
import pytest
from kinematic_home import (
    LAYOUT,
    Drive,
    Fold,
    Grab,
    Idle,
    KinematicHome,
    Pull,
    Put,
    Quit,
    make_episode,
)

from planner.containers import containers
from planner.domains import DOMAIN
from planner.execution.executor import Executor
from planner.execution.limits import ExecutionRules, execution_limits
from planner.execution.trace import Trace
from planner.given import plan_text
from planner.options import PlanOptions
from planner.plan import Plan
from skills import registry, tables
from skills.articulated.task import ArticulatedLimits
from skills.core.interface import SkillPolicy
from skills.core.limits import SkillLimits
from tpsrl.errors import RunError, UserError
from tpsrl.sim.snapshots import load_noted_snapshots, save_snapshots
from tpsrl.world import action as layout
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.floor import random_base_pose
from tpsrl.world.state import JOINTS


def policies(**changes: SkillPolicy) -> dict[str, SkillPolicy]:
    return {"navigate": Drive(), "pick": Grab(), "place": Put(), **changes}


def going_on(**changes: object):
    """Returns habitat-lab's limits, except that the plan continues after a timeout."""
    return execution_limits(**{"end_on_timeout": False, **changes})


def execute(home: KinematicHome | None = None, episode=None, acting=None, **options) -> Trace:
    options = {"reset_arm": Fold(), "limits": going_on(), **options}
    executor = Executor(home or KinematicHome(), acting or policies(), **options)
    return executor.run(episode or make_episode())


def ended(trace: Trace) -> list[str]:
    return [stage.ended_by for stage in trace.stages]


def test_the_executor_moves_every_target_to_its_goal():
    home = KinematicHome()
    trace = execute(home)
    assert trace.success and trace.ended_by == "stop"
    assert trace.first_cause is None and trace.causes == []
    assert ended(trace) == ["success"] * 8
    assert np.allclose(home.objects[:2], [[0, -2, 0.8], [1, -2, 0.8]], atol=0.03)
    assert np.allclose(home.objects[2], [2, 2, 0.8])


def test_a_domain_file_of_the_user_is_used_for_planning(tmp_path):
    path = tmp_path / "mine.pddl"
    path.write_text(DOMAIN.read_text())
    rules = ExecutionRules(domain=path)
    assert execute(rules=rules).success
    path.write_text(DOMAIN.read_text().replace("(holding ?place_obj", "(robot_at ?place_obj", 1))
    with pytest.raises(UserError, match="no plan reaches object_at"):
        execute(rules=rules)


def test_steps_of_stages_and_the_wait_add_up_to_the_steps_of_the_simulator():
    home = KinematicHome()
    trace = execute(home, limits=going_on(wait_end_steps=7))
    in_stages = sum(stage.steps + stage.reset_steps for stage in trace.stages)
    assert trace.steps == len(home.actions) == in_stages + 7 + 1


def test_stop_is_called_once_at_the_very_end():
    home = KinematicHome()
    execute(home)
    stops = [index for index, action in enumerate(home.actions) if action[layout.STOP] > 0]
    navigation_stops = 4
    assert len(stops) == navigation_stops + 1
    assert stops[-1] == len(home.actions) - 1


def test_a_masked_grip_keeps_the_state_of_the_gripper():
    home = KinematicHome()
    trace = execute(home)
    start = 0
    for stage in trace.stages:
        grips = {action[layout.GRIP] for action in home.actions[start : start + stage.steps]}
        if stage.skill == "navigate":
            assert grips == ({1.0} if stage.before.held >= 0 else {-1.0})
        start += stage.steps + stage.reset_steps
    assert {stage.before.held for stage in trace.stages if stage.skill == "navigate"} == {-1, 0, 1}


def test_actions_are_clipped_and_masked_parts_stand_still():
    class Wild(Drive):
        def act(self, world, depth=None):
            return np.full(layout.SIZE, 3.0)

    home = KinematicHome()
    execute(home, acting=policies(navigate=Wild()))
    first = home.actions[0]
    assert first[layout.ARM].tolist() == [0.0] * 7
    assert first[layout.GRIP] == -1.0
    assert first[layout.BASE].tolist() == [1.0, 1.0]
    assert first[layout.STOP] == 1.0


def test_navigation_that_never_arrives_times_out_with_its_margin():
    trace = execute(
        acting=policies(navigate=Idle()),
        episode=make_episode(1, 1, robot_start=(0.0, -1.0, 0.0)),
        limits=going_on(navigate=SkillLimits(9)),
    )
    stage = trace.stages[0]
    assert (stage.ended_by, stage.steps) == ("timeout", 9)
    cause = trace.first_cause
    assert cause is not None
    assert (cause.stage, cause.skill, cause.reason, cause.unit) == (0, "navigate", "timeout", "m")
    assert cause.predicate == "robot_at(obj_0_003_cracker_box, robot_0)"
    assert cause.margin == pytest.approx(2.0 - 3.0)


def test_limits_are_per_skill():
    limits = going_on(navigate=SkillLimits(30), pick=SkillLimits(4))
    trace = execute(acting=policies(pick=Idle()), limits=limits)
    assert [s.steps for s in trace.stages if s.skill == "pick"] == [4, 4]


def test_force_over_the_limit_of_a_skill_fails_it_and_the_plan_continues():
    def hit(home: KinematicHome) -> None:
        home.force = 600.0

    first_pick = execute().stages[0].steps + 1
    faults = {first_pick: hit, first_pick + 1: hit}
    within = going_on(pick=SkillLimits(200, 700.0, 1500.0))
    assert execute(KinematicHome(faults), limits=within).success
    summed = going_on(pick=SkillLimits(200, force_total_n=1000.0))
    assert execute(KinematicHome(faults), limits=summed).stages[1].ended_by == "skill_force"
    instant = going_on(pick=SkillLimits(200, force_instant_n=500.0))
    trace = execute(KinematicHome(faults), limits=instant)
    assert ended(trace) == ["success", "skill_force", "success", "precondition"] + ["success"] * 4
    assert trace.stages[1].steps == 1 and trace.ended_by == "stop"
    assert trace.first_cause is not None
    assert (trace.first_cause.name, trace.first_cause.reason) == ("pick obj_0", "skill_force")


def test_limits_of_an_unknown_skill_are_refused_with_the_nearest_name():
    with pytest.raises(UserError, match="did you mean 'pick'"):
        going_on().of("pikc")


def drawer_and_fridge() -> tuple[Episode, dict[str, np.ndarray]]:
    """Returns a Set Table episode and the positions of the two handles.

    One target is in a drawer and one in the fridge; their goals are at y = -2.
    """
    names = ("cab_push_point_5", "fridge_push_point")
    boxes = [containers(LAYOUT, name)[0] for name in names]
    objects = tuple(
        ObjectPlacement("003_cracker_box", tuple(box.pos), (1.0, 0.0, 0.0, 0.0), "inside")
        for box in boxes
    )
    episode = dataclasses.replace(make_episode(2, 2, scenario="set_table"), objects=objects)
    return episode, {
        name: np.add(box.pos, (0.0, 0.4, 0.0)) for name, box in zip(names, boxes, strict=True)
    }


def opening(**changes: SkillPolicy) -> dict[str, SkillPolicy]:
    return policies(**{"open_drawer": Pull(0.46), "open_fridge": Pull(1.25), **changes})


def test_set_table_succeeds_with_opening_skills_that_release_and_stop():
    episode, handles = drawer_and_fridge()
    trace = execute(KinematicHome(handles=handles), episode, opening())
    assert trace.success, trace.first_cause
    assert [s.skill for s in trace.stages].count("navigate") == 6 and len(trace.stages) == 12
    assert set(ended(trace)) == {"success"}
    opened = [s for s in trace.stages if s.skill.startswith("open")]
    assert all(s.results["stop"].holds and s.results["released"].holds for s in opened)


def test_opening_within_a_plan_ends_with_a_stop_and_not_with_the_arm_at_rest():
    class Mute(Pull):
        def act(self, world, depth=None):
            action = super().act(world, depth)
            action[layout.STOP] = -1.0
            return action

    episode, handles = drawer_and_fridge()
    trace = execute(KinematicHome(handles=handles), episode, opening(open_drawer=Mute(0.46)))
    stage = trace.stages[1]
    assert (stage.skill, stage.ended_by) == ("open_drawer", "timeout")
    assert stage.results["rest"].holds and stage.results["joint"].holds


def test_opening_within_a_plan_continues_after_a_broken_hold_by_default():
    def slip(home: KinematicHome) -> None:
        home.held_joint, home.violation = -1, True

    episode, handles = drawer_and_fridge()
    drive, pull = execute(KinematicHome(handles=handles), episode, opening()).stages[:2]
    halfway = {drive.steps + drive.reset_steps + pull.steps // 2: slip}

    def end(**options: object) -> str:
        home = KinematicHome(halfway, handles=handles)
        return execute(home, episode, opening(), **options).stages[1].ended_by

    assert end() == "success"
    strict = execution_limits(open_drawer=ArticulatedLimits(200, broken_hold="fails"))
    assert end(limits=strict) == "hold_broken"


def test_plan_options_leave_out_the_navigation_after_opening_the_drawer():
    episode, handles = drawer_and_fridge()
    rules = ExecutionRules(plan=PlanOptions(nav_after_open_drawer=False))
    trace = execute(KinematicHome(handles=handles), episode, opening(), rules=rules)
    assert len(trace.plan) == 11 and trace.success


def test_a_handle_held_at_the_end_of_a_skill_is_released_before_the_next_step():
    episode, handles = drawer_and_fridge()
    home = KinematicHome(handles=handles)
    trace = execute(home, episode, opening(open_drawer=Pull(0.46, let_go=False)))
    stage = trace.stages[1]
    assert (stage.ended_by, stage.skill_success, stage.succeeded) == ("skill_stop", False, True)
    assert stage.reset_steps == 1 and stage.after is not None and stage.after.held_joint == -1
    assert ended(trace)[2:4] == ["success", "success"] and trace.success


def test_stage_goals_are_marked_with_the_step_at_which_they_first_held():
    trace = execute()
    ends = np.cumsum([s.steps + s.reset_steps for s in trace.stages])
    names = ["stage_0_5", "stage_1", "stage_1_5", "stage_2"]
    assert list(trace.stage_goals) == names
    firsts = [trace.stage_goals[name].first for name in names]
    assert firsts == [trace.stage_goals[name].in_turn for name in names]
    # An object is grasped or released some steps before the arm is back at rest.
    before = [ends[stage - 1] for stage in (1, 3, 5, 7)]
    after = [ends[stage] for stage in (1, 3, 5, 7)]
    assert all(a < first <= b for a, first, b in zip(before, firsts, after, strict=True))


def test_a_stage_goal_reached_out_of_order_counts_as_reached_but_not_in_order():
    def put_first_in_place(home: KinematicHome) -> None:
        home.objects[0] = home.episode.targets[0].goal

    whole = execute(acting=policies(pick=GrabSecondOnly()))
    assert {mark.first for mark in whole.stage_goals.values()} == {None}
    late = KinematicHome({whole.steps - 3: put_first_in_place})
    marks = execute(late, acting=policies(pick=GrabSecondOnly())).stage_goals
    assert marks["stage_1"].first is not None and marks["stage_2"].first is not None
    assert [mark.in_turn for mark in marks.values()] == [None] * 4


def test_a_fixed_plan_skips_steps_that_cannot_start_and_continues():
    trace = execute(acting=policies(pick=GrabSecondOnly()))
    assert trace.stages[3].ended_by == "precondition" and trace.stages[3].steps == 0
    assert [o["succeeded"] for o in trace.outcomes()] == [True, False, True, False] + [True] * 4
    assert [o["reached"] for o in trace.outcomes()] == [True, True, True, False] + [True] * 4
    assert not trace.success and trace.ended_by == "stop"
    cause = trace.first_cause
    assert cause is not None
    assert (cause.name, cause.reason) == ("pick obj_0", "timeout")
    assert [c.reason for c in trace.causes] == ["timeout", "precondition"]


def test_a_stop_without_success_is_recorded_with_the_policys_diagnosis():
    trace = execute(acting=policies(pick=Quit()))
    assert (trace.stages[1].ended_by, trace.stages[1].steps) == ("skill_stop", 1)
    assert trace.stages[1].diagnosis == {"gave_up": True}


def short_of_time(**changes: object):
    """Returns habitat-lab's limits with five steps for Pick."""
    return execution_limits(pick=SkillLimits(5), **changes)


class GrabSecondOnly(Grab):
    """Grasps the second object only, so that Pick of the first one times out."""

    def grip(self) -> float:
        return 1.0 if self.goal.object == 1 else -1.0


def test_a_timeout_ends_the_episode_unless_end_on_timeout_is_false():
    acting = policies(pick=Idle())
    on = execute(acting=acting, limits=short_of_time(end_on_timeout=False))
    ending = execute(acting=acting, limits=short_of_time())
    assert len(on.stages) == 8 and on.ended_by == "stop"
    assert len(ending.stages) == 2 and ending.ended_by == "timeout"
    assert ending.first_cause is not None
    assert ending.first_cause.reason == "timeout"
    assert ending.first_cause.predicate.startswith("holding")
    assert ending.timeout == ending.first_cause and ending.steps == sum(
        stage.steps + stage.reset_steps for stage in ending.stages
    )


def without_other(trace: Trace) -> dict:
    return {**trace.to_json(), "other": None}


def test_one_run_gives_the_traces_that_end_at_a_timeout_and_that_ignore_it():
    acting = policies(pick=GrabSecondOnly())
    ending = execute(acting=acting, limits=execution_limits())
    ignoring = execute(acting=acting, limits=going_on())
    both = execute(
        acting=acting, limits=execution_limits(), rules=ExecutionRules(after_timeout=True)
    )
    assert ending.other is None and ending.ignoring is None and ending.ending is ending
    assert without_other(both) == ending.to_json()
    assert both.other is not None and both.ignoring is both.other and both.ending is both
    assert without_other(both.other) == without_other(ignoring)
    assert ignoring.other is not None and ignoring.ending is ignoring.other
    assert without_other(ignoring.ending) == ending.to_json()


def test_steps_after_a_timeout_do_not_change_the_trace_that_ends_with_it():
    class SecondTry(Grab):
        def grip(self) -> float:
            return 1.0 if self.begun > 1 else -1.0

    seen = []
    rules = ExecutionRules(after_timeout=True, snapshots=True)
    executor = Executor(
        KinematicHome(),
        policies(pick=SecondTry()),
        reset_arm=Fold(),
        limits=execution_limits(),
        rules=rules,
    )
    trace = executor.run(make_episode(), lambda world, info: seen.append(info.episode_step))
    assert (trace.ended_by, len(trace.stages), len(trace.causes)) == ("timeout", 2, 1)
    assert seen == list(range(1, trace.steps + 1))
    assert sorted(trace.snapshots) == [0, 1, 2]
    assert all(mark.first is None for mark in trace.stage_goals.values())
    later = trace.ignoring
    assert later is not None and len(later.stages) == 8 and later.steps > trace.steps
    assert later.stage_goals["stage_1_5"].first is None  # the first object is not at its goal
    assert later.outcomes()[7]["succeeded"] and not later.success


def test_without_a_timeout_both_traces_are_the_same():
    trace = execute(limits=execution_limits(), rules=ExecutionRules(after_timeout=True))
    assert trace.success and trace.timeout is None and trace.other is None
    assert trace.ending is trace and trace.ignoring is trace


def test_a_timeout_calls_stop_so_that_the_current_state_is_evaluated():
    class Leave(Put):
        """Releases the object and keeps the arm extended, without a stop."""

        def act(self, world, depth=None):
            action = super().act(world, depth)
            if self.done:
                action[:3] = 0.0
            return action

    one = make_episode(1, 1)
    limits = execution_limits()
    trace = execute(acting=policies(place=Leave()), episode=one, limits=limits)
    assert trace.ended_by == "timeout" and trace.stages[-1].ended_by == "timeout"
    assert trace.success and trace.first_cause is None
    strict = execution_limits(timeout_calls_stop=False)
    failed = execute(acting=policies(place=Leave()), episode=one, limits=strict)
    assert not failed.success and failed.first_cause is not None
    assert (failed.first_cause.predicate, failed.first_cause.reason) == ("place.rest", "timeout")


def test_a_skill_that_gives_up_counts_as_timed_out_by_habitat_labs_limits():
    trace = execute(acting=policies(pick=Quit()), limits=execution_limits())
    assert (trace.ended_by, trace.stages[-1].ended_by) == ("timeout", "skill_stop")
    assert trace.first_cause is not None and trace.first_cause.reason == "skill_stop"
    # Navigate ends with its stop, wherever the robot is. A step that cannot start from there is not
    # run.
    far = make_episode(1, 1, robot_start=(0.0, -1.0, 0.0))
    lost = execute(acting=policies(navigate=Quit()), episode=far, limits=execution_limits())
    assert [s.ended_by for s in lost.stages] == ["skill_stop", "precondition"]
    assert lost.ended_by == "timeout" and lost.timeout is not None
    assert (lost.timeout.name, lost.timeout.reason) == ("pick obj_0", "precondition")


def test_a_place_step_with_an_empty_gripper_does_not_end_the_episode():
    trace = execute(KinematicHome(drop_during_second_navigation()), limits=execution_limits())
    assert [s.ended_by for s in trace.stages][2:4] == ["dropped", "precondition"]
    assert trace.ended_by == "stop" and trace.timeout is None


def test_with_replanning_a_skill_may_give_up_without_ending_the_episode():
    rules = ExecutionRules(replan=True, max_replans=1)
    trace = execute(acting=policies(pick=Quit()), limits=execution_limits(), rules=rules)
    assert trace.plans == 2 and trace.ended_by == "stop"
    out = execute(acting=policies(pick=Idle()), limits=short_of_time(), rules=rules)
    assert out.plans == 1 and out.ended_by == "timeout"


def test_displaced_objects_are_counted():
    def push(home: KinematicHome) -> None:
        home.objects[2] += [0.11, 0.0, 0.0]
        home.objects[3] += [0.09, 0.0, 0.0]

    trace = execute(KinematicHome({9: push}), make_episode(4, 2))
    assert trace.moved is not None and trace.success
    assert (trace.moved.clutter, trace.moved.clutter_objects, trace.moved.targets) == (1, 2, 0)


def test_only_targets_that_were_never_held_count_as_displaced():
    def push(home: KinematicHome) -> None:
        home.objects[1] += [0.3, 0.0, 0.0]

    acting = policies(pick=Quit())
    trace = execute(KinematicHome({4: push}), acting=acting, limits=going_on())
    assert trace.moved is not None and trace.moved.targets == 1
    handled = execute()
    assert handled.moved is not None and handled.moved.targets == 0


def test_each_displaced_object_is_a_cause_at_the_step_of_its_displacement():
    """Object 2 is displaced twice; object 3, beside the failed pick, is the first cause."""

    def push(index: int, metres: float):
        def fault(home: KinematicHome) -> None:
            home.objects[index, 0] += metres

        return fault

    near = ObjectPlacement("003_cracker_box", (0.2, 2.0, 0.8), (1.0, 0.0, 0.0, 0.0), "table_1")
    episode = make_episode(3, 1)
    episode = dataclasses.replace(episode, objects=(*episode.objects, near))
    faults = {3: push(2, 0.5), 6: push(2, -0.5), 9: push(3, -0.15), 11: push(2, 0.5)}
    trace = execute(KinematicHome(faults), episode, policies(pick=Quit()))
    knocks = {c.predicate.split("_")[1]: c for c in trace.causes if c.reason == "knocked"}
    assert {name: cause.step for name, cause in knocks.items()} == {"3": 9, "2": 11}
    cause = trace.first_cause
    assert cause is knocks["3"] and (cause.unit, cause.name) == ("m", "nav obj_0")
    assert cause.margin == pytest.approx(-0.05)


def test_a_step_that_occurs_twice_in_a_plan_is_two_stages():
    home = KinematicHome()
    executor = Executor(home, policies(), reset_arm=Fold(), limits=going_on())
    first = executor.begin(make_episode()).plan
    twice = [dataclasses.replace(s, index=i) for i, s in enumerate([first[0], *first])]
    trace = executor.begin(make_episode(), plan=Plan(twice, first.problem)).run()
    assert [stage.index for stage in trace.stages] == list(range(len(twice)))


def test_objects_that_move_with_their_drawer_are_not_displaced():
    episode, handles = drawer_and_fridge()
    inside = episode.objects[0]
    clutter = dataclasses.replace(inside, pos=tuple(np.add(inside.pos, (0.02, 0.0, 0.0))))
    episode = dataclasses.replace(episode, objects=(*episode.objects, clutter))
    (box,) = containers(LAYOUT, "cab_push_point_5")

    class Drawer(KinematicHome):
        """Home in which objects slide with the drawer; the target only until it is held."""

        def step(self, env_ids, actions):
            before = self.joints.copy()
            super().step(env_ids, actions)
            moved = (self.joints - before)[JOINTS.index("cab_push_point_5")] * box.slide
            self.objects[2] += moved
            if self.held < 0 and moved.any():
                self.objects[0] += moved

    trace = execute(Drawer(handles=handles), episode, opening())
    assert trace.stages[1].succeeded and trace.moved is not None
    assert (trace.moved.clutter, trace.moved.clutter_objects) == (0, 1)


def test_grasping_a_wrong_object_fails_the_pick_at_once():
    trace = execute(acting=policies(pick=Grab({1: 1})), episode=crowded())
    assert trace.stages[1].ended_by == "wrong_object"
    assert trace.stages[1].after is not None and trace.stages[1].after.held == 1


def crowded():
    """Returns an episode with one target and a clutter object beside it."""
    episode = make_episode(2, 1)
    beside = ObjectPlacement("004_sugar_box", (0.2, 2.0, 0.8), (1.0, 0.0, 0.0, 0.0), "table_1")
    return dataclasses.replace(episode, objects=(episode.objects[0], beside))


def test_replanning_first_returns_a_wrong_object_to_its_place():
    home = KinematicHome()
    trace = execute(home, crowded(), policies(pick=Grab({1: 1})), rules=ExecutionRules(replan=True))
    names = [stage.name for stage in trace.stages]
    assert names[2:4] == ["nav home_1", "place clutter_1"]
    assert trace.success and trace.plans == 2
    assert np.allclose(home.objects[1], [0.2, 2.0, 0.8], atol=0.03)


def test_replanning_repeats_a_failed_pick_and_marks_its_cause_recovered():
    class SecondTry(Grab):
        def grip(self) -> float:
            return -1.0 if self.begun == 1 else 1.0

    trace = execute(acting=policies(pick=SecondTry()), rules=ExecutionRules(replan=True))
    assert [s.name for s in trace.stages][:4] == ["nav obj_0", "pick obj_0"] * 2
    assert trace.success and trace.first_cause is None
    assert [(c.name, c.recovered) for c in trace.causes] == [("pick obj_0", True)]
    assert trace.outcomes()[1]["attempts"] == 2
    assert [s.plan for s in trace.stages][:4] == [0, 0, 1, 1]


def test_replanning_gives_up_after_its_limit():
    rules = ExecutionRules(replan=True, max_replans=3)
    trace = execute(acting=policies(pick=Quit()), rules=rules)
    assert trace.plans == 4 and not trace.success
    assert trace.first_cause is not None and trace.first_cause.name == "pick obj_0"


def drop_during_second_navigation() -> dict:
    steps = sum(s.steps + s.reset_steps for s in execute().stages[:2])
    return {steps + 3: KinematicHome.drop}


def test_a_drop_while_driving_is_the_first_cause_of_a_place_that_never_started():
    trace = execute(KinematicHome(drop_during_second_navigation()))
    assert ended(trace)[2:4] == ["dropped", "precondition"]
    cause = trace.first_cause
    assert cause is not None
    assert (cause.name, cause.reason) == ("nav goal_0", "dropped")
    assert cause.predicate == "holding(obj_0_003_cracker_box, robot_0)"


def test_replanning_fetches_a_dropped_object_from_the_floor():
    home = KinematicHome(drop_during_second_navigation())
    trace = execute(home, rules=ExecutionRules(replan=True))
    assert trace.success
    assert np.allclose(home.objects[0], [0, -2, 0.8], atol=0.03)


def test_a_stage_may_succeed_although_its_skill_fails():
    trace = execute(acting=policies(place=Put(offset_m=0.2)))
    place = trace.stages[3]
    assert place.ended_by == "wrong_drop" and not place.skill_success
    assert place.succeeded and trace.success
    assert not place.results["at_goal"].holds
    assert place.results["at_goal"].margin == pytest.approx(-0.05, abs=0.03)


def knock_off_first_object(home: KinematicHome) -> None:
    home.objects[0] = [3.0, 0.0, 0.1]


def test_a_lost_goal_is_attributed_to_the_stage_that_lost_it():
    steps = sum(s.steps + s.reset_steps for s in execute().stages[:5])
    trace = execute(KinematicHome({steps + 2: knock_off_first_object}))
    assert ended(trace) == ["success"] * 8 and not trace.success
    cause = trace.first_cause
    assert cause is not None
    assert (cause.name, cause.reason) == ("pick obj_1", "lost")
    assert cause.predicate == "object_at(obj_0_003_cracker_box, goal_0)"


def test_replanning_restores_a_lost_goal_at_the_end():
    steps = sum(s.steps + s.reset_steps for s in execute().stages[:5])
    home = KinematicHome({steps + 2: knock_off_first_object})
    trace = execute(home, rules=ExecutionRules(replan=True))
    assert trace.success and trace.plans == 2


def test_a_goal_lost_in_the_final_wait_is_attributed_to_the_stage_that_met_it():
    settled = sum(s.steps + s.reset_steps for s in execute().stages)
    trace = execute(KinematicHome({settled + 5: knock_off_first_object}))
    assert not trace.success
    assert trace.first_cause is not None
    assert (trace.first_cause.name, trace.first_cause.reason) == ("place obj_0", "lost")
    assert trace.first_cause.step == settled + 5


class SlowFold(Fold):
    """Reset of the arm that takes five steps from any posture."""

    def begin(self, *about):
        super().begin(*about)
        self.left = 5

    def act(self, world, depth=None):
        self.left -= 1
        action = super().act(world, depth)
        action[layout.STOP] = 1.0 if self.left < 0 else -1.0
        return action


def test_a_goal_lost_during_an_arm_reset_is_an_earlier_cause_than_later_failures():
    place = execute(reset_arm=SlowFold()).stages[3]
    at = place.before.step + place.steps + 2
    home, acting = KinematicHome({at: knock_off_first_object}), policies(pick=Grab(wrong={2: 2}))
    trace = execute(home, acting=acting, reset_arm=SlowFold())
    assert not trace.stages[3].handed_over and trace.stages[3].succeeded
    assert [c.reason for c in trace.causes][:2] == ["lost", "wrong_object"]
    cause = trace.first_cause
    assert cause is not None and (cause.name, cause.step) == ("place obj_0", at)
    assert cause.predicate == "object_at(obj_0_003_cracker_box, goal_0)"


def test_the_first_cause_within_a_stage_is_the_earliest_in_time():
    def push(home: KinematicHome) -> None:
        home.objects[2] = [0.1, 2.0, 0.8]

    at = execute().stages[1].before.step + 2
    trace = execute(KinematicHome({at: push}), acting=policies(pick=Idle()))
    first, second = (c for c in trace.causes if c.name == "pick obj_0")
    assert (first.reason, second.reason, second.step) == ("timeout", "knocked", at)
    assert trace.first_cause is second


def test_force_over_the_instant_limit_ends_the_episode():
    def hit(home: KinematicHome) -> None:
        home.force = 12_000.0

    trace = execute(KinematicHome({4: hit}))
    assert trace.ended_by == "force_limit" and trace.steps == 4 and not trace.success
    cause = trace.first_cause
    assert cause is not None
    assert (cause.reason, cause.predicate, cause.unit) == ("force_limit", "force", "N")
    assert cause.margin == pytest.approx(-2000.0)
    assert trace.stages[0].force_peak_n == 12_000.0


def test_force_over_the_accumulated_limit_ends_the_episode():
    def lean(home: KinematicHome) -> None:
        home.force = 600.0

    limits = going_on(force_total_n=1000.0)
    trace = execute(KinematicHome({3: lean, 6: lean}), limits=limits)
    assert trace.ended_by == "force_limit" and trace.steps == 6
    assert trace.stages[0].force_sum_n == 1200.0


def test_episode_steps_end_the_episode_without_a_stop():
    home = KinematicHome()
    trace = execute(home, limits=going_on(episode_steps=50))
    assert trace.ended_by == "episode_steps" and trace.steps == 50 == len(home.actions)
    assert trace.first_cause is not None and trace.first_cause.reason == "episode_steps"


def test_final_wait_is_cut_short_to_leave_room_for_the_stop():
    needed = sum(s.steps + s.reset_steps for s in execute().stages)
    trace = execute(limits=going_on(episode_steps=needed + 4))
    assert trace.success and trace.steps == needed + 4
    late = execute(limits=going_on(episode_steps=needed))
    assert not late.success and late.ended_by == "episode_steps"


def test_reset_arm_costs_no_step_when_the_arm_is_at_rest():
    class Leave(Put):
        """Releases the object and stops with the arm extended."""

        def act(self, world, depth=None):
            action = super().act(world, depth)
            action[layout.STOP] = 1.0 if self.done else -1.0
            if self.done:
                action[:3] = 0.0
            return action

    assert all(s.reset_steps == 0 for s in execute().stages)
    trace = execute(acting=policies(place=Leave()))
    # The arm is not reset after the last step, because no skill follows.
    resets = [s.reset_steps > 0 for s in trace.stages]
    assert resets == [False, False, False, True] + [False] * 4
    without = execute(acting=policies(place=Leave()), rules=ExecutionRules(add_arm_rest=False))
    assert all(s.reset_steps == 0 for s in without.stages)


def test_a_plan_from_a_file_is_executed_in_its_order(tmp_path):
    path = tmp_path / "plan.txt"
    executor = Executor(KinematicHome(), policies(), reset_arm=Fold())
    lines = plan_text(executor.begin(make_episode()).plan).splitlines()
    path.write_text("\n".join([*lines[4:], *lines[:4]]))
    trace = execute(rules=ExecutionRules(plan_file=path))
    assert trace.success and [s.target for s in trace.stages][::4] == [1, 0]
    path.write_text("\n".join(lines[:4]))
    with pytest.raises(RunError, match="does not hold after all 4 steps"):
        execute(rules=ExecutionRules(plan_file=path))


def test_the_policy_that_resets_the_arm_depends_on_the_next_skill():
    before_pick, otherwise = Fold(), Fold()
    trace = execute(reset_arm=otherwise, reset_before={"pick": before_pick})
    assert [s.skill for s in trace.stages] == ["navigate", "pick", "navigate", "place"] * 2
    assert (before_pick.begun, otherwise.begun) == (2, 5)


def test_a_stop_of_navigation_beyond_nav_stop_within_m_is_ignored():
    class StopEarly(Drive):
        def act(self, world, depth=None):
            action = super().act(world, depth)
            action[layout.STOP] = 1.0
            return action

    acting = policies(navigate=StopEarly())
    ignoring = execute(acting=acting, rules=ExecutionRules(nav_stop_within_m=1.4))
    assert ended(ignoring)[0] == "success"
    assert ended(execute(acting=acting))[0] == "skill_stop"


def test_policies_with_a_depth_size_receive_depth():
    class Look(Drive):
        depth_size = (32, 48)

        def act(self, world, depth=None):
            assert depth.shape == (32, 48)
            return super().act(world, depth)

    assert execute(acting=policies(navigate=Look())).success


def test_snapshots_hold_the_home_at_every_handoff(tmp_path):
    home = KinematicHome()
    trace = execute(home, rules=ExecutionRules(snapshots=True))
    assert sorted(trace.snapshots) == list(range(len(trace.stages) + 1))
    save_snapshots(tmp_path / "0.npz", trace.snapshots)
    loaded = {k: s for k, (s, _) in load_noted_snapshots(tmp_path / "0.npz").items()}
    for index, stage in enumerate(trace.stages):
        home.restore(0, loaded[index])
        assert tuple(home.base) == stage.before.base
        assert home.held == stage.before.held
        assert tuple(map(tuple, home.objects)) == stage.before.objects
    assert loaded[3].episode == trace.episode and loaded[3].engine == "kinematic"


def test_damaged_snapshot_file_is_a_user_error(tmp_path):
    trace = execute(rules=ExecutionRules(snapshots=True))
    path = tmp_path / "0.npz"
    save_snapshots(path, trace.snapshots)
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(UserError, match="not a snapshot file"):
        load_noted_snapshots(path)
    with pytest.raises(UserError, match="cannot read"):
        load_noted_snapshots(tmp_path / "none.npz")


def test_trace_is_strict_json_and_the_same_on_every_run():
    first = json.dumps(execute().to_json(), allow_nan=False)
    second = json.dumps(execute().to_json(), allow_nan=False)
    assert first == second
    record = json.loads(first)
    assert record["success"] is True and record["first_cause"] is None
    assert len(record["stages"]) == 8 and record["outcomes"][7]["name"] == "place obj_1"
    margin = record["stages"][0]["effects"]["robot_at(obj_0_003_cracker_box, robot_0)"]
    assert margin["holds"] is True and margin["unit"] == "m"


def test_the_hook_is_called_at_every_control_step_with_the_current_predicate():
    seen = []
    limits = going_on(wait_end_steps=3)
    executor = Executor(KinematicHome(), policies(), reset_arm=Fold(), limits=limits)
    trace = executor.run(
        make_episode(), lambda world, info: seen.append((int(world.step[0]), info))
    )
    assert [step for step, _ in seen] == list(range(1, trace.steps + 1))
    infos = [info for _, info in seen]
    assert {info.total for info in infos} == {8}
    assert [info.phase for info in infos[-4:]] == ["wait"] * 4
    drive = [info for info in infos if info.index == 0]
    assert drive[0].predicate == "robot_at(obj_0_003_cracker_box, robot_0)"
    starts = [info for info in infos if (info.phase, info.phase_step) == ("skill", 1)]
    assert [info.object for info in starts] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert drive[-1].margin.margin == pytest.approx(2.0 - 0.6, abs=0.06)
    assert [info.phase_step for info in drive] == list(range(1, len(drive) + 1))


def test_a_goal_that_already_holds_needs_no_stage():
    episode = make_episode(1, 1)
    there = dataclasses.replace(episode.objects[0], pos=episode.targets[0].goal)
    trace = execute(episode=dataclasses.replace(episode, objects=(there,)))
    assert trace.success and trace.stages == [] and trace.steps == 31


def test_missing_policy_is_a_user_error():
    acting = policies()
    del acting["place"]
    with pytest.raises(UserError, match="unknown value 'place'"):
        execute(acting=acting)
    with pytest.raises(UserError, match="reset_arm: add_arm_rest needs a policy"):
        execute(reset_arm=None)


def test_action_that_is_not_finite_is_a_user_error():
    class Broken(Drive):
        def act(self, world, depth=None):
            return np.full(layout.SIZE, np.nan)

    with pytest.raises(UserError, match="Broken returned"):
        execute(acting=policies(navigate=Broken()))


def test_within_a_plan_pick_cannot_release_its_object():
    class Release(Grab):
        def act(self, world, depth=None):
            action = super().act(world, depth)
            if world.held[0] >= 0:
                action[layout.GRIP] = -1.0
            return action

    assert execute(acting=policies(pick=Release())).stages[1].ended_by == "success"


def test_within_a_plan_place_cannot_grasp_its_released_object_again():
    class Retake(Put):
        def act(self, world, depth=None):
            action = super().act(world, depth)
            if world.held[0] < 0:
                action[layout.GRIP] = 1.0
            return action

    home = KinematicHome()
    assert execute(home, acting=policies(place=Retake())).stages[3].ended_by == "success"
    assert np.allclose(home.objects[0], [0, -2, 0.8], atol=0.03)


def test_a_skill_evaluated_by_geodesic_distance_may_be_a_step_of_a_plan():
    navigate, pointnav = registry.get("navigate"), registry.get("pointnav")
    spec = dataclasses.replace(
        pointnav,
        name="drive_up",
        gym_id=None,
        settings=pointnav.load_settings(),
        actions=("nav",),
        goal_of=navigate.goal_of,
    )
    free = random_base_pose(LAYOUT, np.random.default_rng(0))
    near = ObjectPlacement("003_cracker_box", (*free[:2], 0.8), (1.0, 0.0, 0.0, 0.0), "table_1")
    episode = dataclasses.replace(make_episode(1, 1, robot_start=free), objects=(near,))
    rules = ExecutionRules(carried_out_by={"nav": "drive_up"})
    with registry.registered(spec):
        trace = execute(
            acting=policies(drive_up=Quit()),
            episode=episode,
            rules=rules,
            thresholds=tables.thresholds(),
            limits=going_on(),
        )
    assert [stage.skill for stage in trace.stages][:2] == ["drive_up", "pick"]
    assert trace.stages[0].results["distance"].unit == "m"
