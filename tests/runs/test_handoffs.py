"""Handoff studies find planted causes, and find none without a planted cause."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx
import numpy as np
import planted
import pytest
from full_report import full_report
from msgspec import structs
from planted import DRAWER, Faults, Home, chance

from eval.analysing.bounds import decode
from eval.analysing.schema import MatrixRow, RepairRow, Report
from eval.handoffs import blame, matrix, propagation, ranking
from eval.handoffs.design import choose_coalitions, choose_players
from eval.handoffs.findings import findings
from eval.handoffs.repairs import KINDS, Repair, starts_on
from eval.handoffs.shapley import shapley
from eval.handoffs.statistics import bootstrap, clustered, holm, sign_flip
from eval.handoffs.study import OTHERS, Players, Study
from eval.handoffs.summary import Analysis, with_blame
from eval.handoffs.worlds import marker_position, open_before
from planner.containers import containers
from planner.execution.execution import Execution
from planner.execution.marks import Mark
from planner.execution.trace import Stage
from planner.plan import Plan, PlanStep
from skills import registry
from skills.core.interface import SkillGoal
from skills.starts.start import Start
from tpsrl.world.episode import Episode, ObjectPlacement
from tpsrl.world.state import JOINTS

CHAIN = (("navigate", "pick"), ("pick", "navigate"), ("navigate", "place"), ("place", "end"))
PLAYERS = Players({"state": CHAIN[:3], "effect": CHAIN})
OPENED = dict.fromkeys(JOINTS, 0.45)
SHARE = 0.4  # of the runs in which a planted fault occurs


def study(
    faults: Faults,
    count: int = 60,
    *,
    home: Home | None = None,
    episodes: Sequence[Episode] | None = None,
    players: Players = PLAYERS,
    hard_starts: bool = False,
    seed: int = 0,
    repairs: bool = True,
    **limits: int,
) -> list[dict[str, Any]]:
    home = home or Home()
    executor = planted.executor(home, faults, hard_starts, **limits)
    one = Study(executor, players, OPENED)
    every = {
        kind: range(1, 2 ** len(players.of[kind])) if repairs else ()
        for kind in ("state", "effect")
    }
    return [one.run(e, every) for e in episodes or planted.episodes(count, seed)]


def taxes(studies: Sequence[Mapping[str, Any]]) -> dict[str, MatrixRow]:
    return {f"{row.from_} {row.to}": row for row in matrix.by_skills(studies)}


def best(studies: Sequence[Mapping[str, Any]], players: Players = PLAYERS) -> RepairRow:
    return ranking.ranked(studies, players)[0]


def check_sums(studies: Sequence[Mapping[str, Any]], players: Players = PLAYERS) -> None:
    """Asserts that parts sum to the loss and Shapley shares to the gain of repairing everything."""
    found = propagation.propagation(studies)
    assert sum(part.value for part in found.parts) == pytest.approx(found.loss, abs=1e-12)
    assert found.product_isolated - found.loss == pytest.approx(found.measured, abs=1e-12)
    rows, whole = ranking.ranked(studies, players), ranking.repair_all(studies, players)
    for kind in ("state", "effect"):
        shares = sum(row.shapley for row in rows if row.kind == kind)
        assert shares == pytest.approx(whole[kind].gain, abs=1e-12)


def test_navigation_that_stops_short_is_a_state_fault_of_its_handoff() -> None:
    studies = study(Faults(short_m=0.4, short_share=SHARE))
    found = taxes(studies)
    for name in ("navigate pick", "navigate place"):
        row = found[name]
        assert row.significant and row.ci_low < SHARE < row.ci_high
        far = {e.dimension: e for e in row.errors}["distance"]
        assert far.median_before_success == pytest.approx(0.6, abs=0.02)
        assert far.median_before_failure > 0.9
    assert not found["pick navigate"].significant
    first = best(studies)
    assert (first.kind, first.from_) == ("state", "navigate") and first.ci_low > 0.0
    culprits = blame.set_up_by(studies)
    mine = [c for s, c in zip(studies, culprits, strict=True) if not s["success"]]
    assert set(mine) <= {"navigate", None} and mine.count("navigate") > 0.75 * len(mine)
    check_sums(studies)


def test_a_stop_with_the_back_to_the_goal_is_a_state_fault() -> None:
    studies = study(Faults(turned_share=SHARE))
    row = taxes(studies)["navigate pick"]
    assert row.significant and row.ci_low < SHARE < row.ci_high
    turned = {e.dimension: e for e in row.errors}["heading"]
    assert turned.median_before_success < 0.1 and turned.median_before_failure > 3.0
    assert (best(studies).kind, best(studies).from_) == ("state", "navigate")
    check_sums(studies)


def test_a_release_by_place_from_too_high_is_an_effect_fault() -> None:
    """The object rolls away from any start state: no handoff has a tax, Place lacks its effect."""
    studies = study(Faults(roll_share=SHARE))
    assert not any(row.significant for row in taxes(studies).values())
    first = best(studies)
    assert (first.kind, first.from_, first.to) == ("effect", "place", "end")
    assert first.ci_low < SHARE < first.ci_high
    assert {c for c in blame.set_up_by(studies)} == {None}
    check_sums(studies)


def test_a_policy_with_bad_observations_fails_from_any_start_state() -> None:
    studies = study(Faults(pick_fails=SHARE))
    found = taxes(studies)
    assert not any(row.significant for row in found.values())
    assert found["navigate pick"].isolated.ci_low < 1.0 - SHARE
    first = best(studies)
    assert (first.kind, first.from_, first.to) == ("effect", "pick", "navigate")
    assert first.ci_low < SHARE < first.ci_high
    check_sums(studies)


def test_an_object_that_slips_in_the_gripper_is_attributed_to_pick() -> None:
    studies = study(Faults(slip_share=SHARE), seed=1)
    row = taxes(studies)["navigate place"]
    assert row.significant and row.ci_low < SHARE < row.ci_high
    slip = {e.dimension: e for e in row.errors}["slip"]
    assert slip.median_before_success < 0.02 < 0.1 < slip.median_before_failure
    assert best(studies).kind == "state" and best(studies).ci_low > 0.0
    culprits = [c for c in blame.set_up_by(studies) if c is not None]
    assert set(culprits) == {"pick"} and len(culprits) > 10
    check_sums(studies)


def test_a_stretched_arm_appears_in_the_error_of_the_resting_arm() -> None:
    studies = study(Faults(arm_out_share=SHARE))
    row = taxes(studies)["navigate place"]
    assert row.significant and row.ci_low < SHARE < row.ci_high
    rest = {e.dimension: e for e in row.errors}["arm_rest"]
    assert rest.median_before_success < 0.1 < 0.3 < rest.median_before_failure
    assert best(studies).kind == "state"
    check_sums(studies)


def drawer_episodes(count: int) -> list[Episode]:
    """Returns episodes with an object in a closed drawer."""
    found = []
    for number, base in enumerate(planted.episodes(count, seed=7)):
        inside = containers(base.layout, DRAWER)[0]
        pos = tuple(float(v) for v in inside.pos)
        thing = ObjectPlacement("003_cracker_box", pos, (1.0, 0.0, 0.0, 0.0), "drawer_right_top")
        name = f"drawer/{number}"
        changes = {"id": name, "scenario": "set_table", "objects": (thing, base.objects[1])}
        found.append(dataclasses.replace(base, **changes))
    return found


def creeping(home: Home) -> None:
    """Closes the drawer again after it has been open for three steps, in some episodes."""
    home.memory[2] = home.memory[2] + 1 if home.joints[JOINTS.index(DRAWER)] > 0.0 else 0
    if home.memory[2] == 3 and chance(home.episode, "creeps").random() < SHARE:
        home.slide(DRAWER, 0.0)


def test_a_drawer_that_closes_by_itself_is_an_effect_lost_on_the_way() -> None:
    types = (
        ("navigate", "open_drawer"), ("open_drawer", "navigate"), *CHAIN,
    )  # fmt: skip
    players = Players({"state": types[:4], "effect": types[1:]})
    episodes = drawer_episodes(50)
    studies = study(Faults(), home=Home(creeping), episodes=episodes, players=players)
    row = taxes(studies)["navigate pick"]
    assert row.significant and row.ci_low < SHARE < row.ci_high
    first = best(studies, players)
    assert (first.kind, first.from_, first.to) == ("effect", "navigate", "pick")
    check_sums(studies, players)


def test_the_first_cause_of_a_lost_fact_names_the_fact_and_the_step() -> None:
    executor = planted.executor(Home(creeping), Faults(pick_fails=0.0, place_fails=0.0))
    traces = [executor.run(episode) for episode in drawer_episodes(40)]
    failed = [trace for trace in traces if not trace.success]
    assert 7 < len(failed) < 26
    for trace in failed:
        cause = trace.first_cause
        assert cause is not None
        assert (cause.name, cause.reason, cause.unit) == ("nav obj_0", "lost", "m")
        assert f"not closed_cab({DRAWER})" in cause.predicate and cause.margin < 0.0
        assert cause.step < trace.steps
    assert all(trace.first_cause is None for trace in traces if trace.success)


def test_a_detour_is_a_failure_by_time_used_by_navigate() -> None:
    # Alone, each step has enough time for a detour; in the whole plan it has not.
    faults, limits = Faults(detour_share=SHARE), {"episode_steps": 155}
    studies = study(faults, 30, repairs=False, **limits)
    executor = planted.executor(Home(), faults, **limits)
    traces = [executor.run(episode) for episode in planted.episodes(30)]
    steps = [[outcome["steps"] for outcome in trace.outcomes()] for trace in traces]
    found = propagation.propagation(studies, steps)
    late = [part for part in found.parts if part.kind == "time"]
    assert late and all(part.used_by == "navigate" for part in late)
    assert sum(part.value for part in late) > 0.3
    assert sum(part.value for part in found.parts) == pytest.approx(found.loss, abs=1e-12)


def test_exits_that_are_start_states_of_the_next_skill_have_no_significant_tax() -> None:
    """Hardly any of eight agents without handoff faults may have a significant tax."""
    found = [
        any(row.significant for row in matrix.by_skills(studies))
        for studies in (
            study(Faults(drawn_exits=True), 30, hard_starts=True, seed=seed, repairs=False)
            for seed in range(100, 108)
        )
    ]
    # Each result is wrong with probability 5% at most, three or more with 0.6%.
    assert sum(found) <= 2


def test_a_planted_tax_is_significant_in_the_null_setting() -> None:
    """The same agents with a fault have a significant tax, so the test above can fail."""
    faults = Faults(drawn_exits=True, slip_share=SHARE)
    studies = study(faults, 90, hard_starts=True, seed=100, repairs=False)
    assert taxes(studies)["navigate place"].significant


class Marks:
    """Intervention that takes a mark at every handoff."""

    def __init__(self) -> None:
        self.found: list[Mark] = []

    def before(self, execution: Execution, step: PlanStep | None) -> None:
        self.found.append(execution.mark())

    def grant(self, execution: Execution, step: PlanStep, stage: Stage) -> bool:
        return False


@pytest.mark.parametrize("after_timeout", [False, True])
@pytest.mark.parametrize("end_on_timeout", [False, True])
def test_an_episode_resumed_from_a_mark_ends_as_before(
    after_timeout: bool, end_on_timeout: bool
) -> None:
    faults = Faults(short_m=0.4, pick_fails=0.2)
    executor = planted.executor(Home(), faults, end_on_timeout=end_on_timeout)
    executor.rules = dataclasses.replace(executor.rules, after_timeout=after_timeout)
    outcomes = set()
    for episode in planted.episodes(12, num_targets=2):
        marks = Marks()
        trace = executor.begin(episode, intervention=marks).run()
        outcomes.add(trace.success)
        others = []
        for mark in reversed(marks.found):
            again = mark.resumed().run()
            assert again.to_json() == trace.to_json()
            others.append(again.other)
        known = [trace.other, *others]
        assert trace.other is None or len({id(other) for other in known}) == len(known)
    assert outcomes == {True, False}


def test_repairing_an_episode_does_not_affect_the_study_of_the_next() -> None:
    faults = Faults(short_m=0.4)
    together = study(faults, 6)
    alone = [study(faults, episodes=[episode])[0] for episode in planted.episodes(6)]
    assert together == alone


def test_equal_continuations_are_executed_once() -> None:
    """An episode without missing effects has no effect to grant in any coalition."""
    studies = study(Faults(pick_fails=0.0, place_fails=0.0), 3)
    singles = study(Faults(pick_fails=0.0, place_fails=0.0), 3, repairs=False)
    for whole, single in zip(studies, singles, strict=True):
        outcomes = whole["repairs"]["effect"].values()
        assert all(outcome == {"success": True, "applied": 0} for outcome in outcomes)
        continued = whole["steps_run"] - single["steps_run"]
        assert continued <= 7 * whole["steps"]  # those of the seven coalitions by state


def test_shared_continuations_equal_separate_runs_of_every_coalition() -> None:
    """Every coalition, run separately from the start, has the outcome of the study."""
    chain = (*CHAIN[:3], ("place", "navigate"), CHAIN[3])
    players = Players({"state": chain[:4], "effect": chain})
    faults = Faults(pick_fails=0.1, place_fails=0.1, short_m=0.4, slip_share=0.1, roll_share=0.1)
    executor = planted.executor(Home(), faults, end_on_timeout=False)
    failed = 0
    for episode in planted.episodes(6, 3, num_targets=2):
        every = {kind: range(1, 2 ** len(players.of[kind])) for kind in KINDS}
        found = Study(executor, players, OPENED).run(episode, every, isolated=False)
        failed += not found["success"]
        plan = executor.begin(episode).plan
        for kind in KINDS if not found["success"] else KINDS[:1]:
            for coalition in every[kind]:
                repair = Repair(kind, players.types(kind, coalition, plan), OPENED)
                trace = executor.begin(episode, intervention=repair).run()
                outcome = {"success": trace.success, "applied": len(repair.applied)}
                assert found["repairs"][kind][str(coalition)] == outcome
    assert 1 < failed < 6


def test_an_effect_never_achieved_is_not_lost_at_a_later_handoff() -> None:
    """With timeouts ignored, the robot drives on without the object and Place cannot begin."""
    studies = study(Faults(pick_fails=SHARE, place_fails=0.0), 40, end_on_timeout=False)
    rows = {(r.kind, r.from_, r.to): r for r in ranking.ranked(studies, PLAYERS)}
    assert rows["effect", "pick", "navigate"].ci_low > 0.0
    assert rows["effect", "navigate", "place"].gain == 0.0
    assert rows["effect", "navigate", "place"].shapley == 0.0
    # Nor is a Place that cannot begin a handoff of Navigate.
    placed = taxes(studies)["navigate place"]
    carried = sum(study["stages"][1]["handed_over"] for study in studies)
    assert placed.n == carried < len(studies) and placed.after.mean == 1.0


def test_a_repaired_state_does_not_put_an_object_into_the_hand() -> None:
    """Place starts with a held object, an effect of Pick that no repaired state provides."""
    studies = study(Faults(pick_fails=1.0), 5, end_on_timeout=False)
    assert {row.gain for row in ranking.ranked(studies, PLAYERS) if row.kind == "state"} == {0}
    assert ranking.repair_all(studies, PLAYERS)["effect"].gain > 0.5


def test_a_step_without_a_valid_start_is_not_run_in_isolation() -> None:
    class Afar:
        num_objects = 3

        def towards(self, base: Episode, goal: Any, rng: Any) -> Any:
            return lambda attempt: Start(dataclasses.replace(base, robot_start=(9, 9, 0)), goal)

    executor = planted.executor(Home(), Faults(pick_fails=0.0, place_fails=0.0))
    executor.spec = lambda name: dataclasses.replace(registry.get(name), starts=Afar())
    (episode,) = planted.episodes(1)
    found = Study(executor, PLAYERS, OPENED).run(episode, {})
    alone = {stage["name"]: stage["isolated"] for stage in found["stages"]}
    assert alone == {"nav obj_0": True, "pick obj_0": None, "nav goal_0": True, "place obj_0": None}


def test_a_drawer_opened_and_closed_before_a_step_is_not_open() -> None:
    (episode,) = planted.episodes(1)
    plan = planted.executor(Home(), Faults()).begin(episode).plan
    facts = [("opened_cab", DRAWER), ("closed_cab", DRAWER), ("opened_cab", DRAWER)]
    steps = [dataclasses.replace(plan[0], index=i, adds=(f,)) for i, f in enumerate(facts)]
    found = [open_before(Plan(steps, plan.problem), index, {DRAWER: 0.4}) for index in range(4)]
    assert found == [{}, {DRAWER: 0.4}, {}, {DRAWER: 0.4}]


def test_skills_without_own_start_states_start_near_their_target() -> None:
    spec = dataclasses.replace(registry.get("open_drawer"), starts=object())
    (episode,) = drawer_episodes(1)
    rng = np.random.default_rng(0)
    starts = list(starts_on(spec, episode, SkillGoal(marker=DRAWER), rng))
    handle = marker_position(episode, DRAWER)[:2]
    assert starts and all(
        math.dist(start.episode.robot_start[:2], handle) < 2.1 for start in starts
    )
    assert not list(starts_on(spec, episode, SkillGoal(), rng))


def test_the_culprit_is_named_only_if_the_first_cause_is_at_the_break() -> None:
    studies = study(Faults(short_m=0.4, short_share=SHARE), 40, repairs=False)
    culprits = blame.set_up_by(studies)
    assert culprits.count("navigate") > 3

    def named(shift: int) -> list[str | None]:
        """Returns the named skills if first causes are `shift` stages after the break."""
        found = []
        for one in studies:
            result = results()[1]
            assert result.first_cause is not None
            stage = (blame.broken_at(one) or 0) + shift
            cause = dataclasses.replace(result.first_cause, stage=stage)
            found.append(dataclasses.replace(result, first_cause=cause))
        return [r.set_up_by for r in with_blame(found, Analysis(studies, PLAYERS, 0))]

    assert named(0) == culprits
    assert named(1) == [None] * len(studies)


# -- the arithmetic --------------------------------------------------------------------------------


def test_shapley_values_of_the_glove_game_are_correct() -> None:
    """One left glove, two right ones; a pair is worth 1 (Shapley and Shubik)."""
    worth = {c: np.array([float(bool(c & 1) and bool(c & 6))]) for c in range(8)}
    assert shapley(worth, 3)[:, 0] == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def test_shapley_values_are_the_means_over_all_orders() -> None:
    rng = np.random.default_rng(3)
    worth = {c: rng.random(5) for c in range(16)}
    expected = np.zeros((4, 5))
    orders = list(itertools.permutations(range(4)))
    for order in orders:
        inside = 0
        for player in order:
            expected[player] += (worth[inside | 1 << player] - worth[inside]) / len(orders)
            inside |= 1 << player
    assert np.allclose(shapley(worth, 4), expected)
    assert np.allclose(shapley(worth, 4).sum(axis=0), worth[15] - worth[0])


def test_holm_rejects_step_by_step() -> None:
    assert holm([0.04, 0.01, 0.03]) == [False, True, False]
    assert holm([0.02, 0.01, 0.04]) == [True, True, True]
    assert holm([]) == []


def test_sign_flip_is_the_exact_test_for_few_clusters() -> None:
    assert sign_flip([[1], [1], [1], [1], [1]]) == pytest.approx(2 / 32)
    assert sign_flip([[1], [-1], [0]]) == 1.0
    assert sign_flip([[1, -1], [0]]) == 1.0
    assert sign_flip([[1]] * 40) < 0.001


def test_correlated_pairs_of_one_episode_widen_the_interval() -> None:
    apart = clustered([[(False, True)]] * 10 + [[(True, True)]] * 30)
    together = clustered([[(False, True)] * 5] * 2 + [[(True, True)] * 5] * 6)
    assert apart.mean == together.mean == pytest.approx(0.25)
    assert apart.low is not None and together.low is not None
    assert together.low < apart.low
    assert clustered([]) == (None, None, None)


def test_the_bootstrap_interval_without_events_is_wide() -> None:
    assert bootstrap([0.0] * 30) == (0.0, -0.1, 0.1)
    mean, low, high = bootstrap([0.0, 1.0] * 50)
    assert mean == 0.5 and low is not None and high is not None
    assert 0.38 < low < 0.43 and 0.57 < high < 0.62
    assert bootstrap([]) == (None, None, None)


def hand_made(*outcomes: str) -> list[dict[str, Any]]:
    """Returns studies of two steps from strings: two outcomes, then the two isolated outcomes.

    The letters are S for success, F for failure and - for a step that was not reached.
    """
    studies = []
    for text in outcomes:
        stages = [
            {
                "name": f"step {index}",
                "skill": f"skill_{index}",
                "makes": "robot_at",
                "reached": text[index] != "-",
                "handed_over": text[index] == "S",
                "time": False,
                "isolated": text[index + 2] == "S",
                "errors": None,
                "mended": None,
            }
            for index in range(2)
        ]
        studies.append({"id": text, "success": text[:2] == "SS", "stages": stages, "steps": 1})
    return studies


def test_the_split_of_the_loss_agrees_with_a_case_counted_by_hand() -> None:
    # Isolated success is 3/4 and 3/4. Step 1 is reached in the first two studies: 2/2 isolated,
    # 1/2 in the plan.
    studies = hand_made("SSSS", "SFSS", "F-SF", "F-FS")
    found = propagation.propagation(studies)
    assert found.measured == 0.25
    assert found.product_isolated == pytest.approx(9 / 16)
    parts = {(part.kind, part.stage): part.value for part in found.parts}
    assert parts["selection", 1] == pytest.approx(0.75 * (0.75 - 1.0))
    assert parts["tax", 0] == pytest.approx((0.75 - 0.5) * 1.0)
    assert parts["tax", 1] == pytest.approx(0.5 * (1.0 - 0.5))
    assert sum(parts.values()) == pytest.approx(9 / 16 - 0.25)


def test_a_step_without_an_isolated_run_gives_no_tax() -> None:
    studies = hand_made("SFSS", "SFSF", "SSSS", "SSSS")
    for one in studies[2:]:
        one["stages"][1]["isolated"] = None
    studies[0]["stages"][1]["time"] = studies[1]["stages"][1]["time"] = True
    found = propagation.propagation(studies)
    parts = {(part.kind, part.stage): part.value for part in found.parts}
    assert sum(parts.values()) == pytest.approx(found.loss) == pytest.approx(0.0)
    # One of four has a differing pair, by lack of time; the other failed in isolation too.
    assert parts == {("selection", 1): pytest.approx(-0.25), ("time", 1): pytest.approx(0.25)}


def test_without_repairs_the_findings_state_that_none_was_run() -> None:
    studies = hand_made("SSSS", "SFSS")
    report = structs.replace(
        decode(full_report(), Report, "report"),
        propagation=propagation.propagation(studies),
        repairs=[],
    )
    assert findings(report)[2] == "No repair of a handoff was run."


def test_the_loss_is_split_for_the_most_frequent_plan() -> None:
    one, other, third = hand_made("SSSS", "SFSS", "SSSS")
    third["stages"] = third["stages"][:1]
    found = propagation.propagation([third, one, other])
    assert found.episodes == 2 and found.measured == 0.5
    assert found.product_isolated == 1.0 and found.loss == 0.5
    assert [(part.kind, part.stage, part.value) for part in found.parts] == [("tax", 1, 0.5)]


def test_the_flow_ends_every_episode_in_exactly_one_end() -> None:
    from eval.handoffs.flow import FAILED, SUCCEEDED, flow

    graph = flow(results())
    assert nx.is_directed_acyclic_graph(graph)
    into = {
        end: sum(d["share"] for _, _, d in graph.in_edges(end, data=True))
        for end in (FAILED, SUCCEEDED)
    }
    assert into == pytest.approx({FAILED: 0.75, SUCCEEDED: 0.25})
    for node in graph:
        flows = [
            sum(d["share"] for *_, d in edges)
            for edges in (graph.in_edges(node, data=True), graph.out_edges(node, data=True))
        ]
        assert graph.nodes[node]["share"] == pytest.approx(max(flows))


def results() -> list[Any]:
    from eval.analysing.results import EpisodeResult, StageResult
    from planner.execution.trace import Cause

    found = []
    for number in range(4):
        done = number == 0
        skills = ("navigate", "pick", "navigate", "place")
        stages = tuple(
            StageResult(f"{s} {i}", s, True, done or i < number, done, "", 1, 10)
            for i, s in enumerate(skills)
        )
        cause = Cause(
            number, stages[number].name, stages[number].skill, "p(obj_0)", -1.0, "m", "timeout", 5
        )
        found.append(
            EpisodeResult(
                f"e{number}",
                "l",
                done,
                "stop",
                100,
                1,
                1,
                1,
                stages,
                None if done else cause,
                0.0,
                0.0,
            )
        )
    return found


def test_players_are_the_handoffs_after_which_chains_break_most() -> None:
    three = choose_players(results(), 3)
    assert three.of["state"] == (("navigate", "pick"), ("pick", "navigate"), ("navigate", "place"))
    two = choose_players(results(), 2)
    assert two.of["state"][1] == OTHERS == two.of["effect"][1]


def test_coalitions_stay_within_the_budget() -> None:
    players = choose_players(results(), 3)
    for budget in (0, 1000, 2000, 4000, 10_000):
        runs = choose_coalitions(results(), players, budget)
        states = sum(100 * len(run["state"]) for run in runs)
        granted = [bool(run["effect"]) for run in runs]
        assert granted == sorted(granted, reverse=True)  # the first episodes, failed or not
        assert states + 300 * sum(granted[1:]) <= budget
        assert any(granted) == (budget > 0)
    assert all(len(run["state"]) == 7 and run["effect"] for run in runs)


def test_a_goal_lost_after_all_steps_is_assigned_to_the_last_handoff() -> None:
    done = results()[0]
    lost = [dataclasses.replace(done, success=False)] * 3
    assert choose_players(lost, 1).of["effect"] == (OTHERS,)
    assert choose_players(lost, 2).of["effect"] == (("place", "end"), OTHERS)
