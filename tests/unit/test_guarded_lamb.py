import math

import numpy as np
import pytest
import torch

from tpsrl.errors import UserError
from tpsrl.rl.learning.guarded_lamb import GuardedLamb, trust_ratio
from tpsrl.rl.learning.rates import batch_factor
from tpsrl.rl.learning.settings import PPOSettings

DECAY, LEAST, RATE, EPS = 0.03, 0.05, 0.02, 1e-5


def parameters() -> dict[str, torch.Tensor]:
    """Returns a layer for each case of the trust ratio: plain, long, tiny, zero, one axis."""
    generator = torch.Generator().manual_seed(0)
    scales = {"plain": 1.0, "long": 40.0, "tiny": 1e-4, "zero": 0.0}
    made = {n: s * torch.randn(4, 3, generator=generator).double() for n, s in scales.items()}
    ones = {n: torch.randn(3, generator=generator).double() for n in ("bias", "head.log_std")}
    return made | ones


def slowly(weight: np.ndarray, gradients: list[np.ndarray], decay: float) -> np.ndarray:
    """Applies the paper's equations 1 and 2 element by element and returns the weight."""
    weight = weight.copy()
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    for step, gradient in enumerate(gradients, 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        direction = np.zeros_like(weight)
        for place in np.ndindex(weight.shape):
            mean = first[place] / (1 - 0.9**step)
            deviation = math.sqrt(second[place] / (1 - 0.999**step))
            direction[place] = mean / (deviation + EPS) + decay * weight[place]
        length = math.sqrt(sum(x**2 for x in weight.flat))
        ratio = 1.0
        if weight.ndim > 1 and length > 0:
            ratio = min(length, 10.0) / math.sqrt(sum(x**2 for x in direction.flat))
            ratio = min(max(ratio, LEAST), 1 / LEAST)
        weight -= RATE * ratio * direction
    return weight


def test_steps_equal_the_papers_equations_layer_by_layer() -> None:
    own = parameters()
    lamb = GuardedLamb(own, RATE, EPS, weight_decay=DECAY, trust_min=LEAST)
    before = {name: tensor.numpy().copy() for name, tensor in own.items()}
    generator = torch.Generator().manual_seed(1)
    given: dict[str, list[np.ndarray]] = {name: [] for name in own}
    for _ in range(6):
        for name, tensor in own.items():
            tensor.grad = torch.randn(tensor.shape, generator=generator).double()
            given[name].append(tensor.grad.numpy().copy())
        lamb.step()
    for name, tensor in own.items():
        decay = 0.0 if name.endswith("log_std") else DECAY
        np.testing.assert_allclose(tensor, slowly(before[name], given[name], decay), rtol=1e-6)


@pytest.mark.parametrize(
    ("weight", "direction", "expected"),
    [(2.0, 4.0, 0.5), (50.0, 4.0, 2.5), (1e-6, 4.0, 0.01), (9.0, 1e-3, 100.0), (0.0, 4.0, 1.0)],
)
def test_the_trust_ratio_is_limited_and_is_one_for_zero_weights(
    weight: float, direction: float, expected: float
) -> None:
    found = trust_ratio(torch.tensor([[weight, 0.0]]), torch.tensor([[0.0, direction]]), 0.01)
    assert float(found) == pytest.approx(expected)


def test_a_bad_mini_batch_changes_nothing() -> None:
    own = parameters()
    lamb = GuardedLamb(own, RATE)
    before = {name: tensor.clone() for name, tensor in own.items()}
    moments = lamb.state_dict()
    lamb.watch(torch.tensor(math.nan))
    for tensor in own.values():
        tensor.grad = torch.full_like(tensor, math.nan)
    lamb.step()
    assert all(torch.equal(own[name], before[name]) for name in own)
    assert all(torch.equal(tensor, moments[name]) for name, tensor in lamb.state_dict().items())


def test_the_batch_factor_is_a_root_that_decays_to_one_by_half_of_training() -> None:
    # 1,024 environments of 32 steps in two mini-batches: the root of 16384 / 256.
    found = [batch_factor(16_384, 256, progress) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert found == pytest.approx([8.0, 4.5, 1.0, 1.0, 1.0])
    assert batch_factor(16_384, 0, 0.1) == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"weight_decay": 0.1}, r"x\.weight_decay: 0\.1 needs x\.optimizer=lamb"),
        ({"base_batch": 256, "schedule": "adaptive"}, r"x\.base_batch: contradicts x\.schedule"),
    ],
)
def test_settings_that_have_no_effect_are_refused(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        PPOSettings(**changes).check("x.")
