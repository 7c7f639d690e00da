"""Validations with environments that fail."""

import dataclasses
import multiprocessing
import os
import signal
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from toy_vec_env import SPEC, ToyVecEnvFactory

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.pool import EnvPool
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.rl.envs.supervision import FaultTolerance
from tpsrl.rl.envs.vec_env import EpisodeStats
from tpsrl.rl.envs.worker_pool import WorkerEnvPool
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.rl.run.signals import SignalsNoted
from tpsrl.rl.run.validation import Stopped, Validated, Validation

COUNT, ENVS = 12, 4
BAD = 5  # in the second round, after some episodes have ended


@pytest.fixture(autouse=True)
def _failures_are_noticed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("supervision", "worker_pool"):
        monkeypatch.setattr(f"tpsrl.rl.envs.{module}.CHECK_EVERY_S", 0.02)


@pytest.fixture
def policy() -> ActorCritic:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    settings = PolicySettings(encoder="state", lstm_layers=1, lstm_width=8, state_width=8)
    return ActorCritic(SPEC, settings)


class Homes:
    """Builds and records the pools of a validation; only the first `failing` pools have trouble."""

    def __init__(self, factory: ToyVecEnvFactory, processes: int = 0, failing: int = 99) -> None:
        self.factory, self.processes, self.failing = factory, processes, failing
        self.made: list[list[int]] = []

    def __call__(self, starts: Sequence[int]) -> EnvPool:
        self.made.append(list(starts))
        size = min(ENVS, len(starts))
        factory = dataclasses.replace(self.factory, order=tuple(starts), stride=size)
        if len(self.made) > self.failing:
            factory = dataclasses.replace(factory, trouble="")
        if not self.processes:
            return SerialEnvPool(factory, size)
        tolerance = FaultTolerance(hang_s=0.5, max_failures=0)
        return WorkerEnvPool(factory, size, min(self.processes, size), tolerance)


def starts_of(found: Validated) -> list[int]:
    return [episode.start_index for episode in found.episodes]


def all_but(*lost: int) -> list[int]:
    return [start for start in range(COUNT) if start not in lost]


CAUSES = {
    "raise": "is on fire",
    "nan": "reward is not finite",
    "kill": "died: signal SIGKILL",
    "hang": "hung: ",
}


@pytest.mark.parametrize(
    ("trouble", "at", "processes"),
    [
        ("raise", "step", 0),
        ("nan", "step", 0),
        ("raise", "reset", 0),
        ("raise", "step", 2),
        ("kill", "step", 2),
        ("hang", "step", 2),
        ("hang", "reset", 2),
    ],
)
def test_a_failing_environment_loses_only_its_start(
    trouble: str, at: str, processes: int, policy: ActorCritic
) -> None:
    messages: list[str] = []
    homes = Homes(ToyVecEnvFactory(trouble, at=at, bad=(BAD,)), processes)
    validation = Validation(homes, COUNT, messages.append)
    found = validation.run(policy)
    assert found.lost == (BAD,) and not found.given_up
    assert starts_of(found) == all_but(BAD)
    assert CAUSES[trouble] in validation.lost[BAD]
    [last] = [line for line in messages if "is skipped" in line]
    assert last == f"validation: start {BAD} is skipped ({validation.lost[BAD]})"
    messages.clear(), homes.made.clear()
    again = validation.run(policy)
    assert (starts_of(again), again.lost) == (all_but(BAD), (BAD,))
    assert messages == [] and homes.made == [all_but(BAD)]


def test_several_failing_starts_are_identified(policy: ActorCritic) -> None:
    bad = (0, 3, 11)
    homes = Homes(ToyVecEnvFactory("raise", bad=bad))
    found = Validation(homes, COUNT, lambda text: None).run(policy)
    assert found.lost == bad and starts_of(found) == all_but(*bad)


