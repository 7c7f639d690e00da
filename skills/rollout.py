"""Runs a policy in a skill's environment, episode after episode."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from skills.base import Margin, SkillPolicy
from skills.environment import SkillEnv
from tpsrl.world import action as act

GAVE_UP = "skill_stop"
TIMEOUT = "timeout"


@dataclasses.dataclass(frozen=True, slots=True)
class SkillResult:
    """What came of one episode.

    `ended_by` is "success", a name of `skills.task.FAILURES`, "timeout", or "skill_stop" when
    the policy called stop twice running in a skill whose action has no stop. `reward_terms` are
    sums over the episode, `results` as of its end; forces in newtons, `force_sum_n` as
    `skills.task.step` counts.
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
    diagnosis: dict[str, Any]


def run(
    env: SkillEnv,
    policy: SkillPolicy,
    starts: Iterable[int],
    on_step: Callable[[SkillEnv], None] | None = None,
) -> list[SkillResult]:
    """One episode from each start, by index; `on_step` is called after reset and every step."""
    return [_episode(env, policy, start, on_step) for start in starts]


def _episode(
    env: SkillEnv, policy: SkillPolicy, start: int, on_step: Callable[[SkillEnv], None] | None
) -> SkillResult:
    shown, _ = env.reset(options={"start": start})
    policy.begin(env.episode, env.goal, env.world)
    if on_step is not None:
        on_step(env)
    ended_by, steps, stops, reward_sum, peak = "", 0, 0, 0.0, 0.0
    sums: dict[str, float] = {}
    results: dict[str, Margin] = {}
    while not ended_by:
        action = policy.act(env.world, shown.get("depth"))
        shown, reward, terminated, truncated, info = env.step(action)
        stop = bool(action[act.STOP] > 0)
        steps, stops = steps + 1, stops + 1 if stop else 0
        reward_sum += reward
        peak = max(peak, float(env.world.force[0]))
        for name, term in info["reward_terms"].items():
            sums[name] = sums.get(name, 0.0) + term
        if terminated:
            ended_by = "success" if info["success"] else info["failure"]
        elif truncated:
            ended_by = TIMEOUT
        elif stops == 2 and not env.batch.mask[act.STOP]:
            ended_by = GAVE_UP
        if ended_by:
            results = env.batch.results(0, stop)
        if on_step is not None:
            on_step(env)
    return SkillResult(
        start=start,
        success=ended_by == "success",
        ended_by=ended_by,
        steps=steps,
        reward=reward_sum,
        reward_terms=sums,
        results=results,
        force_peak_n=peak,
        force_sum_n=float(env.batch.task_state([0]).force_sum[0]),
        diagnosis=dict(policy.diagnosis()),
    )
