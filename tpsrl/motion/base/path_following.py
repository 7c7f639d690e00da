"""Path following of the base: the curve of legs, its tracking, and a forecast.

A curve is an array (n, 6) with a row every 2 cm: x, y, heading, direction, maximum speed (m/s), and
arc length from the start (m). Direction 1 is driving forwards, -1 backwards, and 0 a turn on the
spot to the heading. The command depends only on the curve and the state of the base. It is computed
by pure pursuit (R. C. Coulter, "Implementation of the Pure Pursuit Path Tracking Algorithm",
CMU-RI-TR-92-01, 1992), at a speed from which the base can still brake.
"""

import math

import numpy as np

from tpsrl.runtime.compiled import njit
from tpsrl.world.action import BASE_ANGULAR_RPS, BASE_LINEAR_MPS, CONTROL_HZ

X, Y, YAW, DIRECTION, SPEED, ALONG = range(6)
BRAKE_MPS2, BRAKE_RPS2 = 9.0, 12.0  # decelerations assumed by the tracker
SHORTEST_M = 0.03  # shorter legs only turn
_LEAST_RADIUS_M = 0.12  # least radius of an arc that the tracker can follow
_SHARPEST_RAD = 2.83  # sharpest corner with an arc
_SPACING_M = 0.02
_ARRIVED_M, _EXACT_RAD, _TURNED_RAD, _ABOUT_TURNED_RAD = 0.025, 0.01, 0.03, 0.3
_LEAST_AIM_M, _AIM_S = 0.15, 0.06  # look-ahead distance: constant part, and seconds of the speed
_NEAR_END_M, _NEAR_END_RAD = 0.25, 0.3  # within these, the distance left is measured exactly
_WINDOW = 25  # rows that are searched for the base's position
_SIDEWAYS_RAD = 1.0  # with a larger error of heading the base first turns on the spot
_STILL_RPS = 0.3
# Model of the base, measured in the simulator: physics steps in a control step; for speed along x
# and y (m/s) and about z (rad/s), the largest change in a physics step and the share of the error
# that is corrected.
_SUBSTEPS = 4
_GAIN_MPS, _GAIN_SHARE, _SPIN_RPS, _SPIN_SHARE = 0.154, 0.6, 0.78, 0.74


@njit(cache=True)
def wrap(angle: float) -> float:
    """Returns an angle wrapped to [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


@njit(cache=True)
def curve(start: np.ndarray, legs: np.ndarray) -> np.ndarray:
    """Returns the curve from a base pose (3,) along legs (k, 5).

    A leg is x, y, heading, direction and radius (m) of the arc into the next leg. If the radius is
    0, the directions differ or the arc does not fit, the base turns on the spot.
    """
    count = legs.shape[0]
    length, bend = _lengths(start, legs)
    rows = np.zeros((int(length.sum() * 1.6 / _SPACING_M) + 4 * count + 1, 6))
    n = 0
    x, y, yaw = start[0], start[1], start[2]
    joined = False
    for i in range(count):
        heading, direction = legs[i, 2], legs[i, 3]
        if not joined and (abs(wrap(heading - yaw)) > _TURNED_RAD or i == count - 1):
            rows[n, X], rows[n, Y], rows[n, YAW] = x, y, heading
            n += 1
        yaw, joined = heading, False
        if length[i] < SHORTEST_M:
            continue
        dx, dy = legs[i, 0] - x, legs[i, 1] - y
        share = max(1.0 - bend[i] / max(math.hypot(dx, dy), 1e-9), 0.0)
        points = math.ceil(share * math.hypot(dx, dy) / _SPACING_M - 1e-9)
        for k in range(1, points + 1):
            t = share * k / points
            rows[n, X], rows[n, Y], rows[n, YAW] = x + t * dx, y + t * dy, heading
            rows[n, DIRECTION], rows[n, SPEED] = direction, BASE_LINEAR_MPS
            n += 1
        x, y = x + share * dx, y + share * dy
        if bend[i] > 0.0:
            turn = wrap(legs[i + 1, 2] - heading)
            n = _bend(rows, n, x, y, heading, direction, bend[i], turn)
            x, y, yaw = rows[n - 1, X], rows[n - 1, Y], rows[n - 1, YAW]
            joined = True
    _limit_speeds(rows[:n])
    return rows[:n]


@njit(cache=True)
def _lengths(start: np.ndarray, legs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the length of each leg (k,) and the part that its arc takes (k,), metres."""
    count = legs.shape[0]
    length, bend = np.zeros(count), np.zeros(count)
    x, y = start[0], start[1]
    for i in range(count):
        length[i] = math.hypot(legs[i, 0] - x, legs[i, 1] - y)
        x, y = legs[i, 0], legs[i, 1]
    for i in range(count - 1):
        if min(length[i], length[i + 1]) < SHORTEST_M or legs[i, 3] != legs[i + 1, 3]:
            continue
        turn = abs(wrap(legs[i + 1, 2] - legs[i, 2]))
        if legs[i, 4] <= 0.0 or turn > _SHARPEST_RAD:
            continue
        before = bend[i - 1] if i > 0 else 0.0
        after = length[i + 1] * (0.5 if legs[i + 1, 4] > 0.0 else 1.0)
        tangent = min(legs[i, 4] * math.tan(0.5 * turn), length[i] - before, after)
        bend[i] = tangent if tangent >= _LEAST_RADIUS_M * math.tan(0.5 * turn) else 0.0
    return length, bend


