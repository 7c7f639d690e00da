"""Ant and humanoid running: observations, rewards and ends of episodes (Liang et al. 2018).

Pure functions of arrays, batch axis first. Observation: table 2, column "Ours". Reward: appendix C,
equations 1 to 3. The target lies straight ahead along x, infinitely far off.
"""

import dataclasses

import numpy as np

TERMS = ("alive", "speed", "heading", "standing", "torque", "action", "limits", "feet")
_TURNED, _UPRIGHT = 0.8, 0.93  # cosines in equations 2 and 3
_AT_LIMIT = 0.99  # of a joint's half range; OpenAI Roboschool's


@dataclasses.dataclass(frozen=True, slots=True)
class RunningTask:
    """Constants of one robot.

    `fallen_m` is the height of the torso below which an episode ends, that of Roboschool, since the
    paper gives none. `thresholds` are the paper's for the return of an episode (section 4.1).
    """

    model: str  # file of gymnasium's assets
    alive: float  # reward
    fallen_m: float
    feet: tuple[str, ...]  # geoms
    thresholds: tuple[float, float]


RUNNING_TASKS = {
    "ant": RunningTask(
        "ant.xml",
        0.5,
        0.26,
        ("left_ankle_geom", "right_ankle_geom", "third_ankle_geom", "fourth_ankle_geom"),
        (3000.0, 7000.0),
    ),
    "humanoid": RunningTask(
        "humanoid.xml", 2.0, 0.78, ("right_foot", "left_foot"), (3000.0, 5000.0)
    ),
}


@dataclasses.dataclass(frozen=True, slots=True)
class RunnerLimits:
    """Limits of a robot: joint ranges (n, 2) rad, and the largest torque of each motor (n,) N m."""

    joint_range: np.ndarray
    torque: np.ndarray


@dataclasses.dataclass(frozen=True, slots=True)
class RunnerPose:
    """State of robots after a step.

    `quaternion` is (w, x, y, z). Velocities are in the world frame, angular velocities in the
    torso's.
    """

    height: np.ndarray  # (m,) m
    quaternion: np.ndarray  # (m, 4)
    velocity: np.ndarray  # (m, 3) m/s
    turning: np.ndarray  # (m, 3) rad/s
    joints: np.ndarray  # (m, n) rad
    joint_speeds: np.ndarray  # (m, n) rad/s
    contact: np.ndarray  # (m, f) bool, feet on the ground


def observation_size(joints: int, feet: int) -> int:
    """Returns the length of an observation."""
    return 11 + 3 * joints + feet


def observe(pose: RunnerPose, action: np.ndarray, body: RunnerLimits) -> np.ndarray:
    """Computes observations (m, k) float32: the rows of table 2 in their order.

    Height, roll and pitch, velocity in the heading frame, angular velocity, sine and cosine of the
    angle to the target, joint angles and velocities, motor torques over the largest of all, feet in
    contact.
    """
    roll, pitch, yaw = angles(pose.quaternion)
    cos, sin = np.cos(yaw), np.sin(yaw)
    vx, vy, vz = pose.velocity.T
    ahead = np.stack([cos * vx + sin * vy, cos * vy - sin * vx, vz], 1)
    torque = np.clip(action, -1.0, 1.0) * body.torque / body.torque.max()
    parts = [
        np.stack([pose.height, roll, pitch], 1), ahead, pose.turning, np.stack([-sin, cos], 1),
        pose.joints, pose.joint_speeds, torque, pose.contact,
    ]  # fmt: skip
    return np.concatenate(parts, 1).astype(np.float32)


def reward_terms(
    pose: RunnerPose, action: np.ndarray, task: RunningTask, body: RunnerLimits, costs: str = "mean"
) -> dict[str, np.ndarray]:
    """Computes the `TERMS` (m,) of equation 1, whose sum is the reward.

    Args:
        pose: after the step
        action: (m, n) of the policy; motors clip it to [-1, 1]
        task: constants of the robot
        body: limits of the robot
        costs: of torques and actions, "sum" over motors as the equation is printed, or their "mean"
            as in Roboschool, from which the paper's terms come
    """
    _, _, yaw = angles(pose.quaternion)
    x, y = pose.quaternion[:, 1], pose.quaternion[:, 2]
    upright = 1.0 - 2.0 * (x * x + y * y)  # of the torso's z axis
    used = np.clip(action, -1.0, 1.0)
    over = 1.0 if costs == "sum" else 1.0 / action.shape[1]
    low, high = body.joint_range.T
    relative = (2.0 * pose.joints - high - low) / (high - low)
    return {
        "alive": np.full(len(yaw), task.alive),
        "speed": pose.velocity[:, 0],
        "heading": 0.5 * np.minimum(np.cos(yaw) / _TURNED, 1.0),
        "standing": 0.05 * (upright > _UPRIGHT),
        "torque": -4.0 * over * np.abs(used * body.torque).sum(1) / body.torque.max(),
        "action": -0.5 * over * np.square(used).sum(1),
        "limits": -0.2 * (np.abs(relative) > _AT_LIMIT).sum(1),
        "feet": -1.0 * pose.contact.sum(1),
    }


def fallen(pose: RunnerPose, task: RunningTask) -> np.ndarray:
    """Returns which robots (m,) bool have fallen, which ends an episode."""
    return pose.height < task.fallen_m


def angles(quaternion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes roll, pitch and yaw (m,), rad, of quaternions (m, 4).

    The rotations are about z, then y, then x.
    """
    w, x, y, z = quaternion.T
    roll = np.arctan2(2 * (w * x + y * z), 1 - 2 * (x * x + y * y))
    pitch = np.arcsin(np.clip(2 * (w * y - z * x), -1.0, 1.0))
    yaw = np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    return roll, pitch, yaw
