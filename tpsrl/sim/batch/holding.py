"""Rules of the suction cup and sums of contact forces, for many homes at once.

The rules are those of `tpsrl.sim.mujoco_home.MujocoHome` for one home, without branches on a home's
values, so that no data leaves the device. A test steps both through the same situations.
"""

import dataclasses

import torch

from tpsrl.sim.home_model import HomeModel
from tpsrl.sim.mujoco_home import FAR_OFF_M, FORCE_RISE_N, HANDLE_M, HOLD_LIMIT_M, OFF_M
from tpsrl.world.state import JOINTS


@dataclasses.dataclass(slots=True)
class CupHolds:
    """What each cup holds; the fields are the attributes of `MujocoHome`, for n homes."""

    held: torch.Tensor  # (n,) slot, -1 for none
    held_joint: torch.Tensor  # (n,) index into JOINTS, -1 for none
    leaving: torch.Tensor  # (n,) index into JOINTS, or slot + len(JOINTS); -1 for none
    violation: torch.Tensor  # (n,) bool

    @property
    def any(self) -> torch.Tensor:
        """Whether each cup (n,) holds an object or a handle."""
        return (self.held >= 0) | (self.held_joint >= 0)


@dataclasses.dataclass(frozen=True, slots=True)
class RuleArrays:
    """Arrays of the engine that the rules read; `eq_*` and `cup_margin` are also written."""

    pos: torch.Tensor  # (n, bodies, 3)
    quat: torch.Tensor  # (n, bodies, 4) w, x, y, z
    mat: torch.Tensor  # (n, bodies, 3, 3)
    tip: torch.Tensor  # (n, 3) tip of the cup
    eq_data: torch.Tensor  # (n, equalities, k)
    eq_active: torch.Tensor  # (n, equalities) bool
    cup_margin: torch.Tensor  # (n,)


