"""Writes the state of one home into a batch of world states, compiled."""

import numpy as np

from tpsrl.runtime.compiled import njit


@njit(cache=True)
def observe(
    row: int,
    held: int,
    base: np.ndarray,
    arm: np.ndarray,
    base_velocity: np.ndarray,
    joints: np.ndarray,
    joint_qpos: np.ndarray,
    xpos: np.ndarray,
    xquat: np.ndarray,
    slot_body: np.ndarray,
    num_objects: int,
    marker_body: np.ndarray,
    marker_local: np.ndarray,
    cup_body: int,
    cup_pos: np.ndarray,
    moving: tuple[np.ndarray, ...],
    poses: tuple[np.ndarray, ...],
) -> None:
    """Copies the engine's state of a home into row `row` of the outputs.

    Args:
        row: index of the home in the batch.
        held: slot of the held object, -1 for none.
        base, arm, base_velocity: (3,), (7,), (3,).
        joints: all of qpos; `joint_qpos` (5,) are the addresses of the doors and drawers.
        xpos, xquat: (bodies, 3), (bodies, 4).
        slot_body: body of each slot; the episode uses the first `num_objects` slots.
        marker_body, marker_local: (5,), (5, 3) in the body's frame.
        cup_body, cup_pos: body of the cup, and position of the cup's tip (3,).
        moving: outputs base, base_velocity, arm, joints, marker_pos, held.
        poses: outputs ee_pos, ee_quat, object_pos, object_quat.
    """
    out_base, out_velocity, out_arm, out_joints, out_markers, out_held = moving
    ee_pos, ee_quat, object_pos, object_quat = poses
    for k in range(3):
        out_base[row, k] = base[k]
        out_velocity[row, k] = base_velocity[k]
        ee_pos[row, k] = cup_pos[k]
    for k in range(4):
        ee_quat[row, k] = xquat[cup_body, k]
    for k in range(7):
        out_arm[row, k] = arm[k]
    out_held[row] = held
    for i in range(object_pos.shape[1]):
        if i >= num_objects:
            object_pos[row, i, :] = np.nan
            object_quat[row, i, :] = np.nan
            continue
        body = slot_body[i]
        object_pos[row, i] = xpos[body]
        object_quat[row, i] = xquat[body]
    for i in range(joint_qpos.shape[0]):
        out_joints[row, i] = joints[joint_qpos[i]]
        body = marker_body[i]
        _transform(xpos[body], xquat[body], marker_local[i], out_markers[row, i])


@njit(cache=True)
def _transform(pos: np.ndarray, quat: np.ndarray, local: np.ndarray, out: np.ndarray) -> None:
    """Transforms a point (3,) from a body's frame to the world frame."""
    w, x, y, z = quat[0], quat[1], quat[2], quat[3]
    # v + 2 w (q x v) + 2 q x (q x v)
    cx = y * local[2] - z * local[1]
    cy = z * local[0] - x * local[2]
    cz = x * local[1] - y * local[0]
    out[0] = pos[0] + local[0] + 2.0 * (w * cx + y * cz - z * cy)
    out[1] = pos[1] + local[1] + 2.0 * (w * cy + z * cx - x * cz)
    out[2] = pos[2] + local[2] + 2.0 * (w * cz + x * cy - y * cx)
