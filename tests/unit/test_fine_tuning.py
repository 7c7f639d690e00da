"""Fine-tuning by PPO: value-only updates, adaptive learning rate, and imitation loss."""

import copy
import dataclasses
import math

import pytest
import torch
from random_rollouts import SPEC, Driver, TinyPolicy, collected, make_rollout
from torch import nn

from tpsrl.errors import UserError
from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.envs.vec_env import EnvSpec
from tpsrl.rl.learning.guarded_adam import GuardedAdam
from tpsrl.rl.learning.ppo import PPO
from tpsrl.rl.learning.rates import adapted, desired_kl
from tpsrl.rl.learning.settings import PPOSettings
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.settings import PolicySettings

VALUE = ("value_trunk", "value_head")
STATE = EnvSpec({"state": (4,)}, SPEC.mask)
TINY = PolicySettings(encoder="state", state_width=6, lstm_layers=1, lstm_width=5)


def learnable(separate: bool = True) -> tuple[Rollout, ActorCritic]:
    """Returns a rollout and its policy, with or without a separate value network."""
    torch.manual_seed(0)
    policy = ActorCritic(SPEC, dataclasses.replace(TINY, separate_value=separate))
    policy.calls = []  # type: ignore[assignment]
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=0)
    rollout.begin()
    driver.collect(rollout)
    return rollout, policy


def changed(policy: nn.Module, before: dict[str, torch.Tensor]) -> set[str]:
    """Returns the names of the policy's modules that differ from `before`."""
    now = policy.state_dict()
    return {name.split(".")[0] for name in now if not torch.equal(now[name], before[name])}


# Value-only updates.


@pytest.mark.parametrize("separate", [True, False])
def test_value_only_updates_change_only_the_parameters_of_the_value(separate: bool) -> None:
    rollout, policy = learnable(separate)
    before = copy.deepcopy(policy.state_dict())
    ppo = PPO(policy, PPOSettings(learning_rate=1e-2))
    alpha = ppo.entropy.log_alpha.clone()
    losses = [ppo.update(rollout, value_only=True)["value_loss"] for _ in range(5)]
    assert changed(policy, before) == set(VALUE if separate else VALUE[1:])
    assert losses[-1] < losses[0]
    assert torch.equal(ppo.entropy.log_alpha, alpha)


def test_the_first_policy_step_after_value_only_updates_has_the_usual_length() -> None:
    """If Adam counted the steps without a gradient, the next would be three times as long."""
    rollout, policy = learnable()
    settings = PPOSettings(learning_rate=1e-3, epochs=1, minibatches=1, adam_eps=1e-12)
    ppo = PPO(policy, settings)
    for _ in range(20):
        ppo.update(rollout, value_only=True)
    tensors, _ = ppo.state_dict()
    waited = [n for n in tensors if n.startswith("adam.step.") and not n[10:].startswith(VALUE)]
    assert len(waited) > 4 and all(tensors[name] == 0.0 for name in waited)
    before = copy.deepcopy(policy.state_dict())
    ppo.update(rollout)
    moved = policy.trunk.state_dict()["recurrent.lstm.weight_ih_l0"]
    step = (moved - before["trunk.recurrent.lstm.weight_ih_l0"]).abs()
    assert float(step.max()) == pytest.approx(1e-3, rel=1e-3)


def test_the_value_may_have_its_own_learning_rate() -> None:
    moved = {}
    for rate in (None, 1e-5):
        rollout, policy = learnable()
        settings = PPOSettings(learning_rate=1e-3, value_learning_rate=rate, adam_eps=1e-12)
        before = copy.deepcopy(policy.state_dict())
        PPO(policy, dataclasses.replace(settings, epochs=1, minibatches=1)).update(rollout)
        now = policy.state_dict()
        moved[rate] = [
            float((now[name] - before[name]).abs().max())
            for name in ("value_head.weight", "action_head.mean.weight")
        ]
    assert moved[None] == pytest.approx([1e-3, 1e-3], rel=1e-2)
    assert moved[1e-5] == pytest.approx([1e-5, 1e-3], rel=1e-2)