def test_a_start_that_fails_only_once_is_not_lost(policy: ActorCritic) -> None:
    messages: list[str] = []
    homes = Homes(ToyVecEnvFactory("raise", bad=(BAD,)), failing=1)
    validation = Validation(homes, COUNT, messages.append)
    found = validation.run(policy)
    assert found.lost == () and starts_of(found) == list(range(COUNT))
    assert len(messages) == 1 and " starts are run again" in messages[0]
    assert validation.lost == {}


def test_a_validation_without_failures_uses_one_pool_and_is_reproducible(
    policy: ActorCritic,
) -> None:
    homes = Homes(ToyVecEnvFactory())
    validation = Validation(homes, COUNT, lambda text: None)
    assert validation.run(policy) == validation.run(policy)
    assert homes.made == [list(range(COUNT))] * 2


def test_a_validation_with_too_many_lost_starts_is_given_up_without_error(
    policy: ActorCritic,
) -> None:
    messages: list[str] = []
    validation = Validation(
        Homes(ToyVecEnvFactory("raise", bad=tuple(range(4, COUNT)))), COUNT, messages.append
    )
    found = validation.run(policy)
    assert found.given_up and set(found.lost) >= set(range(4, COUNT))
    assert messages[-1].startswith(
        f"validation aborted: {len(found.lost)} of {COUNT} starts are lost"
    )
    assert messages[-1].endswith("the training continues")
    assert "success" not in found.to_json()


def test_pools_that_cannot_be_built_do_not_end_the_training(policy: ActorCritic) -> None:
    messages: list[str] = []

    def make(starts: Sequence[int]) -> EnvPool:
        raise UserError("bank: its file is damaged")

    found = Validation(make, COUNT, messages.append).run(policy)
    assert found.given_up and len(found.lost) == COUNT
    assert "bank: its file is damaged" in messages[-1]


def test_errors_of_the_policy_are_not_attributed_to_environments(policy: ActorCritic) -> None:
    with torch.no_grad():
        policy.action_head.mean.bias.fill_(float("nan"))
    with pytest.raises(RunError, match="an action is not finite"):
        Validation(Homes(ToyVecEnvFactory()), COUNT, lambda text: None).run(policy)


def test_the_record_contains_lost_starts() -> None:
    episodes = [
        EpisodeStats(0, start, 10, 1.0, success, "success" if success else "timeout")
        for start, success in ((0, True), (1, False), (3, True))
    ]
    wanted: dict[str, Any] = {
        "episodes": 3,
        "success": pytest.approx(2 / 3),
        "return": 1.0,
        "length": 10.0,
        "ended": {"success": pytest.approx(2 / 3), "timeout": pytest.approx(1 / 3)},
        "lost": {"count": 1, "starts": [2]},
    }
    assert Validated(episodes, (2,)).to_json() == wanted
    for episode, spl in zip(episodes, (0.5, 0.0, float("nan")), strict=True):
        episode.metrics["spl"] = spl
    assert Validated(episodes, (2,)).to_json() == {**wanted, "metrics": {"spl": 0.25}}
    assert not Validated(episodes, (2, 4, 5)).given_up
    assert Validated(episodes, (2, 4, 5, 6)).given_up


@pytest.mark.parametrize("after", [0, 1])
def test_a_signal_ends_a_validation_while_its_processes_start(
    policy: ActorCritic, after: int
) -> None:
    homes = Homes(ToyVecEnvFactory(), processes=2)
    before = multiprocessing.active_children()

    def make(starts: Sequence[int]) -> EnvPool:
        if not after:
            os.kill(os.getpid(), signal.SIGTERM)
        pool = homes(starts)
        reset = pool.reset

        def interrupted() -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            reset()

        pool.reset = interrupted  # type: ignore[method-assign]
        return pool

    with SignalsNoted() as signals, pytest.raises(Stopped):
        Validation(make, COUNT, lambda text: None).run(policy, raising=signals.raising)
    assert len(homes.made) == after and signals.noted == "SIGTERM"
    assert multiprocessing.active_children() == before
    with SignalsNoted() as signals:
        signals.noted = "SIGTERM"  # before the block began
        with pytest.raises(Stopped), signals.raising(Stopped):
            raise AssertionError
