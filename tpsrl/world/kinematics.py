"""Forward and inverse kinematics of the Fetch's arm in the base frame, compiled."""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.fetch import ARM, CUP, GRIPPER, TORSO

LOWER = np.array([j.limits[0] for j in ARM])
UPPER = np.array([j.limits[1] for j in ARM])
_OFFSETS = np.array([np.add(TORSO, ARM[0].offset), *(j.offset for j in ARM[1:])])
_AXES = np.array([np.argmax(j.axis) for j in ARM])
_TIP = GRIPPER + CUP


@njit(cache=True)
def arm_frames(q: np.ndarray, pos: np.ndarray, rot: np.ndarray) -> None:
    """Writes the frames of the seven links: `pos` (7, 3) metres, `rot` (7, 3, 3); `q` (7,) rad."""
    origin = np.zeros(3)
    turn = np.eye(3)
    for i in range(7):
        for r in range(3):
            for k in range(3):
                origin[r] += turn[r, k] * _OFFSETS[i, k]
            pos[i, r] = origin[r]
        c, s = np.cos(q[i]), np.sin(q[i])
        a = (_AXES[i] + 1) % 3
        b = (_AXES[i] + 2) % 3
        for r in range(3):
            u, v = turn[r, a], turn[r, b]
            turn[r, a] = c * u + s * v
            turn[r, b] = c * v - s * u
            for k in range(3):
                rot[i, r, k] = turn[r, k]