@njit(cache=True)
def _bend(
    rows: np.ndarray,
    n: int,
    x: float,
    y: float,
    yaw: float,
    direction: float,
    tangent: float,
    turn: float,
) -> int:
    """Writes an arc that turns by `turn` (rad) from row `n`; returns the new number of rows."""
    radius = tangent / math.tan(0.5 * max(abs(turn), 1e-6))
    points = max(math.ceil(radius * abs(turn) / _SPACING_M), 1)
    step = turn / points
    chord = 2.0 * radius * math.sin(0.5 * abs(step))
    for i in range(n, n + points):
        x += direction * chord * math.cos(yaw + 0.5 * step)
        y += direction * chord * math.sin(yaw + 0.5 * step)
        yaw += step
        rows[i, X], rows[i, Y], rows[i, YAW], rows[i, DIRECTION] = x, y, yaw, direction
        rows[i, SPEED] = min(BASE_LINEAR_MPS, BASE_ANGULAR_RPS * radius)
    return n + points


@njit(cache=True)
def _limit_speeds(rows: np.ndarray) -> None:
    """Writes the arc length of each row, and lowers speeds to those that braking allows."""
    for i in range(1, rows.shape[0]):
        d = math.hypot(rows[i, X] - rows[i - 1, X], rows[i, Y] - rows[i - 1, Y])
        rows[i, ALONG] = rows[i - 1, ALONG] + d
    for i in range(rows.shape[0] - 2, -1, -1):
        if rows[i, DIRECTION] == 0.0 or rows[i + 1, DIRECTION] != rows[i, DIRECTION]:
            continue  # at the end of a section the tracker brakes by the distance left
        d = rows[i + 1, ALONG] - rows[i, ALONG]
        most = math.sqrt(rows[i + 1, SPEED] ** 2 + 2.0 * BRAKE_MPS2 * d)
        rows[i, SPEED] = min(rows[i, SPEED], most)


@njit(cache=True)
def _turn(error: float) -> float:
    """Returns the angular command in [-1, 1] that corrects a heading error (rad)."""
    rate = min(BASE_ANGULAR_RPS, math.sqrt(2 * BRAKE_RPS2 * abs(error)), 12.0 * abs(error))
    return math.copysign(rate / BASE_ANGULAR_RPS, error)