class HoldRules:
    """Rules of the suction cup for homes of one model.

    Args:
        home: the model and the addresses of its parts.
        device: device of the tensors.
    """

    def __init__(self, home: HomeModel, device: torch.device) -> None:
        def tensor(values: object) -> torch.Tensor:
            return torch.as_tensor(values, device=device)

        self._capacity, self._cup = home.capacity, home.cup_body
        self._slot_body, self._marker_body = tensor(home.slot_body), tensor(home.marker_body)
        self._weld, self._connect = tensor(home.slot_weld), tensor(home.marker_connect)
        self._marker = tensor(home.marker_local).float()
        self._equality = torch.arange(home.model.neq, device=device)
        self._free_margin = float(home.model.geom_margin[home.cup_geom])

    def release(self, holds: CupHolds, bodies: RuleArrays, who: torch.Tensor) -> None:
        """Releases the held objects and handles of the homes `who` (n,) bool."""
        object_, link = who & (holds.held >= 0), who & (holds.held < 0) & (holds.held_joint >= 0)
        off = self._is(self._weld, holds.held, object_)
        off |= self._is(self._connect, holds.held_joint, link)
        bodies.eq_active.logical_and_(~off)
        holds.leaving = torch.where(object_, len(JOINTS) + holds.held, holds.leaving)
        holds.leaving = torch.where(link, holds.held_joint, holds.leaving)
        holds.held = torch.where(object_ | link, -1, holds.held)
        holds.held_joint = torch.where(object_ | link, -1, holds.held_joint)

    def after_step(
        self,
        holds: CupHolds,
        bodies: RuleArrays,
        touched: torch.Tensor,
        grip: torch.Tensor,
        longest: torch.Tensor,
    ) -> None:
        """Updates the holds after a control step, as `MujocoHome._hold` does for one home.

        Args:
            holds: of all homes, updated in place.
            bodies: the engine's arrays after the step; equalities and margins are updated.
            touched: (n,) mark in `HomeModel.geom_grasp` of the geom that touches the cup most
                deeply, -1 for none.
            grip: (n,) bool, whether the actions grip.
            longest: (n, slots) metres, the longest side of each object.
        """
        holding = holds.any
        leaving = ~holding & (holds.leaving >= 0)
        free = ~holding & ~leaving & grip
        holds.violation = holding & (self._error(holds, bodies) >= HOLD_LIMIT_M)
        is_off = self._is_off(holds, bodies, longest)
        again = leaving & ~is_off & grip & (holds.leaving < len(JOINTS))
        self._leave(holds, bodies, leaving & is_off, again)
        self.release(holds, bodies, holds.violation)
        self._weld_on(holds, bodies, touched, free & (touched >= 0) & (touched < self._capacity))
        self._hold_link(holds, bodies, touched - self._capacity, free & (touched >= self._capacity))

    def _is(self, table: torch.Tensor, index: torch.Tensor, who: torch.Tensor) -> torch.Tensor:
        """Returns the mask (n, equalities) of the `index`-th entry of a table, for homes `who`."""
        chosen = table[index.clamp(0, len(table) - 1)]
        return (self._equality == chosen[:, None]) & who[:, None]

    def _error(self, holds: CupHolds, bodies: RuleArrays) -> torch.Tensor:
        """Returns the distances (n,) of the tip from the held object's centre or handle."""
        centre = _of(bodies.pos, self._slot_body, holds.held)
        _, pos, mat, anchor = self._handle(bodies, holds.held_joint)
        taken = pos + _turn(mat, anchor)
        place = torch.where((holds.held_joint >= 0)[:, None], taken, centre)
        return (bodies.tip - place).norm(dim=1)

    def _handle(
        self, bodies: RuleArrays, joint: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Returns index and pose of a door or drawer, and the cup's grasp point in its frame."""
        index = joint.clamp(0, len(JOINTS) - 1)
        pos = _of(bodies.pos, self._marker_body, index)
        mat = _of(bodies.mat, self._marker_body, index)
        return index, pos, mat, _of(bodies.eq_data, self._connect, index)[:, 3:6]

    def _is_off(self, holds: CupHolds, bodies: RuleArrays, longest: torch.Tensor) -> torch.Tensor:
        """Returns whether the cups (n,) are clear of released objects, as `MujocoHome._is_off`."""
        slot = (holds.leaving - len(JOINTS)).clamp(0, self._capacity - 1)
        away = (bodies.tip - _of(bodies.pos, self._slot_body, slot)).norm(dim=1)
        off_object = away >= longest.gather(1, slot[:, None])[:, 0]
        _, pos, mat, anchor = self._handle(bodies, holds.leaving)
        local = _turn(mat.mT, bodies.tip - pos) - anchor
        away = local.norm(dim=1)
        off_link = ((away > OFF_M) & (local[:, 0] > 0.0)) | (away > FAR_OFF_M)
        return torch.where(holds.leaving >= len(JOINTS), off_object, off_link)

    def _leave(
        self, holds: CupHolds, bodies: RuleArrays, off: torch.Tensor, again: torch.Tensor
    ) -> None:
        """Ends a release where the cup is clear (`off`) or holds the handle again (`again`)."""
        bodies.cup_margin.copy_(torch.where(off, self._free_margin, bodies.cup_margin))
        bodies.eq_active.logical_or_(self._is(self._connect, holds.leaving, again))
        holds.held_joint = torch.where(again, holds.leaving, holds.held_joint)
        holds.leaving = torch.where(off | again, -1, holds.leaving)

    def _weld_on(
        self, holds: CupHolds, bodies: RuleArrays, slot: torch.Tensor, who: torch.Tensor
    ) -> None:
        """Holds objects at their current poses relative to the cup."""
        index = slot.clamp(0, self._capacity - 1)
        pos, quat = (_of(values, self._slot_body, index) for values in (bodies.pos, bodies.quat))
        cup_pos, cup_quat = bodies.pos[:, self._cup], bodies.quat[:, self._cup]
        data = _of(bodies.eq_data, self._weld, index).clone()
        data[:, 0:3] = 0.0
        data[:, 3:6] = _turn(bodies.mat[:, self._cup].mT, pos - cup_pos)
        data[:, 6:10] = _after_inverse(cup_quat, quat)
        data[:, 10] = 1.0
        self._switch_on(bodies, self._is(self._weld, index, who), data, who)
        holds.held = torch.where(who, slot, holds.held)

    def _hold_link(
        self, holds: CupHolds, bodies: RuleArrays, joint: torch.Tensor, who: torch.Tensor
    ) -> None:
        """Holds doors and drawers by a ball joint at the tip, where the tip is near the handle."""
        index, pos, mat, _ = self._handle(bodies, joint)
        local = _turn(mat.mT, bodies.tip - pos)
        who = who & ((local - self._marker[index]).norm(dim=1) <= HANDLE_M)
        data = _of(bodies.eq_data, self._connect, index).clone()
        data[:, 0:3] = _turn(bodies.mat[:, self._cup].mT, bodies.tip - bodies.pos[:, self._cup])
        data[:, 3:6] = local
        self._switch_on(bodies, self._is(self._connect, index, who), data, who)
        holds.held_joint = torch.where(who, joint, holds.held_joint)

    def _switch_on(
        self, bodies: RuleArrays, which: torch.Tensor, data: torch.Tensor, who: torch.Tensor
    ) -> None:
        """Writes `data` (n, k) into the equalities `which` (n, equalities) and activates them."""
        bodies.eq_data.copy_(torch.where(which[..., None], data[:, None], bodies.eq_data))
        bodies.eq_active.logical_or_(which)
        # With a margin of -1 m the cup has no contacts, which would work against the hold.
        bodies.cup_margin.copy_(torch.where(who, -1.0, bodies.cup_margin))


@dataclasses.dataclass(slots=True)
class ContactForces:
    """Contact forces (n,) in newton: `force`, `force_total` and `_force_level` of `MujocoHome`."""

    last: torch.Tensor
    total: torch.Tensor
    level: torch.Tensor  # from which the next rise is measured

    def count(self, force: torch.Tensor) -> None:
        """Sums the rises of the force (n,) from step to step, as habitat-lab's RobotForce does."""
        rise = force - self.level
        counts = rise > FORCE_RISE_N
        self.total = self.total + torch.where(counts, rise, 0.0)
        self.level = torch.where(counts | (rise < 0.0), force, self.level)
        self.last = force


def _of(values: torch.Tensor, table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """Returns each home's row of `values` (n, m, ...) at the `index`-th (n,) entry of a table."""
    rows = torch.arange(len(values), device=values.device)
    return values[rows, table[index.clamp(0, len(table) - 1)].long()]


def _turn(mat: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    """Rotates vectors (n, 3) by matrices (n, 3, 3)."""
    return torch.einsum("nij,nj->ni", mat, vectors)


def _after_inverse(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Returns quaternions (n, 4) of the rotation by `second`, then by the inverse of `first`."""
    w, v = first[:, :1], -first[:, 1:]
    other_w, other = second[:, :1], second[:, 1:]
    real = w * other_w - (v * other).sum(1, keepdim=True)
    return torch.cat([real, w * other + other_w * v + torch.cross(v, other, dim=1)], 1)
