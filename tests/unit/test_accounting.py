from typing import Any

import numpy as np
import pytest
import torch
from toy_vec_env import ToyVecEnvFactory

from tpsrl.rl.collection.accounting import WAITS, Accounting, breakdown
from tpsrl.rl.collection.inference import Batch
from tpsrl.rl.envs.serial_pool import SerialEnvPool

N = 2


def batch(ready_at: list[float], chosen_at: float, away: tuple[float, float]) -> Batch:
    none: Any = torch.zeros(N)
    when = np.array(ready_at)
    valid = np.ones(N, bool)
    return Batch(np.arange(N), {}, (none, none, none), none, when, chosen_at, away, valid)


def spent(receiving: float, simulation: float, **others: float) -> dict[str, float]:
    causes = {"simulation": simulation, "rendering": 1.0, "resets": 1.0}
    return {"receiving": receiving, "inference": 2.0, **causes, **others}


def test_waiting_is_receiving_time_without_simulation_rendering_and_resets() -> None:
    found = breakdown(spent(receiving=10.0, simulation=4.0), total=14.0)
    assert found["waiting"] == 4.0 and found["simulation"] == 4.0
    assert found["other"] == 2.0
    assert sum(found.values()) == 14.0


def test_environment_work_is_scaled_down_to_the_receiving_time() -> None:
    found = breakdown(spent(receiving=2.0, simulation=6.0), total=5.0)
    assert found["waiting"] == 0.0
    assert found["simulation"] == 1.5 and found["rendering"] == found["resets"] == 0.25
    assert found["other"] == 1.0


@pytest.mark.parametrize("cause", ["others", "inference"])
def test_idle_time_of_environments_is_attributed_to_its_cause(cause: str) -> None:
    accounting = Accounting(SerialEnvPool(ToyVecEnvFactory(), N), cause)
    accounting.begin()
    now = 100.0
    # The environments were ready 5 s and 2 s before they were chosen, and waited 1 s of the 5 s for
    # the learner.
    accounting.note_sent(batch([now - 6.0, now - 3.0], now - 1.0, (now - 6.0, now - 5.0)), now)
    _, waits = accounting.end()
    assert set(waits) == set(WAITS)
    assert waits["learning"] == pytest.approx(1.0 / N)
    until_sent = 1.0  # for both environments, after they were chosen
    wanted = {"others": 0.0, "inference": until_sent}
    wanted[cause] += (5.0 + 2.0 - 1.0) / N
    assert waits["others"] == pytest.approx(wanted["others"])
    assert waits["inference"] == pytest.approx(wanted["inference"])
