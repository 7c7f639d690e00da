"""Quaternions, rotation matrices and angles."""

import math
from collections.abc import Sequence

import numpy as np

Vector = Sequence[float]


def yaw_quat(yaw: float) -> tuple[float, float, float, float]:
    """Returns the quaternion (w, x, y, z) of a rotation about z, radians."""
    return (math.cos(yaw / 2), 0.0, 0.0, math.sin(yaw / 2))


def quat_matrix(quat: Vector | np.ndarray) -> np.ndarray:
    """Returns rotation matrices (..., 3, 3) of quaternions (..., 4), (w, x, y, z), unit or not."""
    q = np.asarray(quat, dtype=np.float64)
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    w, x, y, z = q[..., 0], q[..., 1], q[..., 2], q[..., 3]
    matrix = np.empty((*q.shape[:-1], 3, 3))
    matrix[..., 0, 0] = 1 - 2 * (y * y + z * z)
    matrix[..., 0, 1] = 2 * (x * y - w * z)
    matrix[..., 0, 2] = 2 * (x * z + w * y)
    matrix[..., 1, 0] = 2 * (x * y + w * z)
    matrix[..., 1, 1] = 1 - 2 * (x * x + z * z)
    matrix[..., 1, 2] = 2 * (y * z - w * x)
    matrix[..., 2, 0] = 2 * (x * z - w * y)
    matrix[..., 2, 1] = 2 * (y * z + w * x)
    matrix[..., 2, 2] = 1 - 2 * (x * x + y * y)
    return matrix


def matrix_quat(matrix: np.ndarray) -> tuple[float, float, float, float]:
    """Returns the unit quaternion (w, x, y, z), w >= 0, nearest to a rotation matrix (3, 3)."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.tolist()
    # The result is the largest eigenvector of Bar-Itzhack's matrix, which tolerates rounding.
    rows = [
        [a + e + i, h - f, c - g, d - b],
        [h - f, a - e - i, b + d, c + g],
        [c - g, b + d, e - a - i, f + h],
        [d - b, c + g, f + h, i - a - e],
    ]
    best = np.linalg.eigh(np.array(rows))[1][:, -1]
    w, x, y, z = (best if best[0] >= 0 else -best).tolist()
    return (w, x, y, z)


def quat_multiply(a: Vector | np.ndarray, b: Vector | np.ndarray) -> np.ndarray:
    """Returns the Hamilton product (4,) of two quaternions (w, x, y, z): first b, then a."""
    aw, ax, ay, az = a
    bw, bx, by, bz = b
    return np.array(
        [
            aw * bw - ax * bx - ay * by - az * bz,
            aw * bx + ax * bw + ay * bz - az * by,
            aw * by - ax * bz + ay * bw + az * bx,
            aw * bz + ax * by - ay * bx + az * bw,
        ]
    )


def wrap_angle(angle: float) -> float:
    """Returns an angle wrapped to [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi
