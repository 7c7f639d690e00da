"""Forces, touches and overlaps from the engine's contact list, compiled."""

import numpy as np

from tpsrl.runtime.compiled import njit


@njit(cache=True)
def largest_force(
    geom: np.ndarray,
    dim: np.ndarray,
    address: np.ndarray,
    efc_force: np.ndarray,
    robot: np.ndarray,
    floor: int,
    held: int,
) -> float:
    """Returns the largest normal force of a single contact in the home, objects included, newton.

    Contacts of the robot with the floor, with itself or with the held object do not count. This is
    habitat-lab's measure (`RearrangeTask.get_coll_forces` with `count_obj_collisions`), whose
    engine has no such contacts. With pyramidal cones the normal force of a contact is the sum over
    the edges of its pyramid.

    Args:
        geom: (n, 2) geoms of the contacts.
        dim: (n,) contact dimensions.
        address: (n,) first constraint row, -1 for contacts inside their gap.
        efc_force: forces of all constraint rows.
        robot: (ngeom,) whether a geom is the robot's.
        floor: the floor's geom.
        held: geom of the held object, -1 for none.
    """
    largest = 0.0
    for i in range(address.shape[0]):
        start = address[i]
        a, b = geom[i, 0], geom[i, 1]
        if start < 0 or (robot[a] and robot[b]):
            continue
        if (robot[a] and b in (floor, held)) or (robot[b] and a in (floor, held)):
            continue
        rows = 1 if dim[i] == 1 else 2 * (dim[i] - 1)
        force = 0.0
        for r in range(start, start + rows):
            force += efc_force[r]
        largest = max(largest, force)
    return largest


@njit(cache=True)
def touched(geom: np.ndarray, distance: np.ndarray, cup: int, mark: np.ndarray) -> int:
    """Returns the mark of the geom that touches the cup most deeply, or -1.

    Args:
        geom: (n, 2) geoms of the contacts.
        distance: (n,) metres, negative inside.
        cup: the cup's geom.
        mark: (ngeom,) at least 0 for geoms that count.
    """
    best, found = 1e9, -1
    for i in range(geom.shape[0]):
        a, b = geom[i, 0], geom[i, 1]
        if a != cup and b != cup:
            continue
        other = mark[b] if a == cup else mark[a]
        if other >= 0 and distance[i] < best:
            best, found = distance[i], other
    return found


@njit(cache=True)
def worst_overlap(
    geom: np.ndarray, distance: np.ndarray, loose: np.ndarray
) -> tuple[float, int, int]:
    """Finds the deepest penetration of a loose geom.

    Args:
        geom: (n, 2) geoms of the contacts.
        distance: (n,) metres, negative inside.
        loose: (ngeom,) bool, geoms of the objects and of the robot.

    Returns:
        The distance (m, negative inside), the loose geom and the other geom; (0, -1, -1) if
        nothing overlaps.
    """
    worst, first, second = 0.0, -1, -1
    for i in range(geom.shape[0]):
        a, b = geom[i, 0], geom[i, 1]
        if not (loose[a] or loose[b]):
            continue
        if distance[i] < worst:
            worst = distance[i]
            first, second = (b, a) if loose[b] else (a, b)
    return worst, first, second
