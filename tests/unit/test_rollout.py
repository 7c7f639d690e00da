import numpy as np
import pytest
import torch
from random_rollouts import SPEC, Driver, Seen, TinyPolicy, collected, make_rollout

from tpsrl.errors import UserError
from tpsrl.rl.collection.rollout import Rollout


def by_env(rollout: Rollout) -> list[list[int]]:
    """Returns the fresh rows of each environment, in row order."""
    fresh = rollout.rows[: rollout.num_fresh]
    return [[int(r) for r in fresh if rollout.env[r] == e] for e in range(rollout.num_envs)]


def assert_row_is(rollout: Rollout, row: int, seen: Seen) -> None:
    for name, array in seen.observation.items():
        np.testing.assert_array_equal(rollout.observation[name][row], array)
    assert torch.equal(rollout.action[row], seen.action)
    assert torch.equal(rollout.previous_action[row], seen.previous_action)
    torch.testing.assert_close(rollout.memory[row], seen.memory)
    assert float(rollout.log_prob[row]) == seen.log_prob
    assert float(rollout.value[row]) == pytest.approx(seen.value, abs=1e-5)
    assert rollout.reward[row] == np.float32(seen.reward)
    assert rollout.terminated[row] == seen.terminated
    assert rollout.truncated[row] == (seen.truncated and not seen.terminated)
    assert rollout.is_first[row] == seen.is_first
    assert rollout.version[row] == seen.version


def assert_holds(rollout: Rollout, transitions: list[list[Seen]]) -> None:
    rows = by_env(rollout)
    assert [len(r) for r in rows] == [len(t) for t in transitions]
    for env, theirs in enumerate(transitions):
        for row, seen in zip(rows[env], theirs, strict=True):
            assert_row_is(rollout, row, seen)


# Rows.


@pytest.mark.slow
def test_every_step_appears_once_and_in_order_over_fifty_rollouts():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy, 6, 16), Driver(policy, 6, seed=3)
    carried = 0
    for number in range(50):
        rollout.begin()
        carried += len(rollout.in_flight)
        driver.collect(rollout, version=number)
        assert rollout.num_fresh == len(rollout.rows) == 16
        assert_holds(rollout, driver.completed(number))
    assert carried > 50  # so that lost rows would be noticed
    assert sum(len(history) for history in driver.seen) == 50 * 16 + len(rollout.in_flight)


def test_carried_rows_keep_the_version_and_probability_of_their_action():
    rollout, _policy, driver = collected()
    flying = rollout.in_flight
    rollout.begin()
    assert list(rollout.in_flight) == list(flying) and len(flying) > 0
    driver.collect(rollout, version=9)
    for env in flying:
        first, *rest = by_env(rollout)[env]
        assert rollout.version[first] == 0
        assert float(rollout.log_prob[first]) == driver.completed(1)[env][0].log_prob
        assert all(rollout.version[row] == 9 for row in rest)


def test_counts_are_the_fresh_rows_of_each_environment():
    rollout, _, driver = collected()
    assert list(rollout.counts()) == [len(seen) for seen in driver.completed(0)]
    assert len(set(rollout.counts())) > 1


def test_inputs_at_the_first_step_of_an_episode_are_zero():
    rollout, _, driver = collected()
    driver.end = 1.0
    rollout.begin()
    driver.collect(rollout)
    envs = [e for e in range(5) if e not in rollout.in_flight]
    assert envs
    previous, memory, start = rollout.inputs(envs)
    assert start.all() and not previous.any() and not memory.any()


# Bootstrap values.


def test_bootstrap_is_the_next_value_wherever_a_sequence_is_cut():
    rollout, _policy, driver = collected(size=80, rollouts=4)
    kinds = set()
    for rows, transitions in zip(by_env(rollout), driver.completed(3), strict=True):
        for row, seen in zip(rows, transitions, strict=True):
            truncated = seen.truncated and not seen.terminated
            if truncated or (row == rows[-1] and not seen.terminated):
                assert rollout.bootstrap[row] == pytest.approx(driver.following(seen), abs=1e-5)
                flying = driver.flying(seen.env)
                kinds.add("truncated" if truncated else "in flight" if flying else "waiting")
            else:
                assert rollout.bootstrap[row] == 0.0
    assert kinds == {"truncated", "in flight", "waiting"}


