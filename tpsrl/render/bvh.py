"""A tree of bounding boxes over what never moves, in the layout of MuJoCo's model arrays.

MuJoCo builds such a tree when it compiles, by halving at the median. Apartments change without
compilation, so theirs is built here; and by a cost that fits the question asked: how many nodes
does a box of an arm link's size overlap?
"""

import dataclasses

import numpy as np

_LINK_M = 0.15  # half extent of the boxes that ask
_EVERYWHERE = 1e10  # MuJoCo's mjMAXVAL: a box of this size meets everything


@dataclasses.dataclass(frozen=True, slots=True)
class Tree:
    """Nodes of `bvh_child` (n, 2), `bvh_nodeid` (n,) and `bvh_aabb` (n, 6: centre, half)."""

    child: np.ndarray
    nodeid: np.ndarray
    aabb: np.ndarray


def build(low: np.ndarray, high: np.ndarray, geoms: np.ndarray, plane: int) -> Tree:
    """The tree over boxes (m, 3), (m, 3) of `geoms` (m,) and the floor's plane: 2 m + 1 nodes.

    The plane meets every box, so it hangs directly under the root.
    """
    m = len(geoms)
    child = np.full((2 * m + 1, 2), -1, dtype=np.int32)
    nodeid = np.full(2 * m + 1, -1, dtype=np.int32)
    aabb = np.empty((2 * m + 1, 6))
    child[0] = 1, 2
    nodeid[1] = plane
    aabb[:2] = (0, 0, 0, _EVERYWHERE, _EVERYWHERE, _EVERYWHERE)
    waiting, count = [(2, np.arange(m))], 3
    while waiting:
        node, members = waiting.pop()
        least, most = low[members].min(axis=0), high[members].max(axis=0)
        aabb[node] = (*(least + most) / 2, *(most - least) / 2)
        if len(members) == 1:
            nodeid[node] = geoms[members[0]]
            continue
        child[node] = count, count + 1
        first, second = _best_cut(low, high, members)
        waiting += [(count, first), (count + 1, second)]
        count += 2
    return Tree(child, nodeid, aabb)


def _best_cut(
    low: np.ndarray, high: np.ndarray, members: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The two parts that cost least among all cuts along the three axes.

    A part costs the number of its boxes times the volume in which a query would enter it.
    """
    best, parts = np.inf, (members[:1], members[1:])
    before = np.arange(1, len(members))
    for axis in range(3):
        order = members[np.argsort(low[members, axis] + high[members, axis], kind="stable")]
        left = _growing_volumes(low[order], high[order])[:-1]
        right = _growing_volumes(low[order[::-1]], high[order[::-1]])[:-1][::-1]
        costs = before * left + (len(members) - before) * right
        cut = int(np.argmin(costs))
        if costs[cut] < best:
            best, parts = costs[cut], (order[: cut + 1], order[cut + 1 :])
    return parts


def _growing_volumes(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Volumes (n,) around the first 1 to n boxes, each widened by the size of a query."""
    extent = np.maximum.accumulate(high) - np.minimum.accumulate(low) + 2 * _LINK_M
    volumes: np.ndarray = extent.prod(axis=1)
    return volumes
