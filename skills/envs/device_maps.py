"""Map sensors of a skill as tensors, for homes that step together on a device.

The readings are those of `skills.envs.map_sensors`. Maps belong to start states. They are computed
on the processor before the training begins, and equal maps are stored once.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from skills.core.path_metrics import PathProgress
from skills.core.sensors import HAND_WAY, SCAN, SHAPE, TRAIL, WAY, Readings
from skills.core.skill import Skill
from skills.envs.path_meter import PathMeter
from skills.envs.trail import KEPT
from skills.starts.start import Start
from tpsrl.errors import UserError
from tpsrl.sim.batch.base import BatchSimulator
from tpsrl.world.floor import FloorMap, floor_map, rounded
from tpsrl.world.hand_path import AHEAD, CELLS, COSTS, NEAR, hand_field
from tpsrl.world.hand_path import CELL_M as HAND_CELL_M
from tpsrl.world.objects import object_kind
from tpsrl.world.state import WorldState

_SIDE = 2 * CELLS + 1  # cells of a hand field along each axis
_TINY = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class Begun:
    """Where skills begin, in k start states; float64 arrays in metres and radians.

    Attributes:
        base: (k, 3) base poses
        joints: (k, joints) positions of doors and drawers
        goals: (k, 2 or 3) results of `Skill.destination`
    """

    base: np.ndarray
    joints: np.ndarray
    goals: np.ndarray


class _Tables:
    """Arrays of one shape by start state, on a device; equal ones are stored once."""

    def __init__(self) -> None:
        self._known: dict[Any, int] = {}
        self._values: list[tuple[np.ndarray, ...]] = []
        self._rows: list[int] = []

    def add(self, key: Any, make: Callable[[], tuple[np.ndarray, ...]]) -> None:
        """Adds the arrays of the next start state; `make` is called for a new key only."""
        if key not in self._known:
            self._known[key] = len(self._values)
            self._values.append(make())
        self._rows.append(self._known[key])

    def tensors(self, device: torch.device) -> tuple[torch.Tensor, ...]:
        """Returns the row (k,) of each start state, and the tables, float32.

        Raises:
            UserError: the shapes differ.
        """
        kinds = {tuple(values.shape for values in one) for one in self._values}
        if len(kinds) > 1:
            raise UserError("layout: homes of one batch must have the same layout set")
        rows = torch.tensor(self._rows, device=device)
        tables = []
        for column in range(len(self._values[0])):
            table = np.stack([values[column] for values in self._values])
            tables.append(torch.from_numpy(table).to(device, torch.float32))
        self._values = []
        return (rows, *tables)


class DeviceMaps:
    """Readings of map, path, scan and object for n homes on a device.

    Args:
        skill: definition of the skill
        names: names of the sensors
        thresholds: success thresholds of the skill
        starts: k start states
        begin: returns where the skill begins in these; called if a sensor or reward needs a map
        num_envs: n
        device: of all tensors
        rewards_way: whether progress of the base along its path is rewarded
        rewards_hand: whether progress of the cup along its path is rewarded

    Raises:
        UserError: the apartments are of different sets.
    """

    def __init__(
        self,
        skill: Skill,
        names: Sequence[str],
        thresholds: Any,
        starts: Sequence[Start],
        begin: Callable[[], Begun],
        num_envs: int,
        device: torch.device,
        rewards_way: bool = False,
        rewards_hand: bool = False,
    ) -> None:
        layouts = [start.episode.layout for start in starts]
        self._rewards_way, self._rewards_hand = rewards_way, rewards_hand
        self._shows_way, self._shows_hand = WAY in names, HAND_WAY in names
        follows_base = self._shows_way or rewards_way or rewards_hand
        follows_hand = self._shows_hand or rewards_hand
        self._way: FloorPaths | None = None
        self._hand: HandPaths | None = None
        self._scan: FloorScan | None = None
        if follows_base or follows_hand or SCAN in names:
            begun = begin()
            if follows_base:
                self._way = FloorPaths(skill, thresholds, layouts, begun, num_envs, device)
            if follows_hand:
                self._hand = HandPaths(layouts, begun, num_envs, device)
            if SCAN in names:
                self._scan = FloorScan(layouts, begun, device)
        self._trail = torch.zeros(num_envs, 3, 3, device=device) if TRAIL in names else None
        self._kept = torch.from_numpy(KEPT).float().to(device)
        self._extent = _extents(starts).to(device) if SHAPE in names else None

    def begin(self, which: torch.Tensor, start: torch.Tensor, world: WorldState) -> None:
        """Starts the skill in the homes under `which` (n,), in start states (n,)."""
        if self._way is not None:
            self._way.begin(which, start, world)
        if self._hand is not None:
            self._hand.begin(which, start, world)
        if self._trail is not None:
            new = which[:, None, None]
            self._trail = torch.where(new, _points(world), self._trail)

    def drive(self, start: torch.Tensor, world: WorldState) -> PathProgress | None:
        """Updates paths and trail after the control step that led to `world`.

        Returns:
            The progress along the paths, None if the reward does not depend on it.
        """
        if self._trail is not None:
            self._trail = _points(world) - self._kept * self._away(world)
        if self._way is None or not (self._rewards_way or self._rewards_hand):
            return None
        path = self._way.drive(start, world)
        if self._rewards_hand and self._hand is not None:
            path.hand = self._hand.drive(start, world)
        return path

    def read(
        self, readings: Readings, start: torch.Tensor, world: WorldState, batch: BatchSimulator
    ) -> None:
        """Adds the readings at the current positions of `batch`'s homes to `readings`, in place."""
        if self._shows_way and self._way is not None:
            readings.way = self._way.ahead(start, world.base)
        if self._shows_hand and self._hand is not None:
            readings.hand = self._hand.ahead(start, world)
        if self._scan is not None:
            readings.scan = self._scan.ranges(start, batch)
        if self._trail is not None:
            readings.trail = self._away(world)
        if self._extent is not None:
            readings.extent = self._extent[start]

    def _away(self, world: WorldState) -> torch.Tensor:
        """See `skills.envs.trail.Trail.away`."""
        assert self._trail is not None
        away = _points(world) - self._trail
        yaw = away[:, 2, 2]
        return torch.cat(
            [away.flatten(1)[:, :-1], torch.atan2(yaw.sin(), yaw.cos())[:, None]], 1
        ).reshape(away.shape)


