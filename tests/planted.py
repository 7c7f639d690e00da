"""A home and one-step skills with planted faults of known probability."""

import dataclasses
import math
from collections.abc import Callable, Iterator

import kinematic_home as fake
import numpy as np
from kinematic_home import KinematicHome

from planner.containers import containers
from planner.execution.executor import Executor
from planner.execution.limits import ExecutionRules, execution_limits
from skills import registry
from skills.core.interface import SkillGoal, SkillPolicy
from skills.spec import SkillSpec
from skills.starts.start import Start
from tpsrl.sim.base import Snapshot
from tpsrl.world import action as layout
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import REST_EE
from tpsrl.world.state import JOINTS, WorldState

STAND_M = 0.6  # where Navigate stops
REACH_M = 0.8  # reach of Pick and Place
TURN_RAD = 0.6  # largest heading error for Pick and Place
SLIP_M = 0.05  # largest slip of the held object for Place
HANGS = np.array((0.0, 0.0, -0.105))  # centre of a held object, relative to the cup
FOLDED_M = 0.2  # largest distance of the cup from its resting place
DRAWER = "cab_push_point_5"


def chance(episode: Episode, *what: object) -> np.random.Generator:
    """Returns a random generator of one aspect of an episode, independent of other draws."""
    return np.random.default_rng([*f"{episode.id}|{what}".encode()])


class Home(KinematicHome):
    """Kinematic home with contents of drawers, a `slip` of the held object, and faults.

    `after_step(home)` is called after every step. Snapshots are complete.
    """

    FIELDS = ("base", "cup", "objects", "joints", "slip", "memory")

    def __init__(self, after_step: Callable[["Home"], None] | None = None) -> None:
        super().__init__()
        self.after_step = after_step
        self.slip, self.memory = np.zeros(3), np.zeros(4)

    def reset(self, env_ids, episodes) -> None:  # type: ignore[no-untyped-def]
        super().reset(env_ids, episodes)
        self.held = episodes[0].held
        self.slip, self.memory = np.zeros(3), np.zeros(4)
        self.carry()

    def carry(self) -> None:
        if self.held >= 0:
            self.objects[self.held] = self.ee_pos() + HANGS + self.slip

    def step(self, env_ids, actions) -> None:  # type: ignore[no-untyped-def]
        self.count += 1
        self.force = 0.0
        if self.after_step is not None:
            self.after_step(self)
        self.carry()
        self.force_total += self.force

    def state(self, env_ids) -> WorldState:  # type: ignore[no-untyped-def]
        world = super().state(env_ids)
        turn = math.sqrt(0.5)  # the cup looks down
        return dataclasses.replace(world, ee_quat=np.array([[turn, 0.0, turn, 0.0]]))

    def slide(self, marker: str, value: float) -> None:
        """Moves a drawer with its contents."""
        index = JOINTS.index(marker)
        before = self.joints[index]
        for box in containers(self.episode.layout, marker):
            for thing in self.objects:
                if box.depth_inside(thing, before) > 0.0:
                    thing += (value - before) * box.slide
        self.joints[index] = value

    def snapshot(self, env_id: int) -> Snapshot:
        arrays = {name: getattr(self, name).copy() for name in self.FIELDS}
        arrays["numbers"] = np.array(
            [self.held, self.held_joint, self.count, self.force, self.force_total]
        )
        return Snapshot("kinematic", self.episode, arrays)

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        self.reset([env_id], [snapshot.episode])
        for name in self.FIELDS:
            setattr(self, name, snapshot.arrays[name].copy())
        held, joint, count, self.force, self.force_total = snapshot.arrays["numbers"].tolist()
        self.held, self.held_joint, self.count = int(held), int(joint), int(count)


@dataclasses.dataclass
class Faults:
    """Planted faults. Shares are probabilities of a single run, drawn by episode and goal."""

    pick_fails: float = 0.04
    place_fails: float = 0.04
    short_m: float = 0.0  # distance by which Navigate stops too early
    short_share: float = 0.3  # share of runs in which it does
    turned_share: float = 0.0  # Navigate stops with its back to the goal
    roll_share: float = 0.0  # a placed object rolls off the table
    slip_share: float = 0.0  # a picked object hangs off the cup's axis
    arm_out_share: float = 0.0  # Pick leaves the arm stretched out
    detour_share: float = 0.0  # Navigate takes a very long way
    drawn_exits: bool = False  # Navigate ends in a start state of the next skill


class Skill:
    """Base of the skills: changes the home directly, in one step."""

    depth_size: tuple[int, int] | None = None

    def __init__(self, home: Home, faults: Faults) -> None:
        self.home, self.faults, self.said = home, faults, {}

    def begin(self, episode: Episode, goal: SkillGoal, world: WorldState) -> None:
        self.episode, self.goal, self.begun = episode, goal, 0

    def act(self, world: WorldState, depth: np.ndarray | None = None) -> np.ndarray:
        self.begun += 1
        action = np.zeros(layout.SIZE)
        action[layout.STOP] = 1.0 if self.do(world) else -1.0
        return action

    def do(self, world: WorldState) -> bool:
        raise NotImplementedError

    def diagnosis(self) -> dict[str, object]:
        return {}

    def rolls(self, share: float, *what: object) -> bool:
        """Returns whether an event happens, the same in every continuation of an episode."""
        return bool(chance(self.episode, type(self).__name__, *what).random() < share)

    def fails(self, share: float, world: WorldState) -> bool:
        """Returns whether the skill itself fails; drawn separately for each start state."""
        where = np.round([*world.base[0], self.goal.object], 6).tolist()
        return self.rolls(share, *where)

    def within_reach(self, world: WorldState, point: np.ndarray) -> bool:
        x, y, yaw = world.base[0]
        away = math.hypot(point[0] - x, point[1] - y)
        turn = math.atan2(point[1] - y, point[0] - x) - yaw
        turned = abs(math.atan2(math.sin(turn), math.cos(turn)))
        folded = np.linalg.norm(self.home.cup - np.array(REST_EE)) < FOLDED_M
        return away < REACH_M and turned < TURN_RAD and bool(folded)


