import math

import pytest
import torch

from tpsrl.rl.learning.guarded_adam import GuardedAdam


def parameters(seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"weight": (3, 4), "bias": (3,)}
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def feed(adam: GuardedAdam, own: dict[str, torch.Tensor], steps: int = 1, seed: int = 1) -> None:
    """Takes `steps` steps with random gradients."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for tensor in own.values():
            tensor.grad = torch.randn(tensor.shape, generator=generator)
        adam.step()


def everything(adam: GuardedAdam, own: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return adam.state_dict() | {name: tensor.clone() for name, tensor in own.items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_steps_equal_adam_written_by_hand() -> None:
    value = torch.tensor(0.5, dtype=torch.float64)
    adam = GuardedAdam({"x": value}, 0.1, eps=1e-5)
    x, first, second = 0.5, 0.0, 0.0
    for step in range(1, 30):
        gradient = math.sin(step)
        value.grad = torch.tensor(gradient, dtype=torch.float64)
        adam.step()
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        x -= 0.1 * first / (1 - 0.9**step) / (math.sqrt(second / (1 - 0.999**step)) + 1e-5)
        assert float(value) == pytest.approx(x, rel=1e-9)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nothing_changes_from_the_first_bad_minibatch_on(bad: float) -> None:
    own = parameters()
    adam = GuardedAdam(own, 0.1)
    feed(adam, own, 3)
    before = everything(adam, own)
    adam.watch(torch.tensor(1.0), torch.tensor(bad))
    for tensor in own.values():
        tensor.grad = torch.full_like(tensor, bad)
    adam.step()
    adam.watch(torch.tensor(1.0))  # a later mini-batch that is finite
    feed(adam, own)
    assert adam.tripped == 1.0
    assert_same(everything(adam, own), before)


def test_steps_are_taken_again_after_a_reset() -> None:
    own = parameters()
    adam = GuardedAdam(own, 0.1)
    adam.watch(torch.tensor(math.nan))
    adam.reset()
    before = everything(adam, own)
    feed(adam, own)
    after = everything(adam, own)
    assert not any(torch.equal(before[name], after[name]) for name in before)


def test_finite_values_do_not_trip_the_guard() -> None:
    adam = GuardedAdam(parameters(), 0.1)
    adam.watch(torch.tensor(1e30), torch.tensor(-3.0))
    assert adam.tripped == 0.0


def test_another_guard_can_request_that_a_step_is_skipped() -> None:
    own = parameters()
    adam = GuardedAdam(own, 0.1)
    before = everything(adam, own)
    for tensor in own.values():
        tensor.grad = torch.ones_like(tensor)
    adam.step(skip=torch.ones(()))
    assert_same(everything(adam, own), before)
    adam.step(skip=torch.zeros(()))
    assert not torch.equal(own["bias"], before["bias"])


def test_a_new_learning_rate_applies_to_the_next_step() -> None:
    own = parameters()
    adam, before = GuardedAdam(own, 0.1), own["weight"].clone()
    adam.set_rates(0.0)
    feed(adam, own)
    assert adam.learning_rate == 0.0 and torch.equal(own["weight"], before)


def test_the_optimizer_continues_from_its_state_bit_for_bit() -> None:
    own, others = parameters(), parameters()
    adam, again = GuardedAdam(own, 0.1), GuardedAdam(others, 0.1)
    feed(adam, own, 5)
    again.load_state_dict(adam.state_dict())
    for name, tensor in own.items():
        others[name].copy_(tensor)
    feed(adam, own, 5, seed=2)
    feed(again, others, 5, seed=2)
    assert_same(everything(adam, own), everything(again, others))


def test_moments_are_named_after_their_parameters() -> None:
    names = set(GuardedAdam(parameters(), 0.1).state_dict())
    moments = ("step", "exp_avg", "exp_avg_sq")
    assert names == {f"{moment}.{name}" for moment in moments for name in ("weight", "bias")}
