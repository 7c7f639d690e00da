"""Preemption of ranks that collect slowly."""

import dataclasses
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks
from test_group import ENVS, STEPS, learned, settings
from torch import distributed
from toy_vec_env import ToyVecEnvFactory

from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.rl.collection import preemption
from tpsrl.rl.collection.preemption import (
    NoPreemption,
    Pace,
    Preempted,
    best_steps,
    outweighs,
)
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.distributed.group import Alone, Group
from tpsrl.rl.envs.vec_env import StepBatch, VecEnv
from tpsrl.rl.run.assembly import assemble
from tpsrl.training import loading

SIZE = ENVS * STEPS


def test_the_pace_of_an_environment_includes_its_waiting_time() -> None:
    env = np.array([0, 1, 0, 0])
    took = np.array([0.1, 0.5, 0.1, 0.2])
    ready = np.array([10.1, 10.5, 10.4, 10.9])
    pace = Pace.of(env, took, ready, 3, 8)
    # Environment 0 took 0.1 s, then 0.3 and 0.5 s between steps; 2 gave no step in 0.9 s.
    assert pace.seconds.tolist() == pytest.approx([0.3, 0.5, 0.9])
    assert pace.most == 8
    nothing = Pace.of(np.array([], int), np.array([]), np.array([]), 2, 8)
    assert nothing.seconds.tolist() == [1.0, 1.0]


def test_steps_arrive_at_their_paces_up_to_the_maximum() -> None:
    assert Pace(np.array([0.5, 0.2]), 6).arrivals().tolist() == pytest.approx(
        [0.2, 0.4, 0.5, 0.6, 0.8, 1.0]
    )


@pytest.mark.parametrize("seed", range(20))
def test_best_steps_maximizes_the_speed_over_all_numbers_of_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = 10.0 ** rng.uniform(-3.0, 0.0, rng.integers(1, 7))
    most, learning_s = int(rng.integers(1, 40)), float(rng.uniform(0.0, 5.0))
    paces = [Pace(np.array([s]), most) for s in seconds]

    def speed(steps: int) -> float:
        """Returns steps per second if the fastest way to `steps` is awaited."""
        when = sorted(s * k for s in seconds for k in range(1, most + 1))
        return steps / (when[steps - 1] + learning_s)

    found = best_steps(paces, learning_s)
    best = max(speed(steps) for steps in range(1, most * len(seconds) + 1))
    assert speed(found) == pytest.approx(best, rel=1e-6)


def test_a_rank_as_fast_as_the_others_is_not_stopped() -> None:
    alike = [Pace(np.full(4, 0.01), 64) for _ in range(5)]
    assert best_steps(alike, 0.2) == 5 * 64
    slower = [*alike[:4], Pace(np.full(4, 0.04), 64)]
    assert 4 * 64 <= best_steps(slower, 0.2) < 4 * 64 + 20
    assert best_steps(slower, 60.0) == 5 * 64  # with long learning, waiting costs little


def test_the_minimum_share_of_the_slowest_rank_is_always_awaited() -> None:
    """The other ranks should continue until then, so S is at least the steps they collect."""
    paces = [Pace(np.full(4, seconds), 64) for seconds in (0.01, 0.02, 0.03, 0.04, 0.2)]
    least = 16  # 0.8 s of the last rank; the others have all steps after 0.64 s
    early, late = best_steps(paces, 0.0), best_steps(paces, 0.0, least)
    assert early < 4 * 64 and late == 4 * 64 + least
    assert best_steps([Pace(np.full(4, 0.01), 64)] * 5, 0.2, least) == 5 * 64


@pytest.mark.parametrize("seed", range(20))
def test_at_a_steady_pace_the_marginal_rule_finds_the_best_number_of_steps(seed: int) -> None:
    rng = np.random.default_rng(seed)
    most, learning_s = 400, float(rng.uniform(0.05, 2.0))
    paces = [Pace(np.full(4, s), most) for s in 10.0 ** rng.uniform(-3.0, -1.0, 6)]
    arrivals = [pace.arrivals() for pace in paces]
    when = np.sort(np.concatenate(arrivals))
    steps = np.arange(1, len(when) + 1)
    whole = most * sum((when >= each[-1]).astype(int) for each in arrivals)
    stops = outweighs(steps, whole, when, learning_s)
    at = int(np.argmax(stops)) if stops.any() else len(when) - 1
    speed = steps / (when + learning_s)
    assert speed[at] >= 0.98 * speed.max()  # steps are discrete, not a rate


