"""Import of habitat-lab's episodes, settled in the simulator like generated episodes."""

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
    """Settles imported episodes.

    Where habitat-lab draws the robot's start at a reset, the start is drawn here as for generated
    episodes, from `seed` and the episode's id.

    Args:
        imported: drafts read from a file.
        seed: seed of the drawn robot starts.
        progress: called with the number of episodes done.

    Returns:
        The episodes that come to rest, and `imported` with updated counts of changes and reasons
        of rejected episodes.
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
    """Returns the episode at rest, or a reason for rejection.

    If the goals of the episode do not settle, they stay as in the file.
    """
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
    """Returns the settled draft with a drawn, free start of the robot, or a rejection reason."""
    rng = np.random.default_rng((seed, zlib.crc32(draft.id.encode())))
    joints = joints_at(draft.articulation)
    try:
        start = robot_start(draft.layout, joints, rng)
    except Rejected as reason:
        return str(reason)
    return _settled(simulator, dataclasses.replace(draft, robot_start=start), changed)


def _moved(draft: Episode, result: Episode) -> collections.Counter[str]:
    """Counts the objects and goals that settled more than 1 cm from their places in the file."""
    pairs = [
        *(("object", a.pos, b.pos) for a, b in zip(draft.objects, result.objects, strict=True)),
        *(("goal", a.goal, b.goal) for a, b in zip(draft.targets, result.targets, strict=True)),
    ]
    counts = collections.Counter[str]()
    for what, before, after in pairs:
        if float(np.linalg.norm(np.subtract(before, after))) > 0.01:
            counts[f"{what} settled more than 1 cm from its position in the file"] += 1
    return counts
