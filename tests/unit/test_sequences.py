import numpy as np
import pytest
import torch
from random_rollouts import collected, sequences_of
from torch.nn.utils.rnn import pack_sequence

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.learning.sequences import Minibatch, minibatches, pack_order


def parts(rollout: Rollout, count: int, seed: int = 0) -> list[Minibatch]:
    return list(minibatches(rollout, count, torch.Generator().manual_seed(seed)))


def unpacked(part: Minibatch) -> list[list[int]]:
    """Returns the rows of each sequence of a packed mini-batch, by a plain loop."""
    rows, found = part.rows.tolist(), []
    for size in part.pack.batch_sizes.tolist():
        step, rows = rows[:size], rows[size:]
        found += [[] for _ in range(size - len(found))]
        for sequence, row in zip(found, step, strict=False):
            sequence.append(row)
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7, 60])
def test_every_step_is_in_one_minibatch_and_sizes_differ_by_one_at_most(count):
    rollout, _, _ = collected(rollouts=2)
    found = parts(rollout, count)
    sizes = [len(part.rows) for part in found]
    assert len(sizes) == count and max(sizes) - min(sizes) <= 1
    assert sorted(row for part in found for row in part.rows.tolist()) == sorted(rollout.rows)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_sequences_of_the_rollout_are_cut_only_between_minibatches(count):
    rollout, _, _ = collected(seed=4, rollouts=3)
    expected = sequences_of(rollout)
    tails = 0
    for part in parts(rollout, count):
        for sequence in unpacked(part):
            whole = next(s for s in expected if sequence[0] in s)
            start = whole.index(sequence[0])
            assert sequence == whole[start : start + len(sequence)]
            tails += start > 0
    assert tails <= count - 1
    if count == 1:
        found = sorted(unpacked(parts(rollout, 1)[0]))
        assert found == sorted(expected) and len(found) > 10


def test_memory_is_the_recorded_one_of_the_first_row_of_each_sequence():
    rollout, _, _ = collected(rollouts=2)
    for part in parts(rollout, 4):
        first = [sequence[0] for sequence in unpacked(part)]
        assert torch.equal(part.pack.memory, rollout.memory[torch.tensor(first)])
        begins = torch.tensor(rollout.is_first[first])
        assert not part.pack.memory[begins].any() and part.pack.memory[~begins].any()


def test_an_episode_starts_at_the_first_row_of_a_sequence_only():
    rollout, _, _ = collected(rollouts=2)
    for part in parts(rollout, 3):
        for sequence in unpacked(part):
            assert not rollout.is_first[sequence[1:]].any()


@pytest.mark.parametrize("num_envs", [1, 5])
def test_stale_rows_form_separate_sequences(num_envs):
    rollout, _, driver = collected(num_envs=num_envs)
    rollout.begin()
    driver.collect(rollout, count=25, fill=True)
    found = [sequence for part in parts(rollout, 2) for sequence in unpacked(part)]
    assert sorted(row for sequence in found for row in sequence) == sorted(rollout.rows)
    for sequence in found:
        assert len(set(rollout.generation[sequence])) == len(set(rollout.env[sequence])) == 1
    assert {int(rollout.generation[sequence[0]]) for sequence in found} == {1, 2}


def test_the_order_is_random_and_determined_by_the_generator():
    rollout, _, _ = collected()
    one, same, other = parts(rollout, 2, 5), parts(rollout, 2, 5), parts(rollout, 2, 6)
    assert all(torch.equal(a.rows, b.rows) for a, b in zip(one, same, strict=True))
    assert set(one[0].rows.tolist()) != set(other[0].rows.tolist())


@pytest.mark.parametrize("seed", range(20))
def test_pack_order_equals_that_of_torch(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, [2, 5, 40][seed % 3], size=rng.integers(1, 30))
    steps = torch.arange(lengths.sum()).split(lengths.tolist())
    by_length = sorted(steps, key=len, reverse=True)
    expected = pack_sequence(by_length)
    packed, batch_sizes, heads = pack_order(lengths)
    assert packed.tolist() == expected.data.tolist()
    assert batch_sizes.tolist() == expected.batch_sizes.tolist()
    assert heads == len(lengths)


def test_more_minibatches_than_steps_are_refused():
    rollout, _, _ = collected()
    with pytest.raises(ValueError, match="60 steps cannot be divided into 61"):
        parts(rollout, 61)


def test_without_memory_every_step_is_its_own_sequence_in_random_order():
    rollout, _, _ = collected(rollouts=2)
    rollout.memory = rollout.memory[:, :0]
    found = parts(rollout, 4)
    for part in found:
        assert part.pack.batch_sizes.tolist() == [len(part.rows)]
        assert part.pack.memory.shape == (len(part.rows), 0)
    together = torch.cat([part.rows for part in found]).tolist()
    assert sorted(together) == sorted(rollout.rows)
    neighbours = np.abs(np.diff(together)) == 1
    assert neighbours.mean() < 0.2
