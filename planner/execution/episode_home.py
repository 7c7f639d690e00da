"""The home of an episode: actions, control steps, snapshots and state."""

import copy
import math

import numpy as np

from skills.core import task
from skills.core.interface import FARTHEST_HELD_M, Grasp, SkillPolicy, sensed
from skills.core.skill import Grip
from tpsrl.errors import UserError
from tpsrl.sim.base import Overlap, Simulator, Snapshot
from tpsrl.world import action as action_layout
from tpsrl.world.episode import Episode
from tpsrl.world.geometry import quat_matrix
from tpsrl.world.state import WorldState


class EpisodeHome:
    """One home of a simulator; `world` is its state (batch one) after the last control step.

    `grasp` is what the robot knows of the object in its hand: where the object was when the skill
    that took it began, which Pick observes, and the pose of its own cup when it gripped. It is None
    for an empty hand, and for an object that had been moved too far. The summed force continues
    when the home is replaced.
    """

    def __init__(self, simulator: Simulator, env_id: int) -> None:
        self._simulator, self._env_id = simulator, env_id
        self._force_before_n = 0.0  # summed before the home was replaced
        self.world = self._observe()
        self.begin_skill()
        self.grasp = self._taken()

    def begin_skill(self) -> None:
        """Notes where the objects are at the start of a skill."""
        self._first = np.array(self.world.object_pos[0])  # (S, 3) m

    def copy(self) -> "EpisodeHome":
        """Returns a copy to use once the simulator's home is restored to its current state."""
        return copy.copy(self)

    def act(
        self, policy: SkillPolicy, mask: np.ndarray, grip: Grip = "free"
    ) -> tuple[np.ndarray, bool]:
        """Returns the policy's masked action (11,), and whether it calls stop, masked or not.

        Raises:
            UserError: the policy returned an invalid action.
        """
        seen = sensed(policy, self._simulator, self._env_id)
        action = np.asarray(policy.act(self.world, *seen), dtype=float)
        if action.shape != (action_layout.SIZE,) or not np.all(np.isfinite(action)):
            raise UserError(
                f"policy: {type(policy).__name__} returned {action.shape} {action}; "
                f"an action is ({action_layout.SIZE},) finite numbers"
            )
        world, wanted = self.world, np.clip(action, -1.0, 1.0)[None]
        allowed = task.masked(wanted, mask, world.held, world.held_joint, grip)
        return allowed[0], bool(action[action_layout.STOP] > 0)

    def step(self, action: np.ndarray) -> None:
        """Runs one control step with an action (11,)."""
        before = int(self.world.held[0])
        self._simulator.step([self._env_id], action[None])
        self.world = self._observe()
        if int(self.world.held[0]) != before:
            self.grasp = self._taken()

    def replace(self, episode: Episode) -> None:
        """Resets the home to the start of an episode with the same objects; forces are kept.

        Raises:
            Overlap: the robot or an object would be inside something; the home is unchanged.
        """
        before = self.snapshot()
        try:
            self._simulator.reset([self._env_id], [episode])
        except Overlap:
            self._simulator.restore(self._env_id, before)
            raise
        self._force_before_n = float(self.world.force_total[0])
        self.world = self._observe()
        self.begin_skill()
        self.grasp = self._taken()

    def set_force_total(self, newtons: float) -> None:
        """Sets the summed force (N)."""
        self._force_before_n += newtons - float(self.world.force_total[0])
        self.world = self._observe()

    def snapshot(self) -> Snapshot:
        """Returns a snapshot of the home."""
        return self._simulator.snapshot(self._env_id)

    def restore(self, snapshot: Snapshot) -> None:
        """Restores the home from one of its snapshots."""
        self._simulator.restore(self._env_id, snapshot)
        self.world = self._observe()

    def _taken(self) -> Grasp | None:
        """Returns the grasp of an object that is in the hand since the last step or reset."""
        held = int(self.world.held[0])
        if held < 0:
            return None
        turn = quat_matrix(np.asarray(self.world.ee_quat[0]))
        centre = (self._first[held] - np.asarray(self.world.ee_pos[0])) @ turn
        if math.hypot(*centre) > FARTHEST_HELD_M:
            return None
        (x, y, z), (up_x, up_y, up_z) = centre.tolist(), turn[2].tolist()
        return Grasp((x, y, z), (up_x, up_y, up_z))

    def _observe(self) -> WorldState:
        world = self._simulator.state([self._env_id])
        if self._force_before_n:
            world.force_total[:] += self._force_before_n
        return world
