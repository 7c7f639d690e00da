"""Episodes of habitat-lab's files, settled in the simulator like our own."""

import collections
import dataclasses
import zlib
from collections.abc import Callable

import numpy as np

import tpsrl.sim
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator
from tpsrl.sim.settle import HABITAT, settle_goals, settle_starts
from tpsrl.world.doors import joints_at
from tpsrl.world.episode import Episode
from tpsrl.world.generator import Rejected, robot_start
from tpsrl.world.habitat import Imported
from tpsrl.world.slots import CAPACITIES


def settled(
    imported: Imported, seed: int = 0, progress: Callable[[int], None] | None = None
) -> tuple[list[Episode], Imported]:
    """The episodes that come to rest as they are, and what is known of all of them.

    Where habitat-lab draws the robot's start itself, it is drawn here as for our own episodes,
    from `seed` and the episode's name. `progress` is called with the number of episodes done.
    """
    simulator = tpsrl.sim.make(slots=max(CAPACITIES))
    episodes: list[Episode] = []
    changed, refused = imported.changed.copy(), dict(imported.refused)
    for number, draft in enumerate(imported.drafts):
        if draft.id in imported.start_drawn:
            result = _with_start(simulator, draft, seed, changed)
            changed["robot's start drawn, as habitat-lab does at a reset"] += 1
        else:
            result = _settled(simulator, draft, changed)
        if isinstance(result, Episode):
            episodes.append(result)
            changed += _moved(draft, result)
        else:
            refused[draft.id] = result
        if progress is not None:
            progress(number + 1)
    return episodes, dataclasses.replace(imported, changed=changed, refused=refused)


def _settled(
    simulator: Simulator, draft: Episode, changed: collections.Counter[str]
) -> Episode | str:
    """The episode at rest. Goals where nothing can stand stay where the file has them."""
    try:
        started = settle_starts(simulator, draft, HABITAT)
    except UserError as error:
        return str(error).removeprefix(f"episode {draft.id}: ")
    if isinstance(started, str):
        return started
    finished = settle_goals(simulator, started, HABITAT)
    if isinstance(finished, Episode):
        return finished
    changed[f"goals of an episode left as in the file: {finished.partition(' (')[0]}"] += 1
    return started


def _with_start(
    simulator: Simulator, draft: Episode, seed: int, changed: collections.Counter[str]
) -> Episode | str:
    """The settled draft with a start of the robot where it touches nothing."""
    rng = np.random.default_rng((seed, zlib.crc32(draft.id.encode())))
    joints = joints_at(draft.articulation)
    try:
        start = robot_start(draft.layout, joints, rng)
    except Rejected as reason:
        return str(reason)
    return _settled(simulator, dataclasses.replace(draft, robot_start=start), changed)


def _moved(draft: Episode, result: Episode) -> collections.Counter[str]:
    """How many objects and goals are where the file has them only to a centimetre."""
    pairs = [
        *(("object", a.pos, b.pos) for a, b in zip(draft.objects, result.objects, strict=True)),
        *(("goal", a.goal, b.goal) for a, b in zip(draft.targets, result.targets, strict=True)),
    ]
    counts = collections.Counter[str]()
    for what, before, after in pairs:
        if float(np.linalg.norm(np.subtract(before, after))) > 0.01:
            counts[f"{what} settled more than 1 cm from where the file has it"] += 1
    return counts
