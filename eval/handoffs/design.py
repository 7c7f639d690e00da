"""What a handoff analysis runs: whose repairs are told apart, and how many continuations fit."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

from eval.analysing.results import EpisodeResult
from eval.handoffs.repairs import END, KINDS, Handoff, Kind
from eval.handoffs.study import OTHERS, Players

_RUNS_OF_A_FAILURE = 3  # about so many continuations differ by the effects that are granted


def choose_players(results: Sequence[EpisodeResult], most: int) -> Players:
    """At most so many players of each kind: types of handoffs, the rest of them together.

    Those come first after which chains broke most often. By `state` that is a failure of the step
    after the handoff, by `effect` of the one before it; where every step was done and the goal was
    lost all the same, it is the last one.
    """
    return Players({kind: _players(kind, results, most) for kind in KINDS})


def _players(kind: Kind, results: Sequence[EpisodeResult], most: int) -> tuple[Handoff, ...]:
    counts: Counter[Handoff] = Counter()
    for result in results:
        skills = [*(stage.skill for stage in result.stages), END]
        types = list(itertools.pairwise(skills))
        if kind == "state":
            types = types[:-1]
        for handoff in types:
            counts[handoff] += 0
        done = [stage.passed for stage in result.stages]
        broken = done.index(False) if False in done else None
        if broken is not None:
            index = broken - 1 if kind == "state" else broken
            if 0 <= index < len(types):
                counts[types[index]] += 1
        elif kind == "effect" and types and not result.success:
            counts[types[-1]] += 1
    ranked = [handoff for handoff, _ in counts.most_common()]  # ties: as they come in the plan
    return tuple(ranked) if len(ranked) <= most else (*ranked[: most - 1], OTHERS)


def choose_coalitions(
    results: Sequence[EpisodeResult], players: Players, budget: int
) -> list[dict[str, list[int]]]:
    """By episode and kind the coalitions to run, within about so many control steps.

    An effect can be granted only where an episode has failed, and coalitions that agree on what was
    lacking there are one run: these are few, and all are run in as many episodes as that lasts for.
    A state can be repaired in every episode: half of what is left goes to repairing each player
    alone, and all together, in as many episodes as that lasts for, the other half to all other
    coalitions in the first of these. An episode is taken to cost as many steps as it had itself,
    one that failed as many as successes have in the median: repaired, it may go on as long.
    """
    sizes = {kind: len(players.of[kind]) for kind in KINDS}
    effects = list(range(1, 2 ** sizes["effect"]))
    every = 2 ** sizes["state"] - 1
    alone = sorted({*(1 << bit for bit in range(sizes["state"])), every} - {0})
    others = sorted(set(range(1, every + 1)) - set(alone))
    usual = [result.steps for result in results if result.success]
    least = 0.0 if not usual else statistics.median(usual)
    steps = [r.steps if r.success else max(r.steps, math.ceil(least)) for r in results]
    failed = [0 if r.success else cost for r, cost in zip(results, steps, strict=True)]
    granted = _affordable(failed, _RUNS_OF_A_FAILURE, budget)
    left = budget - _RUNS_OF_A_FAILURE * sum(failed[:granted])
    singles = _affordable(steps, len(alone), left // 2 if others else left)
    whole = _affordable(steps[:singles], len(others), left - left // 2)
    found = []
    for number in range(len(results)):
        states = alone if number < singles else []
        states = sorted([*alone, *others]) if number < whole else states
        # An episode that succeeded is asked too: it costs nothing, and counts as one that was run.
        found.append({"effect": effects if number < granted else [], "state": states})
    return found


def _affordable(steps: Sequence[int], runs: int, budget: int) -> int:
    """How many episodes of so many steps, from the first, can be run so often."""
    spent = itertools.accumulate(runs * count for count in steps)
    return sum(total <= budget for total in spent) if budget > 0 else 0
