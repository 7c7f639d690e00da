"""User-defined policies: a class in a Python file acts for a skill.

    class MyPick:
        sensors = "fetch"    # as in `sensors=` of a training, or names of sensors
        depth = (64, 64)     # height and width of the head camera's depth; None: no camera
        cameras = None       # or pictures instead of depth: "head_depth:64,hand_rgb:32"

        def __init__(self): ...
        def reset(self): ...
        def act(self, observation): ...   # the action (11,) in [-1, 1]

`observation` is that of the skill's gymnasium environment with the same sensors: "state" (k,)
float32, and with cameras "depth" (height, width) float32 in [0, 1] and other pictures by their
names.
"""

import hashlib
import inspect
import re
import traceback
from pathlib import Path
from typing import Any

import numpy as np

from skills import registry
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal
from skills.core.sensors import Readings
from skills.policies.perception import Perceiving, Perception
from tpsrl import config
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.runtime.user_modules import error_text, import_named
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

_NAMED = re.compile(r"(?P<module>.+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")
_METHODS = ("reset", "act")


def is_own(path: str) -> bool:
    """Returns whether a path refers to a class: FILE.py:CLASS or MODULE:CLASS."""
    return _NAMED.fullmatch(path) is not None


class OwnPolicy(Perceiving):
    """Policy of a skill by a user's class, instantiated once for each `OwnPolicy`.

    Args:
        skill: name of the skill
        path: FILE.py:CLASS or MODULE:CLASS
        field: setting that named the path, for error messages; "" for `skills.SKILL`

    Raises:
        UserError: the class is missing, lacks a method, cannot be instantiated, or names unknown
            sensors.
    """

    def __init__(self, skill: str, path: str, field: str = "") -> None:
        self._field = field or f"skills.{skill}"
        self._class, self._path = _load(path, self._field), path
        self._perception = Perception(_inputs(self._class, skill, self._field))
        self._mask = registry.get(skill).definition.mask()
        self._policy = self._made()

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """See `skills.core.interface.SkillPolicy.begin`."""
        self._perception.begin(episode, goal, world)
        self._call("reset")

    def act(
        self,
        world: WorldState,
        depth: np.ndarray | None = None,
        measured: Readings | None = None,
    ) -> np.ndarray:
        """See `skills.core.interface.SkillPolicy.act`.

        Raises:
            UserError: the user's method raises an error, or does not return an action.
        """
        shown = self._perception.observe(world, depth, measured)
        returned = self._call("act", {name: value[0] for name, value in shown.items()})
        try:
            action = np.array(returned, dtype=np.float64)
        except (TypeError, ValueError):
            raise self._refused(f"act returned {type(returned).__name__}, not numbers") from None
        if action.shape != (act.SIZE,):
            raise self._refused(f"act returned shape {action.shape}, expected ({act.SIZE},)")
        if not np.isfinite(action).all():
            raise self._refused("act returned numbers that are not finite")
        action = np.clip(action, -1.0, 1.0)
        if not self._mask[act.STOP]:
            action[act.STOP] = -1.0
        self._perception.acted(action, self._mask, world)
        return action

    def diagnosis(self) -> dict[str, Any]:
        """Returns the result of the class's method `diagnosis`, {} without one."""
        return dict(self._call("diagnosis")) if hasattr(self._policy, "diagnosis") else {}

    def _made(self) -> Any:
        try:
            return self._class()
        except Exception as error:
            raise self._refused(f"cannot be created ({error_text(error)})") from error

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:
            inside = traceback.extract_tb(error.__traceback__)[1:]  # none for a wrong signature
            where = [f"; line {f.lineno} of {Path(f.filename).name}" for f in inside[-1:]]
            why = f"{method} failed ({error_text(error)}{''.join(where)})"
            raise self._refused(why) from error

    def _refused(self, why: str) -> UserError:
        return UserError(f"{self._field}: {self._path}: {why}")


def about(skill: str, path: str) -> dict[str, Any]:
    """Returns the entries about the policy for reports, as `skills.policies.learned.about`.

    `policy` is a digest of the file.
    """
    found = _load(path, f"skills.{skill}")
    text = file_of(skill, path).read_bytes()
    return {
        "checkpoint": path,
        "trained_steps": 0,
        "sample": False,
        "privileged": list(_inputs(found, skill, f"skills.{skill}").privileged),
        "policy": hashlib.sha256(text).hexdigest()[:12],
    }


def file_of(skill: str, path: str) -> Path:
    """Returns the file that defines the class."""
    return Path(inspect.getfile(_load(path, f"skills.{skill}")))


def _load(path: str, field: str) -> type:
    match = _NAMED.fullmatch(path)
    assert match is not None
    module = import_named(field, match["module"])
    names = [name for name, value in vars(module).items() if inspect.isclass(value)]
    if match["name"] not in names:
        raise unknown(f"{field}: class of {match['module']}", match["name"], names)
    found: type = getattr(module, match["name"])
    for method in _METHODS:
        if not callable(getattr(found, method, None)):
            raise UserError(f"{field}: {path}: has no method '{method}'")
    return found


def _inputs(found: type, skill: str, field: str) -> PolicyInputs:
    """Returns the inputs that a class declares; by default those of a training."""
    declared = getattr(found, "sensors", None)
    cameras = getattr(found, "cameras", None)
    with renamed("sensors", f"{field}: sensors"), renamed("cameras", f"{field}: cameras"):
        return PolicyInputs.of(skill, declared, _depth(found, field), cameras=cameras)


def _depth(found: type, field: str) -> tuple[int, int] | None:
    size = getattr(found, "depth", None)
    if size is None:
        return None
    sides = [size, size] if isinstance(size, int) else list(size)
    good = len(sides) == 2 and all(type(side) is int for side in sides)
    if not good or not all(1 <= side <= config.MOST_PIXELS for side in sides):
        most = config.MOST_PIXELS
        raise UserError(f"{field}: depth: must be two sides of 1 to {most} pixels, got {size!r}")
    return sides[0], sides[1]