class Gathers(Alone):
    """Group of two ranks with equal pace, where the other rank learns for `learned_s`."""

    size = 2

    def __init__(self, learned_s: float) -> None:
        self._learned_s = learned_s

    def gather(self, thing: Any) -> list[Any]:
        return [thing, (thing[0], self._learned_s)]


@pytest.mark.parametrize("rule", ["optimal", "marginal"])
def test_waiting_for_other_ranks_does_not_count_as_learning_time(
    rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preemption, "_store", lambda group: distributed.HashStore())
    made = preemption.make(Gathers(0.25), PreemptionSettings(rule), SIZE)
    assert isinstance(made, Preempted)
    made.begin()
    made.plan(Pace(np.full(ENVS, 0.01), SIZE), 7.0)
    assert made._learning_s == 0.25


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "optimum"}, "preset.preempt: unknown value 'optimum'; did you mean 'optimal'"),
        ({"share": 0.0}, "preset.preempt_share: must be above 0 and at most 1, got 0.0"),
        ({"least": 1.5}, "preset.preempt_least: must be above 0 and at most 1, got 1.5"),
    ],
)
def test_settings_that_are_out_of_range_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        dataclasses.replace(PreemptionSettings(), **changes).check("preset.")


def test_a_single_rank_is_never_stopped() -> None:
    made = preemption.make(Alone(), PreemptionSettings("optimal"), SIZE)
    assert isinstance(made, NoPreemption) and not made.stops(SIZE)


@dataclasses.dataclass(frozen=True)
class Slow:
    """Environments that take `seconds` for a step of all."""

    seconds: float

    def __call__(self, env_ids: Sequence[int]) -> VecEnv:
        made = ToyVecEnvFactory()(env_ids)
        step = made.step

        def slowly(envs: Sequence[int], actions: np.ndarray) -> StepBatch:
            time.sleep(self.seconds)
            return step(envs, actions)

        made.step = slowly  # type: ignore[method-assign]
        return made


def collected(group: Group, rules: list[tuple[str, bool]]) -> list[list[dict[str, Any]]]:
    """Returns records of updates by each of the rules."""
    learned(Alone(), settings())  # loads everything beforehand
    return [collected_by(group, rule, refill) for rule, refill in rules]


def collected_by(group: Group, rule: str, refill: bool) -> list[dict[str, Any]]:
    """Returns records of three updates of two ranks, one of which is slow."""
    own = dataclasses.replace(settings(), preempt=rule, preempt_share=0.5, refill=refill)
    factory = Slow(0.05 if group.rank == 1 else 0.001)
    made = assemble(own, factory, group=group)
    records = []
    for version in range(3):
        group.any(False)  # all ranks begin together
        found = made.collector.collect(made.policy, made.rollouts, version)
        rollout = found.rollout
        metrics = made.ppo.update(rollout, version=version)
        pace = Pace.of(found.env, found.took_s, found.ready_at, ENVS, SIZE)
        made.preemption.plan(pace, 0.01)
        records.append({"fresh": rollout.num_fresh, "rows": len(rollout.rows), "kl": metrics["kl"]})
    made.collector.close()
    return records


def test_the_slower_rank_stops_early(tmp_path: Path) -> None:
    rules = [("share", True), ("optimal", True), ("marginal", True), ("share", False)]
    for (rule, refill), fast, slow in zip(
        rules, *ranks.run(2, collected, tmp_path, rules), strict=True
    ):
        assert [record["fresh"] for record in fast] == [SIZE] * 3
        first = 0 if rule == "share" else 1  # the first update has no measurements to plan by
        assert [record["fresh"] for record in slow[:first]] == [SIZE] * first
        for record in slow[first:]:
            assert SIZE / 4 <= record["fresh"] < SIZE
        for before, record in itertools.pairwise(slow):
            most = SIZE if refill else record["fresh"]
            assert record["rows"] <= most
            if refill and before["rows"] == SIZE:
                assert record["rows"] >= SIZE - ENVS
        assert [record["kl"] for record in fast] == [record["kl"] for record in slow]


def test_the_preset_of_the_dd_ppo_paper_has_its_settings() -> None:
    preset = loading.training(
        config.parse(["skill=pointnav", "preset=ddppo_paper", "depth=128"])
    ).preset
    assert (preset.preempt, preset.preempt_share, preset.preempt_least) == ("share", 0.6, 0.25)
    assert preset.ppo.equal_ranks and not preset.refill  # section 3: equal weight for all ranks
    assert (preset.num_envs, preset.num_steps) == (4, 128)
    assert (preset.ppo.epochs, preset.ppo.minibatches) == (2, 2)
    assert not preset.ppo.normalise_advantage
    assert preset.policy.encoder == "resnet50"