class Navigate(Skill):
    """Stops in front of its goal, facing it."""

    def do(self, world: WorldState) -> bool:
        faults, goal = self.faults, np.array(self.goal.position)
        about = (self.goal.object, self.goal.marker, *np.round(goal, 3))
        if self.begun == 1:
            away = world.base[0, :2] - goal[:2]
            heading = math.atan2(away[1], away[0])
            stand = STAND_M
            if faults.drawn_exits:
                rng = chance(self.episode, "exit", *about)
                self.home.base[:] = drawn_pose(goal, rng)
            else:
                if faults.short_m and self.rolls(faults.short_share, "short", *about):
                    stand += faults.short_m
                x, y = goal[:2] + stand * np.array([math.cos(heading), math.sin(heading)])
                back = self.rolls(faults.turned_share, "turned", *about)
                self.home.base[:] = (x, y, heading + (0.0 if back else math.pi))
            if self.rolls(faults.detour_share, "detour", *about):
                self.home.memory[0] = 1.0
                self.wait = 150
            else:
                self.wait = 2
        self.wait -= 1
        return self.wait < 0


class Pick(Skill):
    """Takes an object within reach, or gives up."""

    def do(self, world: WorldState) -> bool:
        point = world.object_pos[0, self.goal.object]
        if not self.within_reach(world, point) or self.fails(self.faults.pick_fails, world):
            return True
        self.home.held = self.goal.object
        askew = self.rolls(self.faults.slip_share, "slip", self.goal.object)
        self.home.slip = np.array([0.12 * askew, 0.0, 0.0])
        if self.rolls(self.faults.arm_out_share, "arm", self.goal.object):
            self.home.memory[1] = 1.0
        return False


class Place(Skill):
    """Puts the held object at its goal, or gives up."""

    def do(self, world: WorldState) -> bool:
        goal = np.array(self.goal.position)
        slipped = np.linalg.norm(self.home.slip) > SLIP_M
        if self.begun > 1 or slipped or not self.within_reach(world, goal):
            return True
        if self.fails(self.faults.place_fails, world):
            return True
        thing, self.home.held = self.home.held, -1
        rolls = self.rolls(self.faults.roll_share, "rolls", thing)
        self.home.objects[thing] = goal + np.array((0.5 * rolls, 0.0, 0.0))
        return False


class Open(Skill):
    """Opens a drawer."""

    def do(self, world: WorldState) -> bool:
        self.home.slide(self.goal.marker, 0.45)
        return True


class Fold(Skill):
    """Returns the cup to rest, unless a fault keeps the arm stretched out."""

    def do(self, world: WorldState) -> bool:
        out = self.home.memory[1] > 0.0
        self.home.cup[:] = np.array(REST_EE) + np.array((0.4 * out, 0.0, 0.0))
        return True


def drawn_pose(goal: np.ndarray, rng: np.random.Generator) -> tuple[float, float, float]:
    """Returns a random base pose in front of a point, as in start states; some are hard."""
    angle = rng.uniform(-math.pi, math.pi)
    away = rng.uniform(0.3, 0.85)
    x, y = goal[0] + away * math.cos(angle), goal[1] + away * math.sin(angle)
    return x, y, angle + math.pi + rng.normal(0.0, 0.2)


@dataclasses.dataclass(frozen=True)
class Starts:
    """Start states within reach of a skill's target."""

    hard: bool = False
    num_objects: int = 3

    def towards(
        self, base: Episode, goal: SkillGoal, rng: np.random.Generator
    ) -> Callable[[int], Start | None]:
        point = goal.position if goal.position is not None else base.objects[goal.object].pos

        def draw(attempt: int) -> Start | None:
            pose = drawn_pose(np.array(point), rng)
            if not self.hard:
                angle = rng.uniform(-math.pi, math.pi)
                x = point[0] + STAND_M * math.cos(angle)
                pose = (x, point[1] + STAND_M * math.sin(angle), angle + math.pi)
            held = goal.object if goal.position is not None and goal.object >= 0 else base.held
            return Start(dataclasses.replace(base, robot_start=pose, held=held), goal)

        return draw


def executor(home: Home, faults: Faults, hard_starts: bool = False, **limits: int) -> Executor:
    """Returns an executor in a home with planted faults, which ends episodes at timeouts."""
    acting: dict[str, SkillPolicy] = {
        "navigate": Navigate(home, faults),
        "pick": Pick(home, faults),
        "place": Place(home, faults),
        "open_drawer": Open(home, faults),
    }

    def spec(name: str) -> SkillSpec:
        return dataclasses.replace(registry.get(name), starts=Starts(hard_starts))

    options = {"wait_end_steps": 1, **limits}
    return Executor(
        home,
        acting,
        reset_arm=Fold(home, faults),
        limits=execution_limits(**options),
        rules=ExecutionRules(after_timeout=False),
        skills=spec,
    )


def episodes(count: int, seed: int = 0, num_targets: int = 1) -> Iterator[Episode]:
    """Yields episodes with objects on one side, goals on the other, the robot in between."""
    for number in range(count):
        rng = np.random.default_rng((seed, number))
        start = (float(rng.uniform(-1.0, 1.0)), float(rng.uniform(-0.5, 0.5)), 0.0)
        name = f"planted/{seed}/{number}"
        yield fake.make_episode(num_targets + 1, num_targets, id=name, robot_start=start)
