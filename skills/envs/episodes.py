"""Runs a policy in a skill's environment, one episode after the other."""

import collections
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from skills.core.conditions import Margin
from skills.core.interface import SkillPolicy, sensed
from skills.envs.environment import SkillEnv
from tpsrl.world import action as act

GAVE_UP = "skill_stop"
TIMEOUT = "timeout"


@dataclasses.dataclass(frozen=True, slots=True)
class SkillEpisode:
    """Result of one episode.

    `ended_by` is "success", one of `Skill.failures`, "timeout", or "skill_stop" if the policy
    called stop in two consecutive steps and the skill's action has no stop. `reward_terms` are sums
    over the episode, `results` the margins at its end. Forces are in newtons; `force_sum_n` is
    defined in `skills.core.task.step`. `path` has the metrics of driving for skills that drive
    (`skills.core.skill.Skill.driving`).
    """

    start: int
    success: bool
    ended_by: str
    steps: int
    reward: float
    reward_terms: dict[str, float]
    results: dict[str, Margin]
    force_peak_n: float
    force_sum_n: float
    path: dict[str, float] | None
    diagnosis: dict[str, Any]


def run(
    env: SkillEnv,
    policy: SkillPolicy,
    starts: Iterable[int],
    on_step: Callable[[SkillEnv], None] | None = None,
) -> list[SkillEpisode]:
    """Runs one episode from each start state, given by index.

    Args:
        env: environment
        policy: policy that acts
        starts: indices of start states
        on_step: called after every reset and every step
    """
    return [_episode(env, policy, start, on_step or _ignore) for start in starts]


def _episode(
    env: SkillEnv, policy: SkillPolicy, start: int, on_step: Callable[[SkillEnv], None]
) -> SkillEpisode:
    env.reset(options={"start": start})
    policy.begin(env.episode, env.goal, env.world)
    on_step(env)
    ended_by, stops, reward_sum, peak = "", 0, 0.0, 0.0
    sums: collections.Counter[str] = collections.Counter()
    while not ended_by:
        action = policy.act(env.world, *sensed(policy, env.batch.simulator, 0))
        _, reward, terminated, truncated, info = env.step(action)
        stop = bool(action[act.STOP] > 0)
        stops = stops + 1 if stop else 0
        reward_sum += reward
        peak = max(peak, float(env.world.force[0]))
        sums.update(info["reward_terms"])
        gave_up = stops == 2 and not env.action_mask[act.STOP]
        failure = env.failures[info["failure"]]
        ended_by = _end(terminated, truncated, info["success"], failure) or (
            GAVE_UP if gave_up else ""
        )
        on_step(env)
    success = ended_by == "success"
    return SkillEpisode(
        start=start,
        success=success,
        ended_by=ended_by,
        steps=env.batch.steps(0),
        reward=reward_sum,
        reward_terms=dict(sums),
        results=env.batch.results(0, stop),
        force_peak_n=peak,
        force_sum_n=float(env.batch.task_state([0]).force_sum[0]),
        path=env.batch.path_metrics(0, success),
        diagnosis=dict(policy.diagnosis()),
    )


def _end(terminated: bool, truncated: bool, success: bool, failure: str) -> str:
    """Returns how the episode ended, "" if it goes on."""
    if terminated:
        return "success" if success else failure
    return TIMEOUT if truncated else ""


def _ignore(env: SkillEnv) -> None:
    """Stands in for `on_step` if none is given."""
