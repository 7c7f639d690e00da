"""Options of a skill's environment, resolved from the keyword arguments of the user."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any, TypedDict, Unpack

import numpy as np

from skills import registry
from skills.core import cameras, sensors, settings
from skills.core.inputs import PolicyInputs
from skills.core.settings import TaskSettings
from skills.starts.dataset import BASE_EPISODES
from skills.starts.mixture import is_mixture
from skills.starts.source import StartSource
from skills.starts.start import Start
from tpsrl import sim
from tpsrl.errors import UserError, unknown_keyword
from tpsrl.runtime import machine
from tpsrl.sim import engines
from tpsrl.sim.base import Simulator
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.world import action as act
from tpsrl.world.fetch import CLEARANCE_RANGE_M
from tpsrl.world.slots import capacity_for

_FEW_OBJECTS = 12
_HERE = HabitatSettings()
_MOST_OBJECTS = 30
_NUMBER = 4  # bytes of a float32
_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "critic": ((bool,), "true or false"),
    "height_map": ((bool,), "true or false"),
    "cameras": ((str, Mapping, NoneType), "names and sizes such as 'head_depth:64,head_rgb:64'"),
    "sensors": ((str, tuple, NoneType), "the name of a set of sensors"),
    "base_movement": ((bool,), "true or false"),
    "settings": ((Mapping,), "a dictionary of settings"),
    "starts": ((str, os.PathLike, Sequence, NoneType), "a path, a mixture or a list of starts"),
    "split": ((str,), "the name of a split"),
    "filter_base": ((bool,), "true or false"),
    "engine": ((str,), "the name of an engine"),
    "habitat": ((HabitatSettings,), "a HabitatSettings"),
    "object_margin": ((int, float), "a distance in metres"),
}
_WHOLE: Mapping[str, tuple[int, int | None]] = {  # minimum and maximum of integers
    "horizon": (1, None),
    "dataset_seed": (0, None),
    "num_objects": (0, _MOST_OBJECTS),
    "num_episodes": (1, BASE_EPISODES),
    "slots": (1, None),
}
_OPTIONAL = ("horizon", "num_objects", "slots")
_AS_GIVEN = (
    "starts", "split", "dataset_seed", "num_objects", "num_episodes", "slots", "filter_base",
    "engine", "habitat", "object_margin",
)  # fmt: skip


class EnvKeywords(TypedDict, total=False):
    """Keyword arguments of a skill's environment.

    `sensors`, `depth`, `cameras`, `height_map`: see `skills.core.inputs.PolicyInputs.of`.
    `critic`: whether to add the privileged state, the sensors of "teacher", as the input of a value
    function in training.
    `base_movement`: False fixes the base, the limited action space of the paper's ablation.
    `settings`: changed entries of the skill's task settings; `horizon` is a shorthand for that
    entry.
    `thresholds`: success thresholds of the skill; None for those of the default protocol.
    `starts`, `split`, `num_objects`, `num_episodes`: see `skills.starts.source.StartSource`, as is
    `dataset_seed`, its `seed`.
    `filter_base`, `engine`, `habitat`, `object_margin`: see `tpsrl.sim.make`.
    `slots`: number of objects that a home has room for, 12 or 30. None: as in the banks of the
    start states, or else as many as the objects of the episodes need.
    """

    depth: Sequence[int] | int | None
    cameras: cameras.Cameras | None
    critic: bool
    sensors: str | tuple[str, ...] | None
    height_map: bool
    base_movement: bool
    horizon: int | None
    settings: Mapping[str, Any]
    thresholds: Any
    starts: str | os.PathLike[str] | Sequence[Start] | None
    split: str
    dataset_seed: int
    num_objects: int | None
    num_episodes: int
    slots: int | None
    filter_base: bool
    engine: str
    habitat: HabitatSettings
    object_margin: float


@dataclasses.dataclass(frozen=True, slots=True)
class EnvOptions:
    """Resolved options of a skill's environment: observations, actions, reward, start states.

    `of` creates them from checked `EnvKeywords`; worker processes receive the result. `inputs` are
    those of the policy, `critic` the privileged ones of the value function, None without them.
    `mask` (11,) is the action mask; `task` has the horizon and the reward weights.
    """

    inputs: PolicyInputs
    critic: PolicyInputs | None
    mask: tuple[bool, ...]
    task: TaskSettings
    thresholds: Any
    starts: str | os.PathLike[str] | Sequence[Start] | None = None
    split: str = "train"
    dataset_seed: int = 0
    num_objects: int | None = None
    num_episodes: int = 63
    slots: int | None = None
    filter_base: bool = True
    engine: str = "mujoco"
    habitat: HabitatSettings = _HERE
    object_margin: float = 0.0

    @staticmethod
    def of(skill: str, **given: Unpack[EnvKeywords]) -> "EnvOptions":
        """Resolves keyword arguments.

        Args:
            skill: name of the skill
            given: see `EnvKeywords`

        Raises:
            UserError: the skill is unknown, or an option is unknown (an `UnknownKeyword`, whose
                message names the nearest), has the wrong type, is out of range, or is given twice.
        """
        _check(given)
        spec = registry.get(skill)
        changes = dict(given.get("settings", {}))
        if given.get("horizon") is not None:
            changes["horizon"] = given["horizon"]
        task = settings.changed(spec.load_settings(), changes)
        thresholds, kind = given.get("thresholds"), type(spec.thresholds)
        if thresholds is not None and not isinstance(thresholds, kind):
            raise UserError(f"thresholds: must be a {kind.__name__}, got {thresholds!r}")
        inputs = PolicyInputs.of(
            skill,
            given.get("sensors"),
            given.get("depth"),
            given.get("height_map", False),
            given.get("cameras"),
        )
        rest: dict[str, Any] = {name: value for name, value in given.items() if name in _AS_GIVEN}
        return EnvOptions(
            inputs,
            PolicyInputs.of(skill, "teacher") if given.get("critic") else None,
            _mask(skill, given.get("base_movement", True)),
            task,
            spec.thresholds if thresholds is None else thresholds,
            **rest,
        )

    @property
    def skill(self) -> str:
        """Name of the skill."""
        return self.inputs.skill

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Returns the shapes of an observation's parts, by name."""
        shapes = self.inputs.shapes()
        if self.critic is not None:
            shapes["critic"] = (self.critic.size + 1,)  # with the share of the horizon that is left
        return shapes

    def capacity(self) -> int:
        """Returns the number of slots for objects in a home.

        Raises:
            UserError: start states cannot be read, or are of another engine.
        """
        slots = self._slots_of_banks() if self.slots is None else self.slots
        if slots is not None:
            return slots
        own = registry.get(self.skill).start_states().num_objects
        count = own if own == 0 else self.num_objects
        if count is None:  # The number of objects in given starts is known only after reading them.
            count = own if self.starts is None else _MOST_OBJECTS
        return capacity_for(count)

    def simulator(self, num_envs: int) -> Simulator:
        """Creates a simulator with `num_envs` homes for these options.

        Raises:
            UserError: the homes with their pictures do not fit into memory, the engine lacks a
                sensor or a camera, or see `capacity`.
        """
        self._check_memory(num_envs)
        judged = sensors.measured(self.critic.sensors if self.critic else ())
        sensed = sensors.measured(self.inputs.sensors)
        engines.require_measures(self.engine, sensed, "sensors", "fetch")
        engines.require_measures(self.engine, judged, "preset.policy.critic", "false")
        if self.task.near > 0.0:
            engines.require_measures(self.engine, {"neighbours"}, "task.near", "0")
        engines.require_cameras(self.engine, self.inputs.pictures)
        return sim.make(
            self.engine,
            num_envs,
            self.capacity(),
            filter_base=self.filter_base,
            habitat=self.habitat,
            object_margin=self.object_margin,
        )

    def source(self) -> StartSource:
        """Returns the source of start states."""
        return StartSource(
            self.skill,
            self.starts,
            split=self.split,
            seed=self.dataset_seed,
            num_objects=self.num_objects,
            num_episodes=self.num_episodes,
        )

    def _check_memory(self, num_envs: int) -> None:
        """Raises an error if homes and pictures do not fit into memory.

        The memory of pictures is that of three for each home and two more.
        """
        check_whole("num_envs", num_envs)

        field = "cameras" if self.inputs.cameras else "depth"

        def needed(values: Mapping[str, int]) -> float:
            pixels = values.get(field, 0) ** 2
            homes = values["num_envs"]
            return homes * machine.HOME_BYTES + (3 * homes + 2) * pixels * _NUMBER

        given = {"num_envs": num_envs}
        if self.inputs.pictures:
            # Side in pixels of a square picture of depth with the same size in bytes.
            given[field] = math.isqrt(self.inputs.picture_bytes // _NUMBER)
        machine.refuse(given, needed, machine.memory_bytes(), {"num_envs": 1, field: 256})

    def _slots_of_banks(self) -> int | None:
        """Returns the number of slots in the banks of the start states, None without banks."""
        return self.source().slots(self.engine) if is_mixture(self.starts) else None


def few_objects(skill: str, wanted: int | None) -> int:
    """Returns the number of objects for training: `wanted`, or the skill's own, at most 12.

    Homes with fewer objects simulate faster.
    """
    own = registry.get(skill).start_states().num_objects
    return min(own, _FEW_OBJECTS) if wanted is None else wanted


def check_whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """Checks an integer from a caller and returns it.

    Args:
        name: name of the argument, for the error message
        value: the value
        least: minimum, None for none
        most: maximum, None for none

    Raises:
        UserError: `value` is not an integer, or out of range.
    """
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise UserError(f"{name}: {value!r} is not an integer")
    if (least is not None and value < least) or (most is not None and value > most):
        limits = f"at least {least}" if most is None else f"between {least} and {most}"
        raise UserError(f"{name}: must be {limits}, got {value}")
    return int(value)


def _check(given: Mapping[str, Any]) -> None:
    """Checks names, types and ranges of keyword arguments.

    Raises:
        UserError: an argument is unknown, has the wrong type or is out of range; the message names
            the argument.
    """
    names = list(EnvKeywords.__annotations__)
    for name in given:
        if name not in names:
            raise unknown_keyword("environment", name, names)
    for name, value in given.items():
        if name in _WHOLE and not (value is None and name in _OPTIONAL):
            check_whole(name, value, *_WHOLE[name])
        elif name in _KINDS and not isinstance(value, _KINDS[name][0]):
            raise UserError(f"{name}: {value!r} is not {_KINDS[name][1]}")
    margin = given.get("object_margin", 0.0)
    if not 0.0 <= margin <= CLEARANCE_RANGE_M:
        raise UserError(f"object_margin: must be between 0 and {CLEARANCE_RANGE_M:g}, got {margin}")
    if given.get("horizon") is not None and "horizon" in given.get("settings", {}):
        raise UserError("horizon: also given in settings; leave one of them out")
    starts = given.get("starts")
    if isinstance(starts, Sequence) and not isinstance(starts, str):
        for number, start in enumerate(starts):
            if not isinstance(start, Start):
                raise UserError(f"starts: entry {number} must be a Start, got {start!r}")


def _mask(skill: str, base_movement: bool) -> tuple[bool, ...]:
    """Returns the action mask (11,) of a skill, without the base if `base_movement` is False.

    Raises:
        UserError: `base_movement` is False, and the skill moves only the base.
    """
    mask: np.ndarray = registry.get(skill).definition.mask()
    if not base_movement:
        mask[act.BASE] = False
        if not np.delete(mask, act.STOP).any():
            raise UserError(f"base_movement: {skill} moves only the base; nearest: true")
    return tuple(mask.tolist())