@njit(cache=True)
def command(
    rows: np.ndarray, at: int, x: float, y: float, yaw: float, spin: float
) -> tuple[float, float, int]:
    """Returns the command (linear, angular) in [-1, 1] at a base pose, and the base's row.

    Args:
        rows: a curve (n, 6).
        at: previous row of the base; n once the curve has been driven.
        x: base position, metres.
        y: base position, metres.
        yaw: heading of the base, rad.
        spin: angular velocity of the base, rad/s.
    """
    n = rows.shape[0]
    while at < n:
        if rows[at, DIRECTION] == 0.0:
            error = wrap(rows[at, YAW] - yaw)
            final = at == n - 1
            enough = _TURNED_RAD if final else _ABOUT_TURNED_RAD
            turning = final and abs(spin) > _STILL_RPS and abs(error) > _EXACT_RAD
            if turning or abs(error) > enough:
                return 0.0, _turn(error), at
            at += 1
            continue
        at, end = _advance(rows, at, x, y)
        direction = rows[end, DIRECTION]
        c, s = direction * math.cos(rows[end, YAW]), direction * math.sin(rows[end, YAW])
        left = rows[end, ALONG] - rows[at, ALONG]
        if left < _NEAR_END_M and abs(wrap(rows[end, YAW] - rows[at, YAW])) < _NEAR_END_RAD:
            left = (rows[end, X] - x) * c + (rows[end, Y] - y) * s
            if left < _ARRIVED_M:
                at = end + 1
                continue
        speed = min(rows[at, SPEED], math.sqrt(2.0 * BRAKE_MPS2 * left))
        aim = _LEAST_AIM_M + _AIM_S * speed
        to = at
        while to < end and rows[to, ALONG] - rows[at, ALONG] < aim:
            to += 1
        over = max(aim - (rows[to, ALONG] - rows[at, ALONG]), 0.0) if to == end else 0.0
        dx, dy = rows[to, X] + over * c - x, rows[to, Y] + over * s - y
        error = wrap(math.atan2(direction * dy, direction * dx) - yaw)
        if abs(error) > _SIDEWAYS_RAD:
            return 0.0, _turn(error), at
        rate = speed * 2.0 * math.sin(error) / math.hypot(dx, dy)
        if abs(rate) > BASE_ANGULAR_RPS:
            speed *= BASE_ANGULAR_RPS / abs(rate)
            rate = math.copysign(BASE_ANGULAR_RPS, rate)
        return direction * speed / BASE_LINEAR_MPS, rate / BASE_ANGULAR_RPS, at
    return 0.0, 0.0, n


@njit(cache=True)
def _advance(rows: np.ndarray, at: int, x: float, y: float) -> tuple[int, int]:
    """Returns the nearest row at or after `at`, and the last row of its section."""
    direction, end = rows[at, DIRECTION], at
    best, found = np.inf, at
    while end < rows.shape[0] and rows[end, DIRECTION] == direction:
        if end <= at + _WINDOW:
            d = (rows[end, X] - x) ** 2 + (rows[end, Y] - y) ** 2
            if d < best:
                best, found = d, end
        end += 1
    return found, end - 1


@njit(cache=True)
def off_way(rows: np.ndarray, at: int, base: np.ndarray) -> tuple[float, float]:
    """Returns the errors of position (m) and heading (rad) of a base (3,) from row `at`."""
    at = min(at, rows.shape[0] - 1)
    away = math.hypot(base[0] - rows[at, X], base[1] - rows[at, Y])
    turn = wrap(base[2] - rows[at, YAW]) if rows[at, DIRECTION] != 0.0 else 0.0
    return away, abs(turn)


@njit(cache=True)
def _gain(speed: float, wanted: float, most: float, share: float) -> float:
    """Returns the speed after one physics step, for actuators that change it by at most `most`."""
    error = wanted - speed
    return speed + (math.copysign(most, error) if abs(error) > most else share * error)


@njit(cache=True)
def forecast(
    rows: np.ndarray, at: int, base: np.ndarray, velocity: np.ndarray, most: int
) -> np.ndarray:
    """Predicts base poses (k, 3) after each control step of driving along a curve.

    Args:
        rows: the curve (n, 6).
        at: row of the base.
        base: (3,) base pose.
        velocity: (3,) of the base, m/s and rad/s, world frame.
        most: maximum number of control steps.
    """
    poses = np.empty((most, 3))
    x, y, yaw = base[0], base[1], base[2]
    vx, vy, spin = velocity[0], velocity[1], velocity[2]
    dt = 1.0 / (CONTROL_HZ * _SUBSTEPS)
    for k in range(most):
        linear, angular, at = command(rows, at, x, y, yaw, spin)
        if at == rows.shape[0]:
            return poses[:k]
        rate = angular * BASE_ANGULAR_RPS
        heading = yaw + 0.5 * rate / CONTROL_HZ
        wx = linear * BASE_LINEAR_MPS * math.cos(heading)
        wy = linear * BASE_LINEAR_MPS * math.sin(heading)
        for _ in range(_SUBSTEPS):
            vx, vy = _gain(vx, wx, _GAIN_MPS, _GAIN_SHARE), _gain(vy, wy, _GAIN_MPS, _GAIN_SHARE)
            spin = _gain(spin, rate, _SPIN_RPS, _SPIN_SHARE)
            x, y, yaw = x + vx * dt, y + vy * dt, yaw + spin * dt
        poses[k, 0], poses[k, 1], poses[k, 2] = x, y, yaw
    return poses
