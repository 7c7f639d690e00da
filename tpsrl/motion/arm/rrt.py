"""Arm paths: straight in joint space if free, otherwise by RRT-Connect with shortcutting.

Kuffner and LaValle, "RRT-Connect: an efficient approach to single-query path planning", ICRA
2000. Distances are greatest joint differences. All joints have the same maximum speed, so that a
path's length divided by 0.0125 rad is its duration in control steps.
"""

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.action import ARM_DELTA_RAD
from tpsrl.world.collision import ArmChecker, clearance
from tpsrl.world.kinematics import LOWER, UPPER

_EDGE_RAD = 0.06  # spacing of checks along an edge
_REACH_RAD = 0.5  # longest edge of a tree
_MAX_NODES = 800
_TRIES = 1200
_SHORTCUTS = 150
_GOOD_ENOUGH = 1.15
MARGINS_M = (0.02, 0.008, 0.0)
_SAVING_STEPS = 10
_HEAD_SHARE = 0.15  # share of an edge after which the margin is required
_ATTEMPTS = 3  # number of paths from different seeds, of which the quickest is used


def plan_path(
    checker: ArmChecker, start: np.ndarray, goal: np.ndarray, margin: float, seed: int = 0
) -> np.ndarray | None:
    """Returns waypoints (k, 7) from start (7,) to goal (7,) with a clearance of `margin`, or None.

    `margin` is in metres. A start with less clearance is allowed: the path then begins with an edge
    to a nearby posture that has the margin, along which the clearance does not fall noticeably
    below that of the start.
    """
    scene = checker.arguments()
    if not checker.free(goal, margin):
        return None
    if np.abs(goal - start).max() < 1e-6:
        return start[None]
    escape = _escape(checker, start, margin)
    if escape is None:
        return None
    head = escape[-1]
    if _edge_free(head, goal, scene, checker.target, margin):
        return np.vstack([escape, goal[None]])
    spread = 1.0
    low = np.maximum(LOWER, np.minimum(head, goal) - spread)
    high = np.minimum(UPPER, np.maximum(head, goal) + spread)
    best: np.ndarray | None = None
    for attempt in range(_ATTEMPTS):
        key = seed + 10 * attempt
        path = _rrt_connect(head, goal, scene, checker.target, margin, low, high, key)
        if not len(path):
            break
        path = _shortcut(path, scene, checker.target, margin, key)
        if best is None or duration(path) < duration(best):
            best = path
        if duration(best) < _GOOD_ENOUGH * duration(np.stack([head, goal])):
            break
    return None if best is None else np.vstack([escape[:-1], best])


def widest_path(
    checker: ArmChecker, start: np.ndarray, goal: np.ndarray
) -> tuple[np.ndarray, float] | None:
    """Returns a free path (k, 7) between postures (7,) and its margin (m), or None.

    The margin is the widest with a path, unless a narrower one saves more than `_SAVING_STEPS`. For
    a start in contact, as after a grasp, the clearance of the start suffices as the last resort.
    """
    direct = duration(np.stack([start, goal]))
    touching = min(checker.clearance(start), 0.0) - 0.004
    best: tuple[np.ndarray, float] | None = None
    for margin in (*MARGINS_M, touching):
        if best is not None and (margin == touching or duration(best[0]) < direct + _SAVING_STEPS):
            break
        path = plan_path(checker, start, goal, margin)
        if path is None:
            continue
        if best is None or duration(path) < duration(best[0]) - _SAVING_STEPS:
            best = path, margin
    return best


def duration(path: np.ndarray) -> float:
    """Returns the control steps of a path (k, 7) at full joint speed."""
    return float(np.abs(np.diff(path, axis=0)).max(axis=1).sum() / ARM_DELTA_RAD)


def _escape(checker: ArmChecker, start: np.ndarray, margin: float) -> np.ndarray | None:
    """Returns waypoints (k, 7) from `start` to a nearby posture with the margin, or None."""
    now = checker.clearance(start)
    if now >= margin:
        return start[None]
    rng = np.random.default_rng(0)
    for reach in (0.08, 0.15, 0.3, 0.5):
        best, chosen = margin, None
        for _ in range(80):
            q = np.clip(start + rng.uniform(-reach, reach, 7), LOWER, UPPER)
            value = checker.clearance(q)
            # The clearance must not decrease on the way.
            if value >= best and checker.clearance((start + q) / 2) >= now - 0.003:
                best, chosen = value, q
        if chosen is not None:
            return np.stack([start, chosen])
    return None


