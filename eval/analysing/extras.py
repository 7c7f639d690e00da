"""Report entries beside success: both readings of timeouts, moved clutter, blocked views.

Each is None if no episode has the measurement, as in results of earlier versions.
"""

import statistics
from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from eval.analysing.intervals import Rate, wilson
from eval.analysing.results import EpisodeResult
from eval.analysing.schema import (
    ClutterMoved,
    ScenarioRan,
    SolvedAtStart,
    TimeoutRates,
    ViewBlocked,
)

_HOW = (
    "Success under two readings of timeouts. A timeout is the first point at which a skill runs "
    "out of steps, or gives up or cannot start although the benchmark's skill would continue to "
    "its last step. In one reading the episode ends there; in the other the timeout is ignored and "
    "the same episode continues. Up to the timeout both readings are one run. "
)
_ENDS = "This protocol ends the episode at a timeout"
_GOES_ON = (
    "This protocol ignores timeouts; success at the timeout is evaluated without ending the "
    "episode."
)


def timeouts(header: ScenarioRan, results: Sequence[EpisodeResult]) -> TimeoutRates | None:
    """Returns success by both readings of timeouts, and the number of episodes with one, by reason.

    `ignored` is None unless every episode with a timeout was continued.
    """
    known = [result.timeouts for result in results if result.timeouts is not None]
    if len(known) < len(results):
        return None
    ends = bool(header.protocol_values.get("limits.end_on_timeout"))
    firsts = [reading.first.reason for reading in known if reading.first is not None]
    ignored = [reading.ignored for reading in known if reading.ignored is not None]
    whole = len(ignored) == len(known)
    then = "; the continuation is also run, and reported separately." if whole else "."
    return TimeoutRates(
        episodes=len(firsts),
        reasons={reason: firsts.count(reason) for reason in sorted(set(firsts))},
        ending=_rate([reading.ending.success for reading in known]),
        ignored=_rate([reading.success for reading in ignored]) if whole else None,
        how=_HOW + (_ENDS + then if ends else _GOES_ON),
    )


def solved_at_start(results: Sequence[EpisodeResult]) -> SolvedAtStart | UnsetType:
    """Returns the number of episodes with an empty plan, and the success of the others.

    Unset if no plan is empty.
    """
    others = [result.success for result in results if result.stages]
    count = len(results) - len(others)
    return SolvedAtStart(count, _rate(others) if others else None) if count else UNSET


def clutter_moved(results: Sequence[EpisodeResult]) -> ClutterMoved | None:
    """Summarises objects that ended more than 0.1 m from where they were.

    Returns:
        `mean`: moved objects per episode that are not targets, of `objects` (mean); `none`: share
        of episodes without any; `targets`: mean number of moved targets that were never in the
        hand.
    """
    known = [result for result in results if result.clutter_moved is not None]
    if not known:
        return None
    moved = [result.clutter_moved or 0 for result in known]
    return ClutterMoved(
        mean=statistics.fmean(moved),
        none=moved.count(0) / len(moved),
        objects=statistics.fmean(result.clutter or 0 for result in known),
        targets=statistics.fmean(result.targets_moved or 0 for result in known),
    )


def view_blocked(shares: Sequence[float | None]) -> ViewBlocked | None:
    """Returns the mean share of blocked views over episodes with an object in the hand."""
    known = [share for share in shares if share is not None]
    return ViewBlocked(statistics.fmean(known), len(known)) if known else None


def _rate(successes: Sequence[bool]) -> Rate:
    return wilson(sum(successes), len(successes))
