"""The engine `warp` as a `Simulator`, for environments, evaluations and videos."""

from collections.abc import Sequence

import mujoco
import numpy as np
import torch

from tpsrl.errors import UserError
from tpsrl.sim import engines
from tpsrl.sim.base import Capabilities, Snapshot
from tpsrl.sim.mujoco_sim import MujocoSimulator, checked_actions
from tpsrl.sim.warp.batch import WarpBatch
from tpsrl.sim.warp.starts import start_of
from tpsrl.world.action import SIZE
from tpsrl.world.episode import Episode

_NO_SNAPSHOTS = "engine: 'warp' cannot take exact snapshots; use engine=mujoco"


class WarpSimulator(MujocoSimulator):
    """`tpsrl.sim.base.Simulator` whose physics is a `WarpBatch`.

    Each home has a twin in the C engine, which prepares the start states and then mirrors the state
    of the device without being stepped: pictures, scans and shapes are taken of the twins. A step
    of some of the homes costs as much as a step of all homes.
    """

    def __init__(
        self,
        num_envs: int = 1,
        slots: int = 30,
        layout_set: str = "replica_cad",
        filter_base: bool = True,
        device: str | None = None,
    ) -> None:
        super().__init__(num_envs, slots, layout_set, filter_base)
        self.batch = WarpBatch(num_envs, slots, layout_set, filter_base, device)
        self._fresh = np.ones(num_envs, dtype=bool)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the embedded engine, without exact snapshots."""
        return engines.info("warp").capabilities

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.base.Simulator.reset`."""
        super().reset(env_ids, episodes)
        if not env_ids:
            return
        starts = [start_of(self.home, self.homes[env]) for env in env_ids]
        if self._fresh.any():
            # Homes that have not been reset yet need a valid state, since all homes step together.
            others = [env for env in np.flatnonzero(self._fresh).tolist() if env not in env_ids]
            self.batch.begin(others, [starts[0]] * len(others))
            self._fresh[:] = False
        self.batch.begin(env_ids, starts)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        """See `tpsrl.sim.base.Simulator.step`."""
        actions = checked_actions(actions, len(env_ids))
        all_actions, moving = torch.zeros(self.num_envs, SIZE), np.zeros(self.num_envs, dtype=bool)
        all_actions[list(env_ids)] = torch.from_numpy(actions).float()
        moving[list(env_ids)] = True
        self.batch.step(all_actions, None if moving.all() else torch.from_numpy(moving))
        self.batch.check()
        self._follow(env_ids)

    def _follow(self, env_ids: Sequence[int]) -> None:
        """Copies the state of homes to their twins."""
        batch = self.batch
        holds, forces = batch.holds, batch.forces
        names = ("held", "held_joint", "violation", "force", "force_total", "steps")
        values = (
            *(holds.held, holds.held_joint, holds.violation),
            *(forces.last, forces.total, batch.steps),
        )
        fields = {name: tensor.tolist() for name, tensor in zip(names, values, strict=True)}
        qpos, qvel, target, margin = (
            tensor.cpu().numpy()
            for tensor in (batch.qpos, batch.qvel, batch.arm_target, batch.cup_margin)
        )
        for env in env_ids:
            twin = self.homes[env]
            twin.data.qpos[:], twin.data.qvel[:] = qpos[env], qvel[env]
            twin.arm_target[:] = target[env]
            twin.geom_margin[self.home.cup_geom] = margin[env]
            for name in names:
                setattr(twin, name, fields[name][env])
            mujoco.mj_kinematics(twin.model, twin.data)

    def snapshot(self, env_id: int) -> Snapshot:
        """See `tpsrl.sim.base.Simulator.snapshot`."""
        raise UserError(_NO_SNAPSHOTS)

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        """See `tpsrl.sim.base.Simulator.restore`."""
        raise UserError(_NO_SNAPSHOTS)

    def close(self) -> None:
        """See `tpsrl.sim.base.Simulator.close`."""
        self.batch.close()
        super().close()