def test_the_schedule_lowers_both_rates() -> None:
    adam = GuardedAdam({"a": torch.zeros(1), "b": torch.zeros(1)}, 1.0, apart=("b",))
    adam.set_rates(0.5, 0.25)
    assert adam.learning_rate == 0.5
    rollout, policy = learnable()
    ppo = PPO(policy, PPOSettings(schedule="linear", value_learning_rate=1e-3))
    ppo.update(rollout, progress=0.75)
    rates = [group["lr"] for group in ppo.optimizer._adam.param_groups]
    assert rates == pytest.approx([0.25 * 2.5e-4, 0.25 * 1e-3])


# Adaptive learning rate.


@pytest.mark.parametrize(
    ("kl", "may_rise", "expected"),
    [
        (0.021, True, 2.0),
        (0.019, True, 3.0),
        (0.006, True, 3.0),
        (0.004, True, 4.5),
        (0.004, False, 3.0),
        (0.021, False, 2.0),
        (math.nan, True, 3.0),
    ],
)
def test_the_rate_falls_above_twice_the_desired_kl_and_rises_below_half(
    kl: float, may_rise: bool, expected: float
) -> None:
    assert adapted(3.0, kl, 0.01, (1.0, 5.0), may_rise) == pytest.approx(expected)


def test_the_desired_kl_falls_by_equal_factors_if_final_kl_is_set() -> None:
    falling = [desired_kl(0.04, 0.0025, progress) for progress in (0.0, 0.25, 0.5, 1.0, 1.5)]
    assert falling == pytest.approx([0.04, 0.02, 0.01, 0.0025, 0.0025])
    assert desired_kl(0.04, None, 0.5) == 0.04
    rates = []
    for progress in (0.0, 1.0):
        rollout, policy, _ = collected()
        settings = PPOSettings(schedule="adaptive", desired_kl=1e3, final_kl=1e-9, epochs=1)
        ppo = PPO(policy, settings)
        ppo.update(rollout, progress)
        rates.append(ppo.rate)
    assert rates == pytest.approx([2.5e-4 * 1.5, 2.5e-4 / 1.5])


def test_an_adapted_rate_stays_in_its_bounds() -> None:
    assert adapted(1.1, 1.0, 0.01, (1.0, 5.0), True) == 1.0
    assert adapted(4.9, 0.0, 0.01, (1.0, 5.0), True) == 5.0


@pytest.mark.slow
def test_the_rate_settles_where_updates_have_the_desired_kl() -> None:
    """The initial learning rate is far too high, or far too low."""
    for first in (0.2, 1e-6):
        rollout, policy, driver = collected()
        settings = PPOSettings(
            learning_rate=first, schedule="adaptive", rate_max=1.0, rate_min=1e-7, epochs=2
        )
        ppo, kls = PPO(policy, settings), []
        for _ in range(30):
            kls.append(ppo.update(rollout)["kl"])
            rollout.begin()
            driver.collect(rollout)
        assert 0.001 < sum(kls[-10:]) / 10 < 0.02
        assert kls[0] > 0.05 or kls[0] < 1e-5


def test_the_rate_may_fall_after_each_epoch_but_rise_only_after_the_last() -> None:
    rates = []
    for desired in (1e-9, 1e3):
        rollout, policy, _ = collected()
        settings = PPOSettings(schedule="adaptive", desired_kl=desired, epochs=3)
        ppo = PPO(policy, settings)
        assert ppo.update(rollout)["learning_rate"] == 2.5e-4
        rates.append(ppo.rate)
    assert rates == pytest.approx([2.5e-4 / 1.5**3, 2.5e-4 * 1.5])


