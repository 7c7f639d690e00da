"""Observations of a policy in plans and evaluations, equal to those of its training."""

import numpy as np

from skills import registry
from skills.core import sensors, task
from skills.core.context import MeasureContext
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.core.state import Goals
from skills.envs.map_sensors import MapSensors
from tpsrl.errors import UserError
from tpsrl.rl.envs.vec_env import MAP
from tpsrl.sim.base import Simulator
from tpsrl.world.episode import Episode
from tpsrl.world.height_map import HeightMaps
from tpsrl.world.state import WorldState


class Perception:
    """Observations of one home, with the skill's default thresholds under every protocol."""

    def __init__(self, inputs: PolicyInputs) -> None:
        spec = registry.get(inputs.skill)
        self.inputs, self.skill = inputs, spec.definition
        self._thresholds, self._settings = spec.thresholds, spec.load_settings()
        self._maps = MapSensors(self.skill, inputs.sensors, 1, self._thresholds)
        self._heights = HeightMaps(1) if inputs.height_map else None

    @property
    def asks_engine(self) -> bool:
        """Whether `observe` needs measurements of the engine; see `skills.core.interface`."""
        return self._maps.asks_engine or bool(self.inputs.cameras)

    def measure(self, simulator: Simulator, env_id: int) -> sensors.Readings:
        """Returns the measurements of the engine for `observe`."""
        readings = sensors.Readings()
        if self.inputs.cameras:
            readings.pictures = simulator.look([env_id], dict(self.inputs.cameras))
        return self._maps.measure(readings, simulator, [env_id], self._task)

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts a run of the skill from a world state of batch one."""
        self._task = task.begin(self.skill, Goals.of([goal]), world, self._thresholds)
        self._done: np.ndarray | None = None  # (1, 11) action of the previous step
        self._maps.begin([0], [episode], self._task, world)
        if self._heights is not None:
            self._heights.begin([0])

    def observe(
        self,
        world: WorldState,
        depth: np.ndarray | None = None,
        measured: sensors.Readings | None = None,
    ) -> dict[str, np.ndarray]:
        """Returns the observation (1, ...) by name: "state", and pictures and height map if used.

        Args:
            world: state of the home, batch of one
            depth: (height, width) of the head camera, None if not used
            measured: result of `measure`, None if not `asks_engine`

        Raises:
            UserError: `depth` is missing or has another size, or `measured` is missing.
        """
        self._advance(world)
        measures = self.skill.measure(MeasureContext(self._task, world, self._thresholds))
        if self.asks_engine and measured is None:
            raise UserError(f"measured: missing; the policy of {self.inputs.skill} needs it")
        size = self.inputs.depth
        if size is not None and (depth is None or depth.shape != size):
            raise UserError(f"depth: the policy of {self.inputs.skill} needs an image {size}")
        picture = depth[None] if size is not None and depth is not None else None
        readings = self._maps.read([0], world, measured)
        self._maps.read_explored(readings, [0], self._task, world, picture, looks=True)
        seen = sensors.SensorContext(self._task, measures, world, readings)
        shown = {"state": np.asarray(sensors.observe(self.skill, self.inputs.sensors, seen))}
        if picture is not None:
            shown["depth"] = picture
            if self._heights is not None:
                self._heights.look([0], picture, world, self._done is not None)
                shown[MAP] = self._heights.show([0], world.base)
        if self.inputs.cameras and readings.pictures is not None:
            shown |= readings.pictures
        return shown

    def acted(self, action: np.ndarray, mask: np.ndarray, world: WorldState) -> None:
        """Records the action (11,) of this step, with the action mask (11,) and the world."""
        held, joint = world.held, world.held_joint
        self._done = task.masked(action[None], mask, held, joint, self.skill.grip)

    def _advance(self, world: WorldState) -> None:
        """Updates the task's state by the step that led to a world, as in training."""
        if self._done is not None:
            path = self._maps.drive([0], world)
            self._task, _, _ = task.step(
                self.skill, self._task, self._done, world, self._settings, self._thresholds, path
            )


class Perceiving:
    """Base of a `skills.core.interface.SkillPolicy` that acts on observations."""

    _perception: Perception

    @property
    def depth_size(self) -> tuple[int, int] | None:
        """See `skills.core.interface.SkillPolicy.depth_size`."""
        return self._perception.inputs.depth

    @property
    def pictures(self) -> tuple[str, ...]:
        """Names of the pictures that the policy observes beside head depth."""
        return tuple(name for name, _ in self._perception.inputs.cameras)

    @property
    def asks_engine(self) -> bool:
        """Whether `act` needs measurements of the engine; see `skills.core.interface`."""
        return self._perception.asks_engine

    def measure(self, simulator: Simulator, env_id: int) -> sensors.Readings:
        """Returns the measurements of the engine for `act`."""
        return self._perception.measure(simulator, env_id)