def _points(world: WorldState) -> torch.Tensor:
    return torch.stack((world.ee_pos, world.ee_pos, world.base), 1)


def _extents(starts: Sequence[Start]) -> torch.Tensor:
    """Returns the half extents (k, 3) of the objects, zeros for none."""
    half = []
    for start in starts:
        index = start.goal.object
        kind = object_kind(start.episode.objects[index].name) if index >= 0 else None
        half.append((0.0, 0.0, 0.0) if kind is None else kind.half)
    return torch.tensor(np.array(half), dtype=torch.float32)


class FloorPaths:
    """Paths of bases along the floor; `skills.envs.path_meter.PathMeter` as tensors."""

    def __init__(
        self,
        skill: Skill,
        thresholds: Any,
        layouts: Sequence[str],
        begun: Begun,
        num_envs: int,
        device: torch.device,
    ) -> None:
        reach_m, tables = skill.reach_m(thresholds), _Tables()
        near = reach_m is None
        for layout, base, joints, goal in zip(
            layouts, begun.base, begun.joints, begun.goals, strict=True
        ):

            def made(
                layout: str = layout,
                base: np.ndarray = base,
                joints: np.ndarray = joints,
                goal: np.ndarray = goal,
            ) -> tuple[np.ndarray, ...]:
                meter = PathMeter(1, reach_m or 0.0, near=near, allow_unreachable=True)
                field = meter.field_from(layout, goal, joints, base[:2])
                return field.apex, np.array(field.frame)

            # A path to where the arm reaches the goal depends on where it begins, too.
            begins = base[:2].tobytes() if near else b""
            tables.add((layout, goal.tobytes(), rounded(joints), begins), made)
        self._row, self._apex, self._frame = tables.tensors(device)
        ny, nx = self._apex.shape[1:3]
        self._last = torch.tensor((nx - 2, ny - 2)).to(device)
        self._corners = torch.cartesian_prod(*[torch.arange(2)] * 2).to(device)  # of a cell
        self._left = torch.zeros(num_envs, device=device)
        self._shortest = torch.zeros(num_envs, device=device)
        self._driven = torch.zeros(num_envs, device=device)
        self._here = torch.zeros(num_envs, 2, device=device)

    def begin(self, which: torch.Tensor, start: torch.Tensor, world: WorldState) -> None:
        """Starts the paths of the homes under `which`."""
        here = torch.as_tensor(world.base)[:, :2]
        shortest = self._distance(start, here)
        self._shortest = torch.where(which, shortest, self._shortest)
        self._left = torch.where(which, shortest, self._left)
        self._driven = torch.where(which, 0.0, self._driven)
        self._here = torch.where(which[:, None], here, self._here)

    def drive(self, start: torch.Tensor, world: WorldState) -> PathProgress:
        """Returns the progress after a control step."""
        here = torch.as_tensor(world.base)[:, :2].clone()
        self._driven = self._driven + torch.linalg.vector_norm(here - self._here, dim=1)
        self._here = here
        left, before = self._distance(start, here), self._left
        left = torch.where(left.isfinite(), left, before)
        self._left = left
        gained = torch.where(before.isfinite(), before - left, 0.0)
        return PathProgress(self._shortest, left, gained, self._driven)

    def ahead(self, start: torch.Tensor, base: Any) -> torch.Tensor:
        """Returns length left and next corner of each path, (n, 3).

        See `tpsrl.world.geodesic.DistanceFields.ahead`.
        """
        base = torch.as_tensor(base)
        here = base[:, :2]
        left = self._distance(start, here)
        known = left.isfinite()
        row = self._row[start]
        at, _ = self._cell(row, here)
        cell = at.floor().long()
        corner = self._apex[row, *self._inside(cell)][:, :2]
        away = torch.where(known[:, None], corner - here, 0.0)
        c, s = base[:, 2].cos(), base[:, 2].sin()
        x, y = away[:, 0], away[:, 1]
        return torch.stack((torch.where(known, left, 0.0), c * x + s * y, c * y - s * x), 1)

    def _cell(self, row: torch.Tensor, here: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns positions (n, 2) in cells, and which (n,) are on the map."""
        frame = self._frame[row]
        at = (here - frame[:, :2]) / frame[:, 2:]
        ny, nx = self._apex.shape[1:3]
        x, y = at[:, 0], at[:, 1]
        return at, (x >= 0.0) & (y >= 0.0) & (x < nx) & (y < ny)

    def _inside(self, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns row and column of cells (n, 2: x, y), moved onto the map."""
        ny, nx = self._apex.shape[1:3]
        return cell[:, 1].clamp(0, ny - 1), cell[:, 0].clamp(0, nx - 1)

    def _distance(self, start: torch.Tensor, here: torch.Tensor) -> torch.Tensor:
        """Returns the distances (n,) to the goals; see `tpsrl.world.geodesic.field_distance`."""
        row = self._row[start]
        at, valid = self._cell(row, here)
        valid = valid & self._apex[row, *self._inside(at.floor().long())][:, 2].isfinite()
        low = (at - 0.5).floor().clamp(min=0.0).minimum(self._last)
        part = (at - 0.5 - low).clamp(0.0, 1.0)
        total, weight = torch.zeros_like(at[:, 0]), torch.zeros_like(at[:, 0])
        for corner in self._corners:
            apex = self._apex[row, *self._inside(low.long() + corner)]
            share = torch.where(corner == 1, part, 1.0 - part).prod(1)
            known = apex[:, 2].isfinite() & (share > 0.0)
            through = apex[:, 2] + torch.linalg.vector_norm(here - apex[:, :2], dim=1)
            total = total + torch.where(known, share * through, 0.0)
            weight = weight + torch.where(known, share, 0.0)
        return torch.where(valid & (weight > 0.0), total / weight, math.inf)


class HandPaths:
    """Paths of cups through the air; `skills.envs.hand_meter.HandMeter` as tensors."""

    def __init__(
        self, layouts: Sequence[str], begun: Begun, num_envs: int, device: torch.device
    ) -> None:
        tables = _Tables()
        for layout, joints, goal in zip(layouts, begun.joints, begun.goals, strict=True):
            where = layout, tuple(map(float, goal)), rounded(joints)

            def made(where: Any = where) -> tuple[np.ndarray, ...]:
                field = hand_field(*where)
                return field.distance, field.origin

            tables.add(where, made)
        self._row, self._field, self._origin = tables.tensors(device)
        self._known: tuple[WorldState, torch.Tensor] | None = None  # last result of `ahead`
        self._left = torch.zeros(num_envs, device=device)
        near = torch.arange(-NEAR, NEAR + 1)
        every = torch.cartesian_prod(*[torch.arange(_SIDE)] * 3)
        step = torch.cartesian_prod(*[torch.arange(-1, 2)] * 3)
        step = step[(step != 0).any(1)]
        costs = 0.1 * HAND_CELL_M * torch.tensor(COSTS)[step.abs().sum(1)]
        self._around = torch.cartesian_prod(near, near, near).to(device)  # (125, 3)
        self._faces = every[((every == 0) | (every == _SIDE - 1)).any(1)].to(device)
        self._steps, self._costs = step.to(device), costs.to(device)  # of 26 neighbours
        self._order = torch.arange(1, len(step) + 1).to(device)

    def begin(self, which: torch.Tensor, start: torch.Tensor, world: WorldState) -> None:
        """Starts the paths of the homes under `which`."""
        left = self.ahead(start, world)[:, 0]
        self._left = torch.where(which, left, self._left)

    def drive(self, start: torch.Tensor, world: WorldState) -> torch.Tensor:
        """Returns the decrease (n,) in metres of the length left in the last step."""
        left = self.ahead(start, world)[:, 0]
        gained, self._left = self._left - left, left
        return gained

    def ahead(self, start: torch.Tensor, world: WorldState) -> torch.Tensor:
        """Returns length left and next point of each path, (n, 4).

        See `tpsrl.world.hand_path.HandFields.ahead`.
        """
        # `begin` and `drive` need it for the same world as the observation.
        if self._known is None or self._known[0] is not world:
            self._known = world, self._searched(start, world)
        return self._known[1]

    def _searched(self, start: torch.Tensor, world: WorldState) -> torch.Tensor:
        row = self._row[start]
        cup, base = torch.as_tensor(world.ee_pos), torch.as_tensor(world.base)
        at = (cup - self._origin[row]) / HAND_CELL_M
        middle = at.clamp(-9.0, _SIDE + 9.0).round().long()
        left, cell = self._best(row, at, middle[:, None] + self._around)
        outside, on_face = self._best(row, at, self._faces.expand(len(row), -1, -1))
        found = left.isfinite()
        left = torch.where(found, left, outside)
        cell = torch.where(found[:, None], cell, on_face)
        here = self._at(row, cell[:, None])[:, 0]
        there = cell
        for _ in range(AHEAD):
            there = self._descended(row, there)
        close = here < NEAR * HAND_CELL_M
        there = torch.where(close[:, None], torch.full_like(cell, CELLS), there)
        away = (there - at) * HAND_CELL_M
        c, s = base[:, 2].cos(), base[:, 2].sin()
        x, y = away[:, 0], away[:, 1]
        ahead = torch.stack((left, c * x + s * y, c * y - s * x, away[:, 2]), 1)
        return torch.where(left.isfinite()[:, None], ahead, 0.0)

    def _at(self, row: torch.Tensor, cells: torch.Tensor) -> torch.Tensor:
        """Returns the distances (n, k) of cells (n, k, 3), inf outside the cube."""
        inside = ((cells >= 0) & (cells < _SIDE)).all(-1)
        i, j, k = cells.clamp(0, _SIDE - 1).unbind(-1)
        return torch.where(inside, self._field[row[:, None], i, j, k], math.inf)

    def _best(
        self, row: torch.Tensor, at: torch.Tensor, cells: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns the shortest way (n,) through one of the cells (n, k, 3), and that cell."""
        apart = torch.linalg.vector_norm(cells - at[:, None], dim=-1) * HAND_CELL_M
        left, place = (self._at(row, cells) + apart).min(1)
        return left, cells.gather(1, place[:, None, None].expand(-1, 1, 3))[:, 0]

    def _descended(self, row: torch.Tensor, cell: torch.Tensor) -> torch.Tensor:
        """Returns the neighbours (n, 3) of cells on their shortest paths."""
        here = self._at(row, cell[:, None])
        around = cell[:, None] + self._steps
        there = self._at(row, around)
        total = torch.where(there < here, there + self._costs, math.inf)
        # Of equal neighbours the last one, as on the processor.
        best = total.min(1, keepdim=True).values
        last = torch.where(total <= best + _TINY, self._order, 0).argmax(1)
        moved = around.gather(1, last[:, None, None].expand(-1, 1, 3))[:, 0]
        return torch.where((best <= here + _TINY) & best.isfinite(), moved, cell)


class FloorScan:
    """Maps of `tpsrl.world.scan.Scanner`, on which the engine casts the rays."""

    def __init__(self, layouts: Sequence[str], begun: Begun, device: torch.device) -> None:
        tables = _Tables()
        origins = set()
        for layout, joints in zip(layouts, begun.joints, strict=True):
            where = layout, rounded(joints)
            found = floor_map(layout, joints=where[1])
            origins.add(found.origin)
            tables.add(where, functools.partial(_distance_of, found))
        if len(origins) > 1:
            raise UserError("layout: homes of one batch must have the same layout set")
        (self._origin,) = origins
        self._row, self._distance = tables.tensors(device)

    def ranges(self, start: torch.Tensor, batch: BatchSimulator) -> torch.Tensor:
        """Returns ranges (n, RAYS) in metres; see `tpsrl.world.scan.Scanner.ranges`."""
        return batch.scan(self._distance, self._origin, self._row[start])


def _distance_of(floor: FloorMap) -> tuple[np.ndarray, ...]:
    return (floor.distance,)
