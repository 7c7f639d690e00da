"""Controllers written as generators, which yield actions and receive world states."""

import abc
from collections.abc import Callable, Generator
from typing import Any, TypeVar

import numpy as np

from skills.core.interface import SkillGoal
from skills.scripted.folding import AT_REST_M, Folding
from tpsrl.motion.base.driving import Leg
from tpsrl.motion.base.escape import way_out
from tpsrl.motion.body.reach_search import Reach
from tpsrl.motion.scene import Scene
from tpsrl.motion.suction.grasps import later_of
from tpsrl.motion.tracking import Blocked, End, OffPlan
from tpsrl.world import action as act
from tpsrl.world.episode import Episode
from tpsrl.world.state import WorldState

# Generator of a whole skill; its return value is whether the skill has succeeded.
Run = Generator[np.ndarray, WorldState, bool]
Found = TypeVar("Found")

_TRIES = 4  # consecutive plans without progress


class Routine(Folding, abc.ABC):
    """Base class of scripted skills; `run` is the skill as a generator of actions."""

    depth_size: tuple[int, int] | None = None

    def __init__(self) -> None:
        self._steps: Run | None = None
        self._diagnosis: dict[str, Any] = {}
        self._phases: dict[str, int] = {}

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        """Starts the skill from a world state of batch one."""
        later_of.begin(episode)
        self.episode, self.goal, self.world = episode, goal, world
        self.grip = 1.0 if world.held[0] >= 0 else -1.0
        self._diagnosis, self._phases = {}, {}
        self.phase = "start"
        self._steps = None
        self._fruitless = self._plans = 0
        self._end: End | None = None

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        """Returns the action (11,) of a control step, with stop when done or when giving up.

        The skill gives up when no plan is found, or after several plans without progress.
        """
        action, valid = self.choose(world)
        if not valid or self._fruitless > _TRIES:
            self._steps = None
            return self.stopped()[0]
        return action

    def choose(self, world: WorldState) -> tuple[np.ndarray, bool]:
        """Returns the action of a control step, and whether a plan was found.

        The plan of the previous call continues while the robot is near it and its assumptions hold.
        Otherwise the routine plans from the current state. Once the skill is done, or no plan was
        found, this result is kept until the state changes.

        Args:
            world: batch of one, of the same episode as at `begin`.

        Returns:
            The action (11,), and whether a plan was found. The action has stop if the skill is
            done, and stands still without a plan.
        """
        self.world = world
        if self._end is not None and self._end.holds(world):
            return self.stopped() if self._end.done else (self.still(), False)
        self._end = None
        if self._steps is not None and self.outdated():
            self.note("outdated")
            self._steps = None
        lost = True
        for _ in range(2):
            planned = self._steps is None
            try:
                if self._steps is None:
                    self.grip = 1.0 if world.held[0] >= 0 else -1.0
                    self._fruitless += 1
                    self._steps = self.run()
                    action = next(self._steps)
                    self._plans += 1
                else:
                    action = self._steps.send(world)
                    self._fruitless = 0
                self._phases[self.phase] = self._phases.get(self.phase, 0) + 1
                return action, True
            except StopIteration as end:
                self._steps = None
                if end.value:
                    self._end = End(world, True)
                    return self.stopped()
            except (Blocked, OffPlan) as off:
                self.note(f"{'blocked' if isinstance(off, Blocked) else 'off'}_{off}")
                self._steps = None
                lost = isinstance(off, Blocked)
            if planned:
                break
        if lost:
            self._end = End(world, False)
        return self.still(), False

    def stopped(self) -> tuple[np.ndarray, bool]:
        """Returns the action that calls stop, as a result of `choose`."""
        action = self.still()
        action[act.STOP] = 1.0
        return action, True

    def diagnosis(self) -> dict[str, Any]:
        """Returns counts of problems by name, "plans", and control steps by phase ("phases")."""
        return {**self._diagnosis, "plans": self._plans, "phases": dict(self._phases)}

    def outdated(self) -> bool:
        """Returns whether the assumptions of the current plan no longer hold."""
        return False

    @abc.abstractmethod
    def run(self) -> Run:
        """Runs the skill from any current state; yields one action per control step.

        Returns:
            Whether the skill has succeeded; otherwise the routine runs it again.
        """

    def _ready_path(self, posture: np.ndarray, base: np.ndarray | None = None) -> np.ndarray:
        """Returns the arm's path (k, 7) to a posture, at the current base pose or at `base`."""
        scene = self.look()
        path = self.path_to(posture, scene.checker(scene.base if base is None else base))
        if path is None:
            self.note("no_path_to_ready")
            return posture[None]
        return path

    def find(
        self, plan: Callable[[Scene], Found | None], moves_arm: bool = True
    ) -> Generator[np.ndarray, WorldState, Found | None]:
        """Returns the result of `plan`, or None.

        If `plan` finds nothing, the robot drives to a free pose or brings the arm to rest, and
        `plan` is called again.
        """
        found = plan(self.look())
        if found is not None:
            return found
        scene = self.look()
        legs = way_out(scene.footprint(scene.arm), scene.base)
        if legs is not None:
            self.phase = "free"
            self.note("came_free")
            yield from self.drive(legs)
        elif moves_arm and self.rest_m > AT_REST_M:
            yield from self.to_rest()
        else:
            return None
        return plan(self.look())

    def reach(self, plan: Callable[[Scene], Reach | None]) -> Generator[Any, Any, Reach | None]:
        """Drives and moves the arm to the ready posture of the result of `plan`.

        Returns:
            The reach, or None if `plan` finds none.
        """
        reach = yield from self.find(plan)
        if reach is None:
            return None
        self.phase = "drive"
        if reach.legs is not None:
            self.note("moved_base")
            yield from self.travel(reach.legs, reach.path)
            again = plan(self.look())
            if again is not None and again.legs is None:
                reach = again
        self.phase = "ready"
        above = reach.via is not reach.ready
        yield from self.follow(self._ready_path(reach.via), through=above)
        if reach.advance:
            self.phase = "advance"
            end, yaw = reach.stance, reach.stance[2]
            yield from self.drive([Leg(end[0], end[1], yaw, 1), Leg(end[0], end[1], yaw, 1)])
        if above:
            self.phase = "ready"
            yield from self.follow(self._ready_path(reach.ready))
        return reach
