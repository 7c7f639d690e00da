"""Propagation of success from single skills to the whole episode: the loss, split into parts.

Let a(k) be the success of step k in isolation over all episodes, b(k) the same over the episodes in
which all steps before k have handed over, and c(k) the success of step k after them in these
episodes. The product of the a is the success that the skills promise, the product of the c the
share of episodes in which every step hands over. Replacing one factor after the other splits the
difference exactly: a by b is selection (the episodes that get to step k are easier or harder ones),
b by c is the tax of the handoff into k. A separate part of the latter is time: the episode ran out
of steps, though the step succeeds in isolation. A step that could not be run in isolation counts in
b with its actual outcome: without a pair there is no evidence of a tax.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from eval.analysing.schema import LossPart, Propagation
from eval.handoffs.study import StudyRecord


def propagation(studies: Sequence[StudyRecord], steps: Sequence[Sequence[int]] = ()) -> Propagation:
    """Returns measured success, the products of rates of single steps, and the loss in parts.

    `product_conditional` is the product of the success of each step given only that the one before
    handed over, `residual` is measured success minus this product, and `loss` is the isolated
    product minus measured success. `parts` add up to the loss: "selection", "tax" and "time" of a
    step; "lost" (every step handed over, but the goal was missed) and "made_good" (negative: the
    goal was met although a step had failed). If episodes have different plans, for example because
    an object is at its goal from the start, only those with the most frequent plan are used. If a
    step never ran in isolation, `product_isolated` and `loss` are None and there are no parts.

    Args:
        studies: of the episodes
        steps: control steps of each study's stages, which determine the skill that used up the time
    """
    studies, steps = _of_one_plan(studies, steps)
    measured = float(np.mean([study["success"] for study in studies]))
    rates = [_rates(studies, index) for index in range(len(studies[0]["stages"]))]
    conditional = _conditional(studies)
    found = Propagation(
        episodes=len(studies),
        measured=measured,
        product_conditional=conditional,
        residual=_less(measured, conditional),
        parts=[],
    )
    if any(rate is None for rate in rates):
        return found
    table = np.array(rates, dtype=float).reshape(-1, 4)
    alone, reached, real, late = table.T
    product = float(np.prod(alone))
    parts = [
        *_telescoped("selection", studies, alone, reached, alone - reached, reached, alone),
        *_telescoped("tax", studies, reached, real, reached - real - late, real, reached),
        *_timed(_telescoped("time", studies, reached, real, late, real, reached), studies, steps),
        *_afterwards(studies),
    ]
    parts = [part for part in parts if abs(part.value) > 1e-12]
    return structs.replace(found, product_isolated=product, loss=product - measured, parts=parts)


def _of_one_plan(
    studies: Sequence[StudyRecord], steps: Sequence[Sequence[int]]
) -> tuple[Sequence[StudyRecord], Sequence[Sequence[int]]]:
    """Returns the studies with the most frequent sequence of steps, and their control steps."""
    plans = [tuple(stage["name"] for stage in study["stages"]) for study in studies]
    usual = max(plans, key=plans.count)
    rows = [row for row, plan in enumerate(plans) if plan == usual]
    return [studies[row] for row in rows], [steps[row] for row in rows if row < len(steps)]


def _less(value: float, other: float | None) -> float | None:
    return None if other is None else value - other


def _chained(study: StudyRecord, index: int) -> bool:
    """Returns whether all steps before `index` have handed over."""
    return all(stage["handed_over"] for stage in study["stages"][:index])


def _rates(studies: Sequence[StudyRecord], index: int) -> tuple[float, float, float, float] | None:
    """Returns a, b and c of a step, and the share of failures for lack of time alone.

    The share is of the episodes that reached the step. A step that no episode reached has b = a and
    c = 0, which changes nothing: a factor before it is 0. None if it never ran in isolation.
    """
    alone = [s["stages"][index]["isolated"] for s in studies]
    known = [a for a in alone if a is not None]
    if not known:
        return None
    everywhere = float(np.mean(known))
    here = [study["stages"][index] for study in studies if _chained(study, index)]
    if not here:
        return everywhere, everywhere, 0.0, 0.0
    real = np.array([stage["handed_over"] for stage in here])
    pairs = [(stage["isolated"], stage["handed_over"]) for stage in here]
    reached = np.array([good if alone is None else alone for alone, good in pairs])
    late = np.array([stage["time"] for stage in here]) & reached & ~real
    return everywhere, float(np.mean(reached)), float(np.mean(real)), float(np.mean(late))


def _conditional(studies: Sequence[StudyRecord]) -> float | None:
    """Returns the product of the first step's rate and each later step's rate after a handoff.

    The rate of a later step is over the episodes in which the step before handed over. 0 from the
    first factor that is 0; None if a factor was never measured.
    """
    product = 1.0
    for index in range(len(studies[0]["stages"])):
        outcomes = [
            study["stages"][index]["handed_over"]
            for study in studies
            if index == 0 or study["stages"][index - 1]["handed_over"]
        ]
        if not outcomes:
            return None
        product *= float(np.mean(outcomes))
        if product == 0.0:
            return 0.0
    return product


def _telescoped(
    kind: str,
    studies: Sequence[StudyRecord],
    old: np.ndarray,
    new: np.ndarray,
    change: np.ndarray,
    before: np.ndarray,
    after: np.ndarray,
) -> list[LossPart]:
    """Returns what each factor's change from `old` to `new` takes off the product, in order."""
    stages = studies[0]["stages"]
    rows = []
    for k, stage in enumerate(stages):
        value = float(np.prod(before[:k]) * change[k] * np.prod(after[k + 1 :]))
        source, skill = stages[k - 1]["name"] if k else "start", stage["skill"]
        rows.append(
            LossPart(kind=kind, stage=k, from_=source, to=stage["name"], skill=skill, value=value)
        )
    return rows


def _timed(
    parts: list[LossPart], studies: Sequence[StudyRecord], steps: Sequence[Sequence[int]]
) -> list[LossPart]:
    """Adds the skill that used up the time.

    It is the skill with the most control steps in excess of the median of its successes.
    """
    usual: dict[int, list[int]] = defaultdict(list)
    for study, used in zip(studies, steps, strict=False):
        for index, count in enumerate(used[: len(study["stages"])]):
            if study["stages"][index]["handed_over"]:
                usual[index].append(count)
    excess: dict[str, float] = defaultdict(float)
    for study, used in zip(studies, steps, strict=False):
        if any(stage["time"] for stage in study["stages"]):
            for index, count in enumerate(used[: len(study["stages"])]):
                if usual[index]:
                    skill = study["stages"][index]["skill"]
                    excess[skill] += max(0.0, count - float(np.median(usual[index])))
    spender = max(excess, key=lambda skill: excess[skill], default=None)
    return [structs.replace(part, used_by=spender) for part in parts]


def _afterwards(studies: Sequence[StudyRecord]) -> list[LossPart]:
    """Returns the parts of the loss after the last handoff."""
    complete = [_chained(study, len(study["stages"])) for study in studies]
    pairs = list(zip(studies, complete, strict=True))
    lost = sum(done and not study["success"] for study, done in pairs) / len(studies)
    made_good = sum(study["success"] and not done for study, done in pairs) / len(studies)
    return [
        LossPart(kind=kind, stage=None, from_="end", to="verdict", skill="", value=value)
        for kind, value in (("lost", lost), ("made_good", -made_good))
    ]