def edge_free(checker: ArmChecker, a: np.ndarray, b: np.ndarray, margin: float) -> bool:
    """Returns whether the straight joint motion between postures (7,) keeps `margin` metres.

    The end is included. If the start has less clearance, the margin is required only after
    `_HEAD_SHARE` of the motion.
    """
    if not checker.free(b, margin):
        return False
    start = checker.clearance(a)
    head = a if start >= margin else a + _HEAD_SHARE * (b - a)
    if start < margin and not checker.free(head, margin):
        return False
    return bool(_edge_free(head, b, checker.arguments(), checker.target, margin))


@njit(cache=True)
def _edge_free(a: np.ndarray, b: np.ndarray, scene: tuple, target: int, margin: float) -> bool:
    """Returns whether the straight joint motion from a (already checked) to b keeps `margin`."""
    span = np.max(np.abs(b - a))
    count = max(1, int(np.ceil(span / _EDGE_RAD)))
    for i in range(count, 0, -1):  # from the far end, where a collision is most likely
        q = a + (b - a) * (i / count)
        if clearance(q, *scene, target, margin) < margin:
            return False
    return True


@njit(cache=True)
def _nearest(tree: np.ndarray, count: int, q: np.ndarray) -> int:
    best, at = 1e9, 0
    for i in range(count):
        d = 0.0
        for k in range(7):
            d = max(d, abs(tree[i, k] - q[k]))
        if d < best:
            best, at = d, i
    return at


@njit(cache=True)
def _extend(
    tree: np.ndarray,
    parent: np.ndarray,
    count: int,
    q: np.ndarray,
    scene: tuple,
    target: int,
    margin: float,
) -> int:
    """Grows a tree by one edge towards q, as its last node; 0 trapped, 1 advanced, 2 reached."""
    at = _nearest(tree, count, q)
    span = np.max(np.abs(q - tree[at]))
    new = tree[at] + (q - tree[at]) * min(1.0, _REACH_RAD / max(span, 1e-9))
    if not _edge_free(tree[at], new, scene, target, margin):
        return 0
    tree[count] = new
    parent[count] = at
    return 2 if span <= _REACH_RAD else 1


@njit(cache=True)
def _rrt_connect(
    start: np.ndarray,
    goal: np.ndarray,
    scene: tuple,
    target: int,
    margin: float,
    low: np.ndarray,
    high: np.ndarray,
    seed: int,
) -> np.ndarray:
    """Returns a free path (k, 7) from start to goal, (0, 7) if none is found."""
    np.random.seed(seed)
    trees = np.empty((2, _MAX_NODES, 7))
    parents = np.full((2, _MAX_NODES), -1)
    counts = np.array([1, 1])
    trees[0, 0] = start
    trees[1, 0] = goal
    for attempt in range(_TRIES):
        grown = attempt % 2
        other = 1 - grown
        if max(counts[0], counts[1]) >= _MAX_NODES - 1:
            break
        sample = low + np.random.random(7) * (high - low)
        if _extend(trees[grown], parents[grown], counts[grown], sample, scene, target, margin) == 0:
            continue
        counts[grown] += 1
        new = trees[grown, counts[grown] - 1]
        while counts[other] < _MAX_NODES:
            result = _extend(
                trees[other], parents[other], counts[other], new, scene, target, margin
            )
            if result == 0:
                break
            counts[other] += 1
            if result == 2:
                return _join(trees, parents, counts)
    return np.empty((0, 7))


@njit(cache=True)
def _join(trees: np.ndarray, parents: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Returns the path through the last nodes of both trees, which are the same posture."""
    path = np.empty((counts[0] + counts[1], 7))
    length = 0
    at = counts[0] - 1
    while at >= 0:
        path[length] = trees[0, at]
        length += 1
        at = parents[0, at]
    path[:length] = path[:length][::-1].copy()
    at = parents[1, counts[1] - 1]
    while at >= 0:
        path[length] = trees[1, at]
        length += 1
        at = parents[1, at]
    return path[:length]


@njit(cache=True)
def _shortcut(path: np.ndarray, scene: tuple, target: int, margin: float, seed: int) -> np.ndarray:
    """Replaces sections between random points of a path by free straight edges."""
    np.random.seed(seed + 1)
    for _ in range(_SHORTCUTS):
        n = path.shape[0]
        if n < 3:
            break
        i = np.random.randint(0, n - 1)
        j = np.random.randint(0, n - 1)
        if i == j:
            continue
        if i > j:
            i, j = j, i
        a = path[i] + (path[i + 1] - path[i]) * np.random.random()
        b = path[j] + (path[j + 1] - path[j]) * np.random.random()
        if not _edge_free(a, b, scene, target, margin):
            continue
        new = np.empty((i + 1 + 2 + n - j - 1, 7))
        new[: i + 1] = path[: i + 1]
        new[i + 1] = a
        new[i + 2] = b
        new[i + 3 :] = path[j + 1 :]
        path = new
    return path