@njit(cache=True)
def cup_pose(q: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the tip of the cup (3,) and its rotation (3, 3), x pointing out of the cup."""
    pos = np.empty((7, 3))
    rot = np.empty((7, 3, 3))
    arm_frames(q, pos, rot)
    return pos[6] + rot[6, :, 0] * _TIP, rot[6].copy()


@njit(cache=True)
def wrapped(q: np.ndarray, near: np.ndarray) -> None:
    """Shifts the continuous joints of `q` (7,) by full turns to be nearest to `near`, in place."""
    for k in (2, 4, 6):
        turned = q[k] + 2 * math.pi * round((near[k] - q[k]) / (2 * math.pi))
        if LOWER[k] <= turned <= UPPER[k]:
            q[k] = turned


@njit(cache=True)
def _solve(matrix: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Solves a small symmetric positive definite system in place by Cholesky decomposition."""
    n = rhs.shape[0]
    for j in range(n):
        for k in range(j):
            for i in range(j, n):
                matrix[i, j] -= matrix[i, k] * matrix[j, k]
        d = np.sqrt(matrix[j, j])
        for i in range(j, n):
            matrix[i, j] /= d
    for i in range(n):
        for k in range(i):
            rhs[i] -= matrix[i, k] * rhs[k]
        rhs[i] /= matrix[i, i]
    for i in range(n - 1, -1, -1):
        for k in range(i + 1, n):
            rhs[i] -= matrix[k, i] * rhs[k]
        rhs[i] /= matrix[i, i]
    return rhs


@njit(cache=True)
def inverse(
    start: np.ndarray,
    point: np.ndarray,
    axis_cup: np.ndarray,
    axis_base: np.ndarray,
    posture: np.ndarray,
    offset: np.ndarray,
    iterations: int,
    weight: float = 0.3,
) -> tuple[bool, np.ndarray]:
    """Solves inverse kinematics by damped least squares with a null-space pull towards `posture`.

    Finds joint positions that put the point `offset` of the cup's frame (origin at the tip) at
    `point` and align the direction `axis_cup` of that frame with `axis_base`. The rotation about
    the axis is free. Once within 3 mm and 1.5 degrees, the iteration continues towards `posture`
    while the greatest joint difference to it decreases. Damping decreases with the error.

    Args:
        start: (7,) initial joint positions, rad
        point: (3,) target of the point, base frame
        axis_cup: (3,) unit vector in the cup's frame
        axis_base: (3,) target of the axis, unit vector in the base frame
        posture: (7,) preferred joint positions, rad
        offset: (3,) point in the cup's frame
        iterations: maximum number of iterations
        weight: weight of the orientation; 0 leaves the whole orientation free

    Returns:
        Whether a solution was found, and the joint positions (7,).
    """
    q = start.copy()
    best = np.inf
    kept = start.copy()
    stale = 0
    pos = np.empty((7, 3))
    rot = np.empty((7, 3, 3))
    jac = np.empty((6, 7))
    error = np.empty(6)
    before = np.inf
    for iteration in range(iterations):
        arm_frames(q, pos, rot)
        turn = rot[6]
        tip = pos[6] + turn[:, 0] * _TIP + turn @ offset
        axis = turn @ axis_cup
        for r in range(3):
            error[r] = point[r] - tip[r]
        error[3] = axis[1] * axis_base[2] - axis[2] * axis_base[1]
        error[4] = axis[2] * axis_base[0] - axis[0] * axis_base[2]
        error[5] = axis[0] * axis_base[1] - axis[1] * axis_base[0]
        facing = axis[0] * axis_base[0] + axis[1] * axis_base[1] + axis[2] * axis_base[2]
        distance = np.sqrt(error[0] ** 2 + error[1] ** 2 + error[2] ** 2)
        turned = np.sqrt(error[3] ** 2 + error[4] ** 2 + error[5] ** 2)
        if weight == 0.0:
            turned, facing = 0.0, 1.0
        if distance < 0.003 and turned < 0.026 and facing > 0.0:
            cost = np.max(np.abs(q - posture))
            if cost < best - 0.005:
                best = cost
                kept = q.copy()
                stale = 0
            else:
                stale += 1
                if stale > 3:
                    break
        elif iteration % 10 == 9:
            # Too little progress in ten iterations: out of reach, or stuck at a limit.
            now = distance + 0.3 * turned + (1.0 if facing < 0.0 else 0.0)
            if now > 0.6 * before:
                break
            before = now
        if facing < 0.0 and turned > 1e-6:
            for r in range(3, 6):
                error[r] /= turned
        scale = min(1.0, 0.15 / max(distance, 1e-9))
        for r in range(3):
            error[r] *= scale
        for i in range(7):
            direction = rot[i, :, _AXES[i]]
            d0, d1, d2 = tip[0] - pos[i, 0], tip[1] - pos[i, 1], tip[2] - pos[i, 2]
            jac[0, i] = direction[1] * d2 - direction[2] * d1
            jac[1, i] = direction[2] * d0 - direction[0] * d2
            jac[2, i] = direction[0] * d1 - direction[1] * d0
            for r in range(3):
                jac[3 + r, i] = weight * direction[r]
        for r in range(3, 6):
            error[r] *= weight
        pull = np.zeros(7)
        gain = 0.03 if best == np.inf else 0.12
        for i in range(7):
            pull[i] = gain * (posture[i] - q[i])
        # min |J dq - e|^2 + damping |dq - pull|^2, solved in the 6-d task space.
        damping = 4e-4 + 2e-3 * min(1.0, distance + weight * turned)
        normal = np.zeros((6, 6))
        rhs = np.empty(6)
        for a in range(6):
            rhs[a] = error[a]
            for i in range(7):
                rhs[a] -= jac[a, i] * pull[i]
            for b in range(a + 1):
                total = 0.0
                for i in range(7):
                    total += jac[a, i] * jac[b, i]
                normal[a, b] = total
                normal[b, a] = total
            normal[a, a] += damping
        solution = _solve(normal, rhs)
        for i in range(7):
            step = pull[i]
            for a in range(6):
                step += jac[a, i] * solution[a]
            q[i] = min(max(q[i] + min(max(step, -0.4), 0.4), LOWER[i]), UPPER[i])
    return best < np.inf, kept if best < np.inf else q
