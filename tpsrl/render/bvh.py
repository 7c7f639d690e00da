"""Tree of bounding boxes over static geoms, in the layout of MuJoCo's model arrays.

MuJoCo builds such a tree at compilation, by halving at the median. Apartments change without
compilation, so their trees are built here. The cost of a split is the
expected number of nodes that a query box of an arm link's size overlaps.
"""

import dataclasses

import numpy as np

from tpsrl.runtime.compiled import njit

_LINK_M = 0.15  # half extent of the query boxes
_EVERYWHERE = 1e10  # MuJoCo's mjMAXVAL: a box of this size overlaps everything


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """Nodes of `bvh_child` (n, 2), `bvh_nodeid` (n,) and `bvh_aabb` (n, 6: centre, half)."""

    child: np.ndarray
    nodeid: np.ndarray
    aabb: np.ndarray


def build(low: np.ndarray, high: np.ndarray, geoms: np.ndarray, plane: int) -> Tree:
    """Builds the tree over the boxes of geoms and the floor's plane: 2 m + 1 nodes.

    The plane overlaps every box, so it is a child of the root.

    Args:
        low, high: (m, 3) corners of the geoms' bounding boxes.
        geoms: (m,) ids of the geoms.
        plane: id of the floor's geom.
    """
    m = len(geoms)
    child = np.full((2 * m + 1, 2), -1, dtype=np.int32)
    nodeid = np.full(2 * m + 1, -1, dtype=np.int32)
    aabb = np.empty((2 * m + 1, 6))
    child[0] = 1, 2
    nodeid[1] = plane
    aabb[:2] = (0, 0, 0, _EVERYWHERE, _EVERYWHERE, _EVERYWHERE)
    _divide(
        np.asarray(low, np.float64),
        np.asarray(high, np.float64),
        np.asarray(geoms, np.int64),
        child,
        nodeid,
        aabb,
    )
    return Tree(child, nodeid, aabb)


@njit(cache=True)
def _divide(
    low: np.ndarray,
    high: np.ndarray,
    geoms: np.ndarray,
    child: np.ndarray,
    nodeid: np.ndarray,
    aabb: np.ndarray,
) -> None:
    """Fills the nodes from the third on; a node's boxes are a range of `members`."""
    members = np.arange(len(geoms))
    waiting = [(2, 0, len(geoms))]
    count = 3
    while len(waiting) > 0:
        node, begin, end = waiting.pop()
        for axis in range(3):
            least, most = low[members[begin], axis], high[members[begin], axis]
            for i in members[begin + 1 : end]:
                least, most = min(least, low[i, axis]), max(most, high[i, axis])
            aabb[node, axis], aabb[node, 3 + axis] = (least + most) / 2, (most - least) / 2
        if end - begin == 1:
            nodeid[node] = geoms[members[begin]]
            continue
        child[node] = count, count + 1
        middle = begin + _best_cut(low, high, members[begin:end])
        waiting.append((count, begin, middle))
        waiting.append((count + 1, middle, end))
        count += 2


@njit(cache=True)
def _best_cut(low: np.ndarray, high: np.ndarray, members: np.ndarray) -> int:
    """Returns the number of boxes before the cheapest cut along the three axes; sorts `members`.

    The cost of a part is the number of its boxes times the volume in which a query enters it.
    """
    n = len(members)
    given = members.copy()
    best, cut = np.inf, 1
    for axis in range(3):
        middles = low[given, axis] + high[given, axis]
        order = given[np.argsort(middles, kind="mergesort")]  # a stable sort
        left = _growing_volumes(low, high, order)
        right = _growing_volumes(low, high, order[::-1])
        for k in range(1, n):
            cost = k * left[k - 1] + (n - k) * right[n - k - 1]
            if cost < best:
                best, cut = cost, k
                members[:] = order
    return cut


@njit(cache=True)
def _growing_volumes(low: np.ndarray, high: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Returns the volumes (n,) around the first 1 to n boxes, widened by the size of a query."""
    least, most = low[order[0]].copy(), high[order[0]].copy()
    volumes = np.empty(len(order))
    for k, i in enumerate(order):
        volume = 1.0
        for axis in range(3):
            least[axis] = min(least[axis], low[i, axis])
            most[axis] = max(most[axis], high[i, axis])
            volume *= most[axis] - least[axis] + 2 * _LINK_M
        volumes[k] = volume
    return volumes