def test_finishing_evaluates_only_the_needed_values_in_one_batch():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=1)
    rollout.begin()
    observed = []

    def observe(envs):
        observed.extend(envs)
        return driver.observe(envs)

    driver.collect(rollout)
    done = [s for history in driver.completed(0) for s in history]
    truncated = sum(s.truncated and not s.terminated for s in done)
    policy.calls.clear()
    rollout.finish(policy, observe)
    last = [history[-1] for history in driver.seen if history[-1].rollout == 0]
    waiting = [seen.env for seen in last if not (seen.terminated or seen.truncated)]
    assert sorted(observed) == waiting
    assert policy.calls == [truncated + len(waiting)]


def test_finishing_evaluates_nothing_if_every_episode_terminated():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy, 2, 2), Driver(policy, 2, seed=1)
    rollout.begin()
    driver.act(rollout, np.arange(2), 0)
    rollout.complete([1, 0], np.ones(2), np.ones(2, bool), np.ones(2, bool))
    policy.calls.clear()
    rollout.finish(policy, driver.observe)
    assert policy.calls == [] and not rollout.bootstrap.any() and not rollout.truncated.any()


# Misuse.


def test_more_steps_than_a_rollout_has_room_for_are_refused():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy, 3, 2), Driver(policy, 3, seed=0, end=0.0)
    rollout.begin()
    driver.act(rollout, np.arange(3), 0)
    no = np.zeros(3, bool)
    with pytest.raises(ValueError, match="3 steps, but room for 2"):
        rollout.complete([0, 1, 2], np.zeros(3), no, no)
    rollout.complete([0, 2], np.zeros(2), no[:2], no[:2])
    assert rollout.full and list(rollout.in_flight) == [1]


def test_an_environment_cannot_act_twice_or_complete_a_step_without_an_action():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=0)
    rollout.begin()
    driver.act(rollout, np.array([1]), 0)
    with pytest.raises(ValueError, match="acts again"):
        driver.act(rollout, np.array([0, 1]), 0)
    no = np.zeros(1, bool)
    with pytest.raises(ValueError, match="without an action"):
        rollout.complete([0], np.zeros(1), no, no)


def test_a_truncated_step_without_its_final_observation_is_refused():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=0)
    rollout.begin()
    driver.act(rollout, np.array([1]), 0)
    with pytest.raises(ValueError, match="final observation"):
        rollout.complete([1], np.zeros(1), np.zeros(1, bool), np.ones(1, bool))


def test_rows_are_available_only_between_finish_and_begin():
    rollout, _, driver = collected()
    with pytest.raises(ValueError, match="begin the next"):
        driver.act(rollout, np.array([e for e in range(5) if not driver.flying(e)]), 0)
    rollout.begin()
    with pytest.raises(ValueError, match="not finished"):
        _ = rollout.rows


# Lost environments.


def test_a_dropped_environment_loses_its_unfinished_episode_and_nothing_else():
    rollout, _policy, driver = collected(seed=5, rollouts=2)
    rollout.begin()
    driver.end = 0.05
    driver.play(rollout, version=2, count=40)
    driver.lose(rollout, [0, 3])
    left = sum(len(seen) for seen in driver.completed(2))
    assert left < 40 and rollout.room == 60 - left
    assert rollout.inputs([0, 3])[2].all()
    driver.collect(rollout)
    assert_holds(rollout, driver.completed(2))
    for rows, transitions in zip(by_env(rollout), driver.completed(2), strict=True):
        for row, seen in zip(rows, transitions, strict=True):
            if seen.truncated and not seen.terminated:
                assert rollout.bootstrap[row] == pytest.approx(driver.following(seen), abs=1e-5)


def test_withdrawn_rows_are_not_used_as_stale_rows():
    rollout, policy, driver = collected(seed=5)
    before = {float(v) for v in rollout.log_prob[rollout.rows]}
    rollout.begin()
    driver.play(rollout, version=1, count=40)
    driver.lose(rollout, [0, 1, 2, 3, 4])
    kept = {seen.log_prob for history in driver.completed(1) for seen in history}
    rollout.finish(policy, driver.observe, fill=True)
    assert 0 < len(kept) < 40 and rollout.num_fresh == len(kept)
    assert {float(v) for v in rollout.log_prob[rollout.rows]} <= before | kept
    assert len(rollout.rows) > rollout.num_fresh


