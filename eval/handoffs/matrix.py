"""Handoff matrix: success of a skill after another one, compared with success in isolation."""

import dataclasses
import itertools
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from msgspec import structs

from eval.analysing.intervals import Rate, wilson
from eval.analysing.schema import ErrorBin, ErrorRow, HandoffRow, MatrixRow
from eval.handoffs.errors import UNITS
from eval.handoffs.statistics import clustered, holm, sign_flip

Taxed = TypeVar("Taxed", HandoffRow, MatrixRow)

_BINS = 4
_LEAST = 8  # values needed for more than one bin


@dataclasses.dataclass(frozen=True, slots=True)
class HandoffSeen:
    """One handoff in one episode, after a step that handed over."""

    study: int
    index: int  # of the second step
    before: str  # names of the two steps
    after: str
    skills: tuple[str, str]
    succeeded: bool
    isolated: bool | None
    errors: Mapping[str, float]


def seen(studies: Sequence[Mapping[str, Any]]) -> Iterator[HandoffSeen]:
    """Yields every handoff of the studies."""
    for number, study in enumerate(studies):
        stages = study["stages"]
        for index in range(1, len(stages)):
            first, second = stages[index - 1], stages[index]
            if first["handed_over"] and second["reached"]:
                names, skills = (first["name"], second["name"]), (first["skill"], second["skill"])
                good, alone = second["handed_over"], second["isolated"]
                errors = second["errors"] or {}
                yield HandoffSeen(number, index, *names, skills, good, alone, errors)


def by_step(studies: Sequence[Mapping[str, Any]]) -> list[HandoffRow]:
    """Returns the second one's success after the first, and the tax, by pair of consecutive steps.

    `rate_after_handoff` is over all `n` handoffs. `rate_isolated` is the success of the same skill
    from its own start states, in those of these episodes that have such a run (`paired`). `tax` is
    the difference of the two in the paired episodes, with its interval. `p_value` is of the
    sign-flip test, `significant` after Holm's correction over all pairs.
    """
    groups: dict[tuple[int, str, str], list[HandoffSeen]] = defaultdict(list)
    for one in seen(studies):
        groups[one.index - 1, one.before, one.after].append(one)
    return _corrected(
        [
            HandoffRow(
                index=index,
                from_=before,
                to=after,
                skill_from=handoffs[0].skills[0],
                skill_to=handoffs[0].skills[1],
                n=len(handoffs),
                rate_after_handoff=_rate([h.succeeded for h in handoffs]).mean,
                rate_isolated=_rate(_alone(handoffs)).mean,
                **_tax(handoffs),
                significant=False,
            )
            for (index, before, after), handoffs in sorted(groups.items())
        ]
    )


def by_skills(studies: Sequence[Mapping[str, Any]]) -> list[MatrixRow]:
    """Returns the same for each pair of skills, over all steps, with the errors by dimension.

    `after` and `isolated` are rates with Wilson's interval. Interval and p-value of the tax treat
    the handoffs of one episode as a cluster.
    """
    groups: dict[tuple[str, str], list[HandoffSeen]] = defaultdict(list)
    for one in seen(studies):
        groups[one.skills].append(one)
    return _corrected(
        [
            MatrixRow(
                from_=before,
                to=after,
                n=len(handoffs),
                after=_rate([h.succeeded for h in handoffs]),
                isolated=_rate(_alone(handoffs)),
                **_tax(handoffs),
                errors=error_rows(handoffs),
                significant=False,
            )
            for (before, after), handoffs in sorted(groups.items())
        ]
    )


def _alone(handoffs: Sequence[HandoffSeen]) -> list[bool]:
    return [h.isolated for h in handoffs if h.isolated is not None]


def _tax(handoffs: Sequence[HandoffSeen]) -> dict[str, Any]:
    """Returns the fields of a row that concern the tax."""
    clusters: dict[int, list[tuple[bool, bool]]] = defaultdict(list)
    for one in handoffs:
        if one.isolated is not None:
            clusters[one.study].append((one.succeeded, one.isolated))
    pairs = list(clusters.values())
    mean, low, high = clustered(pairs)
    p_value = sign_flip([[b - a for a, b in cluster] for cluster in pairs])
    return {
        "paired": len(_alone(handoffs)),
        "tax": mean,
        "ci_low": low,
        "ci_high": high,
        "p_value": p_value,
    }


def _corrected(rows: list[Taxed]) -> list[Taxed]:
    significant = holm([float(row.p_value or 0.0) for row in rows])
    return [
        structs.replace(row, significant=found)
        for row, found in zip(rows, significant, strict=True)
    ]


def error_rows(handoffs: Sequence[HandoffSeen]) -> list[ErrorRow]:
    """Returns by error dimension the medians before success and failure, and success by bins."""
    rows = []
    for dimension, unit in UNITS.items():
        found = [(h.errors[dimension], h.succeeded) for h in handoffs if dimension in h.errors]
        if not found:
            continue
        good, bad = ([v for v, ok in found if ok is wanted] for wanted in (True, False))
        rows.append(
            ErrorRow(
                dimension=dimension,
                unit=unit,
                n=len(found),
                median_before_success=statistics.median(good) if good else None,
                median_before_failure=statistics.median(bad) if bad else None,
                bins=_bins(found),
            )
        )
    return rows


def _bins(found: Sequence[tuple[float, bool]]) -> list[ErrorBin]:
    """Returns success in bins with about equally many handoffs."""
    values = np.array([value for value, _ in found])
    count = _BINS if len(found) >= _LEAST else 1
    edges = np.unique(np.quantile(values, np.linspace(0.0, 1.0, count + 1)))
    if len(edges) == 1:
        edges = np.array([edges[0], edges[0]])
    rows = []
    for low, high in itertools.pairwise(edges):
        last = high == edges[-1]
        inside = [ok for v, ok in found if low <= v < high or (last and v == high)]
        rows.append(ErrorBin(float(low), float(high), len(inside), _rate(inside)))
    return rows


def _rate(outcomes: Sequence[bool]) -> Rate:
    return wilson(sum(outcomes), len(outcomes))
