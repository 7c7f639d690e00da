import numpy as np

import tpsrl.sim
from eval.warmup import one_object_episode, plan_around_a_pole


def test_the_warmup_episode_is_valid_and_its_object_stays_where_it_stands():
    episode = one_object_episode()
    simulator = tpsrl.sim.make(slots=12)
    simulator.reset([0], [episode])
    idle = np.zeros((1, 11))
    idle[0, 7] = -1.0
    for _ in range(15):
        simulator.step([0], idle)
    moved = simulator.state([0]).object_pos[0, 0] - episode.objects[0].pos
    assert np.abs(moved).max() < 0.01


def test_the_warmup_path_goes_around():
    path = plan_around_a_pole()
    assert path is not None and len(path) > 2