# Preempted rollouts.


def test_a_preempted_rollout_is_filled_with_the_youngest_rows_of_the_last_one():
    rollout, _policy, driver = collected()
    rollout.advantage[:] = torch.arange(rollout.capacity)
    before = {row: float(rollout.log_prob[row]) for row in rollout.rows}
    old = list(rollout.rows)
    rollout.begin()
    driver.collect(rollout, count=20, fill=True)
    assert rollout.num_fresh == 20
    # The rows in flight have replaced some of the old rows.
    assert 60 - len(rollout.in_flight) <= len(rollout.rows) <= 60
    stale = rollout.rows[20:]
    assert list(stale) == old[-len(stale) :]
    assert (rollout.generation[stale] < rollout.generation[rollout.rows[0]]).all()
    assert [float(v) for v in rollout.log_prob[stale]] == [before[row] for row in stale]
    assert [float(v) for v in rollout.advantage[stale]] == list(stale)
    assert_holds(rollout, driver.completed(1))


def test_a_preempted_rollout_without_earlier_rows_stays_smaller():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=1)
    rollout.begin()
    driver.collect(rollout, count=7, fill=True)
    assert len(rollout.rows) == rollout.num_fresh == 7


@pytest.mark.slow
def test_rows_once_in_flight_are_not_used_as_stale_rows():
    policy = TinyPolicy()
    rollout, driver = make_rollout(policy), Driver(policy, 5, seed=8)
    for number in range(12):
        rollout.begin()
        driver.collect(rollout, count=int(driver.rng.integers(1, 60)), fill=True)
        known = {(s.env, s.log_prob) for h in driver.seen for s in h if s.rollout >= 0}
        rows = [(int(rollout.env[r]), float(rollout.log_prob[r])) for r in rollout.rows]
        assert len(set(rows)) == len(rows) and set(rows) <= known
        assert_holds(rollout, driver.completed(number))


# Two buffers, and resumption.


@pytest.mark.slow
def test_the_next_rollout_can_be_another_buffer_and_leaves_the_first_unchanged():
    policy = TinyPolicy()
    buffers, driver = [make_rollout(policy), make_rollout(policy)], Driver(policy, 5, seed=2)
    buffers[0].begin()
    driver.collect(buffers[0])
    for number in range(1, 6):
        last, now = buffers[(number - 1) % 2], buffers[number % 2]
        kept = last.action[torch.as_tensor(last.rows)].clone()
        now.begin(last)
        assert len(last.in_flight) == 0
        driver.collect(now, version=number)
        assert torch.equal(last.action[torch.as_tensor(last.rows)], kept)
        assert_holds(now, driver.completed(number))


def test_a_rollout_resumes_from_its_state():
    rollout, policy, driver = collected(rollouts=2)
    tensors, note = rollout.state_dict()
    assert len(tensors["rows.env"]) == len(rollout.in_flight) > 0
    other = make_rollout(policy)
    other.load_state_dict(tensors, note)
    assert list(other.in_flight) == list(rollout.in_flight)
    other.begin()
    driver.collect(other, version=2)
    assert_holds(other, driver.completed(2))


def test_state_of_another_policy_is_refused():
    rollout, _, _ = collected()
    tensors, note = rollout.state_dict()
    other = Rollout(SPEC, 5, 60, memory_size=4)
    with pytest.raises(UserError, match=r"rows.memory is of shape \(10,\).*\(4,\) here"):
        other.load_state_dict(tensors, note)
    del tensors["next.memory"]
    with pytest.raises(UserError, match=r"next.memory is missing in the checkpoint"):
        make_rollout(TinyPolicy()).load_state_dict(tensors, note)


def test_state_with_inconsistent_parts_is_refused():
    rollout, _, _ = collected()
    tensors, note = rollout.state_dict()
    other = make_rollout(TinyPolicy())
    with pytest.raises(UserError, match="do not fit together"):
        other.load_state_dict(tensors | {"rows.value": tensors["rows.value"][:-1]}, note)
    with pytest.raises(UserError, match="do not fit together"):
        other.load_state_dict(tensors | {"rows.env": tensors["rows.env"] * 0 + 7}, note)
    with pytest.raises(UserError, match="rollout: generation: must be an integer"):
        other.load_state_dict(tensors, {})