def test_value_only_updates_do_not_adapt_the_learning_rate() -> None:
    rollout, policy = learnable()
    ppo = PPO(policy, PPOSettings(schedule="adaptive"))
    ppo.update(rollout, value_only=True)
    assert ppo.rate == 2.5e-4


def test_an_adapted_rate_is_restored_within_its_bounds() -> None:
    rollout, policy, _ = collected()
    settings = PPOSettings(schedule="adaptive", desired_kl=1e3)
    ppo = PPO(policy, settings)
    ppo.update(rollout)
    state = ppo.state_dict()
    again = PPO(TinyPolicy(), settings)
    again.load_state_dict(*state)
    assert again.rate == ppo.rate == pytest.approx(3.75e-4)
    lower = PPO(TinyPolicy(), dataclasses.replace(settings, rate_max=3e-4))
    lower.load_state_dict(*state)
    assert lower.rate == 3e-4


def test_a_rate_outside_its_bounds_is_refused() -> None:
    with pytest.raises(UserError, match=r"^learning_rate: 0.1 is not between 1e-06 and 0.001 "):
        PPO(TinyPolicy(), PPOSettings(schedule="adaptive", learning_rate=0.1))


# Imitation.


class Expert:
    """Imitation loss that pulls the head's bias to `wanted`, and counts its calls in `calls`."""

    def __init__(self, wanted: float) -> None:
        self.wanted, self.calls = wanted, 0

    def __call__(self, policy: TinyPolicy) -> torch.Tensor:
        self.calls += 1
        return (policy.head.bias - self.wanted).square().mean()


def test_the_imitation_loss_is_added_with_its_decayed_weight() -> None:
    gradients = []
    for coefficient in (0.0, 0.5):
        rollout, policy, _ = collected()
        settings = PPOSettings(
            epochs=1, minibatches=1, max_grad_norm=0.0, imitation_coef=coefficient
        )
        bias = policy.head.bias.detach().clone()
        ppo = PPO(policy, settings, imitation=Expert(3.0))
        found = ppo.update(rollout, progress=0.25)
        gradients.append(10 * ppo.state_dict()[0]["adam.exp_avg.head.bias"])
    assert found["imitation_loss"] == pytest.approx(float((bias - 3.0).square().mean()))
    assert found["imitation_coef"] == pytest.approx(0.25)  # half way to `imitation_until`
    expected = 0.25 * 2.0 * (bias - 3.0) / len(bias)
    torch.testing.assert_close(gradients[1] - gradients[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_imitation_pulls_the_policy_towards_the_expert_and_ends() -> None:
    rollout, policy, _ = collected()
    expert = Expert(2.0)
    settings = PPOSettings(learning_rate=1e-2, imitation_coef=100.0, imitation_until=0.5)
    ppo = PPO(policy, settings, imitation=expert)
    far = float((policy.head.bias.detach() - 2.0).abs().mean())
    for _ in range(20):
        ppo.update(rollout)
    assert float((policy.head.bias.detach() - 2.0).abs().mean()) < 0.7 * far
    calls = expert.calls
    assert calls == 20 * 3 * 2
    assert ppo.update(rollout, progress=0.5)["imitation_coef"] == 0.0
    assert ppo.update(rollout, value_only=True)["imitation_loss"] == 0.0
    assert expert.calls == calls


def test_an_imitation_loss_that_is_not_finite_changes_nothing() -> None:
    rollout, policy, _ = collected()
    before = copy.deepcopy(policy.state_dict())
    ppo = PPO(policy, PPOSettings(imitation_coef=1.0), imitation=Expert(math.nan))
    with pytest.raises(Exception, match="not finite"):
        ppo.update(rollout)
    assert changed(policy, before) == set()


def test_imitation_without_demonstrations_is_refused() -> None:
    with pytest.raises(UserError, match=r"^imitation_coef: there are no demonstrations"):
        PPO(TinyPolicy(), PPOSettings(imitation_coef=0.1))
