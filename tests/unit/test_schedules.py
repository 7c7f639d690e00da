import numpy as np
import pytest
import torch
from toy_vec_env import SPEC

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.collection.schedules import NoVerSchedule, SyncSchedule, VerSchedule

N, T = 4, 2


def rollout(*acted: int) -> Rollout:
    """Returns a rollout in which these environments have acted, in this order."""
    made = Rollout(SPEC, N, N * T, 0)
    made.begin()
    no = np.zeros(1, bool)
    for env in acted:
        shown = {name: np.zeros((1, *shape)) for name, shape in SPEC.observations.items()}
        zero = torch.zeros(1)
        made.add(
            [env],
            shown,
            action=torch.zeros(1, 3),
            log_prob=zero,
            value=zero,
            next_memory=torch.zeros(1, 0),
            version=0,
        )
        made.complete([env], np.zeros(1), no, no)
    return made


def envs(*numbers: int) -> np.ndarray:
    return np.array(numbers, int)


def test_under_sync_all_environments_act_or_none() -> None:
    sync = SyncSchedule(N)
    assert sync.turn(rollout(), envs(3, 0, 2), True, 0).tolist() == []
    assert sync.turn(rollout(), envs(3, 0, 2, 1), False, 0).tolist() == [0, 1, 2, 3]
    assert sync.wait_for(rollout(), envs(), 0) == sync.wait_for(rollout(), envs(), N) == N
    assert sync.lead(envs(0, 1, 2, 3)).tolist() == []


def test_ver_takes_the_longest_idle_first_and_waits_only_if_none_acted() -> None:
    ver = VerSchedule(1, 2)
    assert ver.turn(rollout(), envs(3, 0, 2), True, 0).tolist() == [3, 0]
    assert ver.turn(rollout(), envs(3, 0, 2), True, 1).tolist() == [3, 0, 2]
    assert ver.wait_for(rollout(), envs(2), 2) == 0
    assert ver.wait_for(rollout(), envs(), 0) == 1
    assert ver.lead(envs(3, 0, 2)).tolist() == [3, 0, 2]


def test_ver_waits_for_a_minimum_batch_only_while_environments_are_stepping() -> None:
    ver = VerSchedule(3, 4)
    assert ver.turn(rollout(), envs(3, 0), True, 0).tolist() == []
    assert ver.wait_for(rollout(), envs(3, 0), 0) == 1
    assert ver.turn(rollout(), envs(3, 0), False, 0).tolist() == [3, 0]


def test_under_nover_no_environment_gives_more_than_its_steps() -> None:
    nover, filled = NoVerSchedule(N, 1, N), rollout(3, 3, 0)
    assert nover.turn(filled, envs(3, 0, 2), True, 0).tolist() == [0, 2]
    assert nover.turn(filled, envs(3), True, 0).tolist() == []
    assert nover.wait_for(filled, envs(3), 0) == 1
    # These steps belong to the next rollout, so environments that gave all steps act too.
    assert nover.lead(envs(3, 0)).tolist() == [3, 0]


@pytest.mark.parametrize(("idle", "missing"), [((3,), 2), ((3, 0), 1), ((0, 1, 2), 1)])
def test_nover_waits_for_a_batch_of_environments_with_steps_to_give(
    idle: tuple[int, ...], missing: int
) -> None:
    nover = NoVerSchedule(N, 2, N)
    assert nover.wait_for(rollout(3, 3), envs(*idle), 0) == missing
