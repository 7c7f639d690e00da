"""Start states of Open drawer in which the robot has begun to turn the short way.

    python -m benchmarks.turned_starts [seed=5] [out=out/turned_starts.npz]

A robot that stands to the right of a drawer (seen from the room) and faces it has to turn right by
60 degrees. Policies learned to turn left by 300 degrees instead, which takes no longer where there
is room, since the arm needs the time anyway; beside a table they fail. No exploration noise turns
the base the other way for as long as that takes. So here the base turns right for up to one second,
backs up by a random amount, and the arm moves a little; 260 such states and 340 usual ones are
written to a file for `start_states=`. docs/teachers.md has the result.
"""

import dataclasses
import math
import sys

import numpy as np

from skills.envs.batch import SkillBatch
from skills.envs.options import EnvOptions
from skills.starts.recorded import save_starts
from skills.starts.start import Start
from tpsrl import config
from tpsrl.errors import UserError, one_line
from tpsrl.world import action as act
from tpsrl.world.handles import handle

_PARTS = (("near:1.4", 260, True), ("own", 120, False), ("rearranged", 160, False))
_LAST = ("near:1.4", 60, False)
_LONGEST = 32  # control steps of turning
_ASIDE_M, _FACING_RAD = 0.1, math.radians(30.0)  # least offset and heading of a robot to be turned


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the start states."""

    seed: int = config.option(5, "seed of the draws", minimum=0)
    out: str = config.option("out/turned_starts.npz", "file to write")


def main(arguments: list[str]) -> int:
    """Writes the file."""
    settings = config.load(Settings, config.parse(arguments))
    rng = np.random.default_rng(settings.seed)
    starts: list[Start] = []
    for text, count, turned in (*_PARTS, _LAST):
        starts += _drawn(text, count, turned, rng)
        print(f"{text}: {count} start states")
    save_starts(settings.out, starts)
    print(f"wrote {settings.out}")
    return 0


def _drawn(text: str, count: int, turned: bool, rng: np.random.Generator) -> list[Start]:
    """Draws start states; with `turned` only those in which the robot turns right, turned."""
    options = EnvOptions.of(
        "open_drawer",
        sensors="fetch",
        starts=text,
        horizon=400,
        num_objects=12,
        num_episodes=252,
        slots=12,
    )
    source, simulator = options.source(), options.simulator(1)
    batch, found = SkillBatch(options, simulator), list[Start]()
    while len(found) < count:
        _, start = source.draw(rng)
        batch.reset([0], [start])
        if turned and not _turns_right(start, simulator.state([0]).base[0]):
            continue
        if turned:
            _turn(batch, rng)
        found.append(Start(start.episode, start.goal, simulator.snapshot(0)))
    simulator.close()
    return found


def _turns_right(start: Start, base: np.ndarray) -> bool:
    """Returns whether a base pose (3,) is to the right of the drawer, and turned to it."""
    drawer = handle(start.episode.layout, start.goal.marker)
    normal, away = drawer.normal(0.0), base[:2] - drawer.point(0.0)[:2]
    aside = normal[0] * away[1] - normal[1] * away[0]
    heading = base[2] - math.atan2(-normal[1], -normal[0])
    return bool(aside > _ASIDE_M and math.remainder(heading, 2.0 * math.pi) > _FACING_RAD)


def _turn(batch: SkillBatch, rng: np.random.Generator) -> None:
    """Turns the robot right by random commands that stay the same."""
    steps = int(rng.integers(_LONGEST))
    forward, turn = rng.uniform(-0.8, 0.1), rng.uniform(-0.9, -0.3)
    arm = 0.5 * rng.uniform(-1.0, 1.0, 7)
    for _ in range(steps):
        action = np.zeros((1, act.SIZE))
        action[0, [act.GRIP, act.STOP]] = -1.0
        action[0, act.BASE] = forward, turn
        if rng.random() < 0.5:
            action[0, :7] = arm
        batch.step([0], action)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        sys.exit(2)
