"""Minimal episodes of HAB's scenarios, with what planning depends on."""

import dataclasses

import numpy as np
from kinematic_home import LAYOUT, make_episode

from tpsrl.world.episode import Episode, ObjectPlacement, Target
from tpsrl.world.layouts import placed_receptacles, resolve


def receptacle(name: str) -> tuple[float, float, float]:
    layout_set, layout = resolve(LAYOUT)
    placed = next(r for r in placed_receptacles(layout_set, layout) if r.name == name)
    x, y, z = (float(v) for v in placed.pos)
    return x, y, z


def placement(name: str, where: str) -> ObjectPlacement:
    return ObjectPlacement(name, receptacle(where), (1.0, 0.0, 0.0, 0.0), where)


def tidy_house(seed: int = 0) -> Episode:
    """Returns an episode with 30 objects, five of which, in random order, are targets."""
    episode = make_episode(30, 0)
    chosen = np.random.default_rng(seed).permutation(30)[:5]
    targets = tuple(Target(int(i), (float(i), -2.0, 0.8), "table_2") for i in chosen)
    return dataclasses.replace(episode, targets=targets)


def set_table(**articulation: float) -> Episode:
    """Returns HAB's Set Table: a bowl in a drawer and an apple in the fridge, both to the table."""
    x, y, z = receptacle("table_1")
    return make_episode(
        objects=(placement("024_bowl", "drawer_right_top"), placement("013_apple", "fridge")),
        targets=(Target(0, (x, y, z), "table_1"), Target(1, (x, y + 0.4, z), "table_1")),
        articulation=articulation,
    )


def prepare_groceries(**articulation: float) -> Episode:
    """Returns HAB's Prepare Groceries.

    Two objects go from the open fridge to a counter, and one from another counter into the fridge.
    """
    x, y, z = receptacle("counter_right")
    fridge = receptacle("fridge")
    start = [("013_apple", "fridge"), ("003_cracker_box", "fridge"), ("024_bowl", "counter_left")]
    goals = [((x, y, z), "counter_right"), ((x, y + 0.4, z), "counter_right"), (fridge, "fridge")]
    return make_episode(
        objects=tuple(placement(name, where) for name, where in start),
        targets=tuple(Target(n, goal, where) for n, (goal, where) in enumerate(goals)),
        articulation={"fridge_push_point": 1.5, **articulation},
    )
