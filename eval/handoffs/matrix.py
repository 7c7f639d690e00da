"""The handoff matrix: how a skill fares after another one, beside how it fares by itself."""

import dataclasses
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from eval.analysing.intervals import wilson
from eval.handoffs.errors import UNITS
from eval.handoffs.statistics import clustered, holm, sign_flip

_BINS = 4
_LEAST = 8  # values that are worth being told apart by bins


@dataclasses.dataclass(frozen=True, slots=True)
class HandoffSeen:
    """One handoff of one episode, the step before having handed over."""

    study: int
    index: int  # of the step that took over
    before: str  # names of the two steps
    after: str
    skills: tuple[str, str]
    succeeded: bool
    isolated: bool | None
    errors: Mapping[str, float]


def seen(studies: Sequence[Mapping[str, Any]]) -> Iterator[HandoffSeen]:
    """Every handoff of the studies."""
    for number, study in enumerate(studies):
        stages = study["stages"]
        for index in range(1, len(stages)):
            first, second = stages[index - 1], stages[index]
            if first["handed_over"] and second["reached"]:
                names, skills = (first["name"], second["name"]), (first["skill"], second["skill"])
                good, alone = second["handed_over"], second["isolated"]
                errors = second["errors"] or {}
                yield HandoffSeen(number, index, *names, skills, good, alone, errors)


def by_step(studies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """For each pair of consecutive steps: the second one's success after the first, and its tax.

    `rate_after_handoff` is over the `n` handoffs there were, `rate_isolated` the success of the
    same skill from its own start states in those of these episodes where there was one (`paired`),
    `tax` how much lower that after the handoff is in them, with its interval; `p_value` is of the
    sign-flip test, `significant` after Holm's correction over all pairs.
    """
    groups: dict[tuple[int, str, str], list[HandoffSeen]] = defaultdict(list)
    for one in seen(studies):
        groups[one.index - 1, one.before, one.after].append(one)
    rows = []
    for (index, before, after), handoffs in sorted(groups.items()):
        skills = dict(zip(("skill_from", "skill_to"), handoffs[0].skills, strict=True))
        row = {"index": index, "from": before, "to": after, **skills, "n": len(handoffs)}
        row["rate_after_handoff"] = wilson(sum(h.succeeded for h in handoffs), len(handoffs)).mean
        rows.append(row | _tax(handoffs))
    return _corrected(rows)


def by_skills(studies: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The same for each pair of skills, over all steps, with errors by dimension.

    `after` and `isolated` are rates with Wilson's interval. Handoffs of one episode go together,
    which interval and p-value of the tax take account of.
    """
    groups: dict[tuple[str, str], list[HandoffSeen]] = defaultdict(list)
    for one in seen(studies):
        groups[one.skills].append(one)
    rows = []
    for (before, after), handoffs in sorted(groups.items()):
        alone = [h.isolated for h in handoffs if h.isolated is not None]
        row: dict[str, Any] = {"from": before, "to": after, "n": len(handoffs)}
        row["after"] = _rate([h.succeeded for h in handoffs])
        row["isolated"] = _rate(alone)
        tax = _tax(handoffs)
        del tax["rate_isolated"]
        rows.append(row | tax | {"errors": error_rows(handoffs)})
    return _corrected(rows)


def _tax(handoffs: Sequence[HandoffSeen]) -> dict[str, Any]:
    clusters: dict[int, list[tuple[bool, bool]]] = defaultdict(list)
    for one in handoffs:
        if one.isolated is not None:
            clusters[one.study].append((one.succeeded, one.isolated))
    alone = [h.isolated for h in handoffs if h.isolated is not None]
    pairs = list(clusters.values())
    mean, low, high = clustered(pairs)
    return {
        "rate_isolated": wilson(sum(alone), len(alone)).mean,
        "paired": len(alone),
        "tax": mean,
        "ci_low": low,
        "ci_high": high,
        "p_value": sign_flip([[b - a for a, b in cluster] for cluster in pairs]),
    }


def _corrected(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    significant = holm([row["p_value"] for row in rows])
    return [row | {"significant": s} for row, s in zip(rows, significant, strict=True)]


def error_rows(handoffs: Sequence[HandoffSeen]) -> list[dict[str, Any]]:
    """For each dimension of error: its medians before success and failure, and success by bins."""
    rows = []
    for dimension, unit in UNITS.items():
        found = [(h.errors[dimension], h.succeeded) for h in handoffs if dimension in h.errors]
        if not found:
            continue
        good, bad = ([v for v, ok in found if ok is wanted] for wanted in (True, False))
        row: dict[str, Any] = {"dimension": dimension, "unit": unit, "n": len(found)}
        row["median_before_success"] = statistics.median(good) if good else None
        row["median_before_failure"] = statistics.median(bad) if bad else None
        rows.append(row | {"bins": _bins(found)})
    return rows


def _bins(found: Sequence[tuple[float, bool]]) -> list[dict[str, Any]]:
    """Success in bins with about as many handoffs each."""
    values = np.array([value for value, _ in found])
    count = _BINS if len(found) >= _LEAST else 1
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, count + 1)))
    if len(edges) == 1:
        edges = np.array([edges[0], edges[0]])
    rows = []
    for low, high in itertools.pairwise(edges):
        last = high == edges[-1]
        inside = [ok for v, ok in found if low <= v < high or (last and v == high)]
        row = {"low": float(low), "high": float(high), "n": len(inside), "rate": _rate(inside)}
        rows.append(row)
    return rows


def _rate(outcomes: Sequence[bool]) -> dict[str, Any]:
    mean, low, high = (
        getattr(wilson(sum(outcomes), len(outcomes)), name)
        for name in ("mean", "ci_low", "ci_high")
    )
    return {"mean": mean, "ci_low": low, "ci_high": high}
