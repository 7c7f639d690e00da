"""Control steps per second of both engines, measured alternately in one process.

    python -m benchmarks.engines habitat.python=PATH habitat.data=DIR [steps=300] [turns=3]

Each engine has one home, starts in the same Tidy House episode and gets the same random actions. A
turn is `steps` control steps without images, then as many with head depth of `side` x `side`
pixels. Prints the median over turns of each engine's steps/s, the ratio within a turn (median,
minimum, maximum), and the time of the resets.
"""

import dataclasses
import statistics
import sys
import time

import numpy as np

import tpsrl.sim
from tpsrl import config
from tpsrl.errors import UserError, one_line
from tpsrl.sim import datasets
from tpsrl.sim.base import Simulator
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.world import action as act

NAMES = ("mujoco", "habitat")


@dataclasses.dataclass(frozen=True, slots=True)
class EnginesSettings:
    """Settings of the benchmark."""

    habitat: HabitatSettings = config.part(
        HabitatSettings, "paths and options of the engine habitat"
    )
    steps: int = config.option(300, "control steps of a turn, of either kind", minimum=10)
    turns: int = config.option(3, "turns of each engine", minimum=1)
    side: int = config.option(128, "height and width of the depth (pixels)", minimum=16)
    num_objects: int = config.option(30, "objects of the episode", minimum=1, maximum=30)


def steps_per_s(simulator: Simulator, actions: np.ndarray, side: int) -> float:
    """Returns the control steps per second of a home under actions (n, 11).

    The state is read after each step and, with a `side` above 0, head depth is rendered.
    """
    begun = time.perf_counter()
    for action in actions:
        simulator.step([0], action[None])
        simulator.state([0])
        if side:
            simulator.depth([0], side, side)
    return len(actions) / (time.perf_counter() - begun)


def main() -> int:
    """Prints a row without images and one with head depth."""
    settings = config.load(EnginesSettings, config.parse(sys.argv[1:]))
    (episode,) = datasets.load("tidy_house", "val", 1, num_objects=settings.num_objects)
    rng = np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (settings.steps, act.SIZE))
    actions[:, act.GRIP] = -1.0
    made = {name: tpsrl.sim.make(name, habitat=settings.habitat) for name in NAMES}
    for simulator in made.values():  # the first reset loads and compiles
        simulator.reset([0], [episode])
        steps_per_s(simulator, actions[:10], settings.side)
    resets: dict[str, list[float]] = {name: [] for name in made}
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(settings.turns):
        for name, simulator in made.items():
            begun = time.perf_counter()
            simulator.reset([0], [episode])
            resets[name].append(time.perf_counter() - begun)
            for side in (0, settings.side):
                rate = steps_per_s(simulator, actions, side)
                rates.setdefault((name, side), []).append(rate)
    for simulator in made.values():
        simulator.close()
    print(f"{'':24}{'mujoco':>10}{'habitat':>10}{'ratio':>8}  least to most")
    for side in (0, settings.side):
        ours, theirs = rates["mujoco", side], rates["habitat", side]
        ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
        what = f"with depth {side} x {side}" if side else "without pictures"
        print(
            f"{what:24}{statistics.median(ours):>10.0f}{statistics.median(theirs):>10.1f}"
            f"{statistics.median(ratios):>8.1f}  {min(ratios):.1f} to {max(ratios):.1f}"
        )
    shown = ", ".join(f"{name} {statistics.median(took):.2f} s" for name, took in resets.items())
    print(f"resets: {shown}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
