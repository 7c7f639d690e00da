"""Design of a handoff analysis: separately repaired handoffs, and repairs within the budget."""

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence

from eval.analysing.results import EpisodeResult
from eval.handoffs.repairs import END, KINDS, Handoff, Kind
from eval.handoffs.study import OTHERS, Players

_RUNS_OF_A_FAILURE = 3  # estimated number of different continuations by granted effects


def choose_players(results: Sequence[EpisodeResult], most: int) -> Players:
    """Chooses at most `most` players of each kind: types of handoffs, with the rest as one player.

    Types are ranked by the number of chains that broke there. For the kind `state` this is a
    failure of the step after the handoff, for `effect` of the step before it. If every step handed
    over and the goal was missed nevertheless, it is the last handoff.
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
    ranked = [handoff for handoff, _ in counts.most_common()]  # ties: in the order of the plan
    return tuple(ranked) if len(ranked) <= most else (*ranked[: most - 1], OTHERS)


def choose_coalitions(
    results: Sequence[EpisodeResult], players: Players, budget: int
) -> list[dict[str, list[int]]]:
    """Chooses the coalitions to run, by episode and kind, within a budget of control steps.

    Effects can be granted only in failed episodes, and coalitions that agree on the missing effects
    share one continuation. These are few: all coalitions are run, in as many episodes as the budget
    allows. States can be repaired in every episode: half of the remaining budget goes to repairs of
    each player alone and of all together, the other half to all other coalitions in the first of
    the same episodes. An episode is assumed to cost its own control steps, and a failed one at
    least the median of successful ones, because it may go on that long when repaired.

    Args:
        results: of the episodes
        players: by kind
        budget: control steps of repaired continuations
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
        # Successful episodes are included: they cost nothing, and count as run.
        found.append({"effect": effects if number < granted else [], "state": states})
    return found


def _affordable(steps: Sequence[int], runs: int, budget: int) -> int:
    """Returns how many episodes, from the first, can be run `runs` times each."""
    spent = itertools.accumulate(runs * count for count in steps)
    return sum(total <= budget for total in spent) if budget > 0 else 0
