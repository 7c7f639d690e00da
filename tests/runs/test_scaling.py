"""Discrete-event simulation of ranks, tested against values computed by hand."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ranks

from benchmarks.scaling import __main__ as command
from benchmarks.scaling import ranks as measured
from benchmarks.scaling import sweeps
from benchmarks.scaling.cluster import AllReduce, Cluster, Durations, Workload
from benchmarks.scaling.sweeps import RULES, slow_ones
from tpsrl.errors import UserError
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.runtime import machine

NONE = RULES["none"]


def constant(*seconds: float) -> Durations:
    """Returns durations that are constant for each environment and equal on all ranks."""
    return lambda rank, seed: np.tile(np.array(seconds)[:, None], (1, 8))


def work(durations: Durations, **changes: Any) -> Workload:
    base = Workload(durations, num_envs=2, num_steps=4, minibatches=2)
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize(
    ("collector", "seconds"),
    [
        ("sync", 4 * 3.0),  # the slower environment at each step
        ("nover", 4 * 3.0),  # until the slower environment has four steps
        ("ver", 6.0),  # six steps of the faster environment, two of the slower
    ],
)
def test_the_collection_time_depends_on_the_collector(collector: str, seconds: float) -> None:
    course = Cluster(work(constant(1.0, 3.0), collector=collector), 1, NONE).run(1)
    assert course.steps.tolist() == [8]
    assert course.seconds.tolist() == pytest.approx([seconds])


def test_inference_takes_time_and_serves_all_environments_that_are_ready() -> None:
    own = work(constant(1.0, 1.0), collector="sync", inference_s=0.1, inference_each_s=0.05)
    course = Cluster(own, 1, NONE).run(1)
    assert course.collecting_s.tolist() == pytest.approx([4 * (0.2 + 1.0)])
    apart = dataclasses.replace(own, durations=constant(1.0, 1.01), collector="nover")
    # The first inference serves both; later, the second environment is ready during inference for
    # the first.
    assert Cluster(apart, 1, NONE).run(1).collecting_s.tolist() == pytest.approx(
        [0.2 + 1.0 + 0.15 + 1.01 + 0.15 + 1.01 + 0.15 + 1.01], abs=0.2
    )


def test_steps_in_progress_continue_during_learning() -> None:
    own = work(constant(1.0, 3.5), num_steps=2, minibatch_s=0.25)
    course = Cluster(own, 1, NONE).run(2)
    # Environment 0 has three steps by 3 s, environment 1 one step at 3.5 s. Learning lasts until
    # 4 s, when the fourth step of environment 0 is ready. Three more follow; the second step of
    # environment 1, after 3.5 s, is too late.
    assert course.collecting_s.tolist() == pytest.approx([3.5, 3.0])
    assert course.learning_s.tolist() == pytest.approx([0.5, 0.5])


def test_all_ranks_wait_for_the_slowest_rank() -> None:
    own = work(slow_ones(constant(1.0, 1.0), 4.0, every=3), minibatch_s=0.5)
    assert Cluster(own, 2, NONE).run(1).seconds.tolist() == pytest.approx([4.0 + 1.0])
    course = Cluster(own, 3, NONE).run(1)
    assert course.seconds.tolist() == pytest.approx([16.0 + 1.0])
    assert course.steps.tolist() == [24]


@pytest.mark.parametrize("name", ["60%", "80%", "marginal", "optimal"])
def test_a_slow_rank_stops_early_after_at_least_a_quarter(name: str) -> None:
    own = work(slow_ones(constant(1.0, 1.0), 3.0, every=3), num_steps=16, minibatch_s=0.5)
    course = Cluster(own, 3, RULES[name]).run(4)
    if name == "80%":  # 80% of three ranks means all of them
        assert course.steps.tolist() == [96] * 4
        return
    last = slice(0 if name == "60%" else 1, None)
    # After 16 s the other ranks have 32 steps, and the slow rank has 5 in each of two environments.
    # Because of whole steps and seconds, 70 steps in 15 s may be slightly better.
    early = 14.0 if name == "optimal" else 16.0
    assert (course.collecting_s[last] >= early).all() and (course.collecting_s[last] <= 16.0).all()
    fewest = 4 * early + 8
    assert (course.steps[last] >= fewest).all() and (course.steps[last] <= 64 + 12).all()
    assert course.rate(1) > 2.0 * Cluster(own, 3, NONE).run(4).rate(1)


@pytest.mark.parametrize("name", ["60%", "marginal", "optimal"])
def test_a_quarter_of_every_rank_is_awaited(name: str) -> None:
    own = work(slow_ones(constant(1.0, 1.0), 8.0, every=3), num_steps=16, minibatch_s=0.5)
    course = Cluster(own, 3, RULES[name]).run(3)
    assert course.collecting_s[1:].min() > 8.0 * 4 - 16.1  # the last steps may begin before
    assert (course.steps[1:] >= 64 + 8).all()


def test_smaller_rollouts_shorten_learning_unless_refilled() -> None:
    own = work(slow_ones(constant(1.0, 1.0), 3.0, every=2), num_steps=16, minibatch_s=1.0)
    half = PreemptionSettings("share", 0.5)
    assert Cluster(own, 2, half).run(2).learning_s.tolist() == [2.0, 2.0]
    cut = dataclasses.replace(own, refill=False, minibatches=1)
    alone = Cluster(dataclasses.replace(cut, durations=constant(1.0, 1.0)), 1, half)
    assert alone.run(1).learning_s.tolist() == [1.0]
    # The rank with a full rollout determines the time.
    assert Cluster(cut, 2, half).run(1).learning_s.tolist() == [1.0]


def test_the_time_of_averaging_depends_on_latency_and_bytes() -> None:
    link = AllReduce(1e-3, 100.0, 1000.0, 4, 100.0)
    assert link.seconds(1) == 0.0
    assert link.seconds(2) == pytest.approx(2e-3 + 0.1)
    assert link.seconds(4) == pytest.approx(4e-3 + 0.15)
    assert link.seconds(8) == pytest.approx(6e-3 + 1.75)
    own = work(constant(1.0, 1.0), all_reduce=link)
    assert Cluster(own, 8, NONE).run(1).learning_s.tolist() == pytest.approx([2 * 1.756])


def test_durations_of_a_rank_do_not_depend_on_the_size_of_the_cluster() -> None:
    own = sweeps.ddppo(heterogeneous=True)
    for rank in range(3):
        np.testing.assert_array_equal(own.durations(rank, 5), own.durations(rank, 5))
    assert not np.array_equal(own.durations(0, 5), own.durations(1, 5))
    first = [Cluster(own, 1, NONE, seed=4).run(3).seconds.tolist() for _ in range(2)]
    assert first[0] == first[1]


def test_other_collectors_are_refused() -> None:
    with pytest.raises(UserError, match="collector: unknown value 'overlap'"):
        Cluster(work(constant(1.0), collector="overlap"), 1, NONE)


# -- what the papers report --------------------------------------------------------------------


def speedup(own: Workload, name: str, ranks: int) -> float:
    return sweeps.sweep(own, RULES[name], [ranks], seeds=1).speedup[0]


def test_equal_gpus_scale_nearly_linearly_and_unequal_only_with_preemption() -> None:
    """Compares with figure 4 of DD-PPO, on 32 GPUs."""
    alike, unlike = sweeps.ddppo(heterogeneous=False), sweeps.ddppo(heterogeneous=True)
    assert speedup(alike, "60%", 32) > 0.85 * 32
    assert speedup(unlike, "none", 32) < 0.6 * 32
    found = {name: speedup(unlike, name, 32) for name in ("60%", "optimal", "marginal")}
    assert found["60%"] > 1.3 * speedup(unlike, "none", 32)
    assert min(found["optimal"], found["marginal"]) > found["60%"]


def test_one_gpu_is_as_fast_as_in_table_1_of_ver() -> None:
    for collector, rate in {"sync": 174, "nover": 327, "ver": 428}.items():
        row = sweeps.sweep(sweeps.ver(collector), RULES["none"], [1], seeds=1)
        assert row.alone == pytest.approx(rate, rel=0.05)


class Forking:
    """Stand-in for `multiprocessing` that starts the processes of ranks."""

    @staticmethod
    def get_context(kind: str) -> type["Forking"]:
        assert kind == "spawn"
        return Forking

    Process = ranks.Process


# -- the command -------------------------------------------------------------------------------


def test_the_command_simulates_and_writes_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["ranks=0", "simulate=8", "seeds=1", f"out={tmp_path}"])
    report = json.loads((tmp_path / "scale.json").read_text())
    assert (tmp_path / "scale.png").stat().st_size > 10_000
    rows = report["papers"]["ddppo"]["homogeneous"]
    assert list(rows) == ["none", "80%", "60%", "optimal", "marginal"]
    assert rows["60%"]["ranks"] == [1, 2, 4, 8]
    shown = capsys.readouterr().out
    assert "homogeneous" in shown and "7.3" in shown


def test_the_command_measures_ranks_and_simulates_the_same_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured, "multiprocessing", Forking)
    arguments = ["ranks=2", "slow=3", "rules=none,marginal", "num_envs=1", "num_steps=4"]
    arguments += ["rollouts=2", "turns=1", "warm_up=1", "simulate=0", "seeds=1", f"out={tmp_path}"]
    command.main(arguments)
    report = json.loads((tmp_path / "scale.json").read_text())
    assert not (tmp_path / "scale.png").exists()
    for name in ("none", "marginal"):
        row = report["measured"]["rules"][name]
        assert row["rollouts"] == 2 and row["samples_per_s"] > 0.0
        assert report["simulated"]["rates"][name] > 0.0
        assert len(row["shares"]) == 2 and max(row["shares"]) <= 1.0
    assert report["measured"]["rules"]["none"]["shares"] == [1.0, 1.0]
    assert report["measured"]["all_reduce_s"] > 0.0


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("rules=none,70%", "rules: unknown value '70%'"),
        ("collector=overlap", "collector: unknown value 'overlap'"),
        ("ranks=1", "ranks: one rank is never preempted; must be 0 or at least 2, got 1"),
        ("rules=none,none", "rules: none,none contains a duplicate"),
        ("ranks=0 simulate=0", "simulate: with ranks=0 there is nothing to do; nearest: 1"),
        ("num_envs=1 num_steps=1", "num_steps: a rollout of 1 step is less than 2 mini-batches"),
        ("num_steps=1000000000000", "num_steps: 1000000000000 is out of range"),
        ("slow=1e15", "0.0 is out of range, must be between 1 and 1000"),
        ("ranks=900 num_envs=1", "ranks: 900 with their environments are"),
        ("ranks=2 num_envs=1024", "more than 1024 processes; nearest: 511"),
        ("ranks=100 num_envs=9", "num_envs: 9 needs 17.7 GiB of memory"),
    ],
)
def test_the_command_refuses_invalid_settings(
    argument: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "memory_bytes", lambda: 16.0 * 2**30)
    with pytest.raises(UserError) as error:
        command.main([*argument.split(), f"out={tmp_path / 'made'}"])
    assert message in str(error.value)
    assert not (tmp_path / "made").exists()
