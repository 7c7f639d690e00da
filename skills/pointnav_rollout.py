"""One PointNav episode in one home: what the evaluation of an agent is made of."""

import dataclasses

import numpy as np

from skills import pointnav
from skills.base import SkillPolicy
from skills.path_metrics import PathMeter
from skills.pointnav import PointNavSettings
from skills.starts import Start
from skills.task import FAILURES, masked
from tpsrl.errors import UserError
from tpsrl.sim.base import Simulator


@dataclasses.dataclass(frozen=True, slots=True)
class PointNavResult:
    """How an episode went; metres, newtons."""

    episode: str
    success: bool
    ended_by: str  # "success", "stopped" (too far away) or "timeout"
    spl: float
    soft_spl: float
    distance_left_m: float
    driven_m: float
    shortest_m: float
    steps: int
    reward: float
    force_total_n: float


def run(
    simulator: Simulator,
    policy: SkillPolicy,
    start: Start,
    settings: PointNavSettings,
    env_id: int = 0,
    depth: tuple[int, int] | None = None,
) -> PointNavResult:
    """Runs a policy from a start until it stops or the horizon is reached.

    `depth` is the (height, width) of the head depth that the policy gets, None for none.

    Raises:
        UserError: the start's goal has no position, or the engine refuses the episode.
    """
    if start.goal.position is None:
        raise UserError("goal: PointNav needs a position")
    homes, goal = [env_id], np.array([start.goal.position[:2]])
    simulator.reset(homes, [start.episode])
    world = simulator.state(homes)
    meter = PathMeter(1)
    meter.begin([0], [start.episode], goal, world)
    state = pointnav.begin(world, goal, meter.left.copy())
    policy.begin(start.episode, start.goal, world)
    mask, reward = pointnav.mask(), 0.0
    while True:
        image = simulator.depth(homes, *depth)[0] if depth else None
        action = masked(policy.act(world, image)[None], mask, world.held)
        simulator.step(homes, action)
        world = simulator.state(homes)
        state, outcome = pointnav.step(state, action, world, meter.step([0], world), settings)
        reward += float(outcome.reward[0])
        if outcome.terminated[0] or outcome.truncated[0]:
            break
    success = bool(outcome.success[0])
    return PointNavResult(
        episode=start.episode.id,
        success=success,
        ended_by="success" if success else FAILURES[int(outcome.failure[0])] or "timeout",
        steps=int(state.steps[0]),
        reward=reward,
        force_total_n=float(world.force_total[0]),
        **meter.metrics(0, success),
    )
