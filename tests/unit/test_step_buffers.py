import numpy as np
import pytest
from toy_vec_env import SPEC, ToyVecEnvFactory

from tpsrl.errors import RunError, UserError
from tpsrl.rl.envs.step_buffers import IDLE, READY, STEPPING, StepBuffers, check_finite
from tpsrl.rl.envs.vec_env import StepBatch

N = 5


def buffers() -> StepBuffers:
    return StepBuffers.blank(SPEC, N)


def batch(*rows: int, cut: tuple[int, ...] = ()) -> StepBatch:
    """Returns steps whose values encode their row; the rows of `cut` are truncated."""
    number = np.array(rows, np.float32)
    truncated = np.isin(rows, cut)
    shown = {n: np.full((len(rows), *s), 0.0) + number.reshape(-1, *[1] * len(s))
             for n, s in SPEC.observations.items()}  # fmt: skip
    final = {n: 10 + v[truncated] for n, v in shown.items()} if truncated.any() else None
    return StepBatch(shown, number / 2, np.zeros(len(rows), bool), truncated, final)


@pytest.mark.parametrize("rows", [(0, 1, 2, 3, 4), (1, 2, 3), (4, 0, 2), (3,)])
def test_steps_are_taken_as_they_were_put(rows: tuple[int, ...]) -> None:
    filled = buffers()
    filled.put(np.array(rows), batch(*rows, cut=(2, 3)))
    done = filled.take(np.array(rows))
    assert done.reward.tolist() == [row / 2 for row in rows]
    assert done.observation["state"][:, 0].tolist() == list(rows)
    assert done.observation["depth"][:, 1, 2].tolist() == list(rows)
    assert done.truncated.tolist() == [row in (2, 3) for row in rows]
    assert done.final is not None
    assert done.final["state"][:, 0].tolist() == [10 + row for row in rows if row in (2, 3)]


def test_environments_are_listed_with_the_longest_ready_first() -> None:
    filled = buffers()
    filled.state[:] = [READY, IDLE, READY, STEPPING, IDLE]
    filled.ready_at[:] = [3, 2, 1, 0, 1]
    assert filled.ready().tolist() == [2, 0]
    assert filled.idle().tolist() == [4, 1]


def test_steps_survive_a_snapshot() -> None:
    filled, other = buffers(), buffers()
    filled.put(np.arange(N), batch(*range(N), cut=(0, 3)))
    filled.state[:] = [READY, READY, IDLE, STEPPING, IDLE]
    filled.ready_at[:] = range(N)
    arrays = filled.to_arrays()
    filled.put(np.arange(N), batch(4, 3, 2, 1, 0, cut=(0, 1, 2, 3, 4)))
    other.load(arrays)
    assert other.ready().tolist() == [0, 1]
    done = other.take(np.array([1, 0]))
    assert done.reward.tolist() == [0.5, 0.0]
    assert done.final is not None and done.final["state"][0, 0] == 10.0
    del arrays["final.depth"]
    with pytest.raises(UserError, match="snapshot: not a snapshot of these environments"):
        other.load(arrays)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_reported_with_its_environment(value: float) -> None:
    fields = {"state": np.zeros((3, 4)), "reward": np.zeros(3)}
    check_finite([4, 5, 6], [40, 50, 60], fields)
    fields["reward"][1] = value
    with pytest.raises(RunError, match=r"environment 5 \(start 50\): reward is not finite"):
        check_finite([4, 5, 6], [40, 50, 60], fields)


def test_avoided_starts_are_not_drawn() -> None:
    made = ToyVecEnvFactory()(range(1))
    made.avoid([0, 2])
    made.reset([0])
    assert made.start_index(0) == 1
    made.reset([0])
    assert made.start_index(0) == 3
