"""How the success of single skills becomes that of the whole: a loss, split into its parts.

With a(k) the success of step k by itself over all episodes, b(k) the same over the episodes in
which all steps before it have handed over, and c(k) its success after them in these: the product of
the a is what the skills promise, the product of the c is how often every step hands over. Replacing
one factor after the other splits the difference exactly: a by b is selection (the episodes that get
so far are easier or harder ones), b by c is the tax of the handoff into k, of which what ended for
want of time, though the step succeeds by itself, is a part of its own. Where a step could not be
run by itself, b takes it as it was: what has no pair says nothing of a tax.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from msgspec import structs

from eval.analysing.schema import LossPart, Propagation
from eval.handoffs.study import StudyRecord


def propagation(studies: Sequence[StudyRecord], steps: Sequence[Sequence[int]] = ()) -> Propagation:
    """Measured success, the products of isolated and of conditional rates, and the loss in parts.

    `steps` are the control steps of each study's stages; they say which skill used up the time.

    `product_conditional` is of the success of each step given only that the one before handed over,
    `residual` measured success less that, and `loss` the isolated product less measured success.
    `parts` add up to the loss: "selection", "tax" and "time" of a step; "lost" (every step handed
    over, and yet the goal was missed) and "made_good" (below 0: the goal was met although a step
    had failed). Where episodes have different plans, as when an object is at its goal from the
    start, all of it is of those with the most frequent one. Where a step never ran by itself,
    `product_isolated` and `loss` are None and there are no parts.
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
    """The studies with the most frequent sequence of steps, and their control steps."""
    plans = [tuple(stage["name"] for stage in study["stages"]) for study in studies]
    usual = max(plans, key=plans.count)
    rows = [row for row, plan in enumerate(plans) if plan == usual]
    return [studies[row] for row in rows], [steps[row] for row in rows if row < len(steps)]


def _less(value: float, other: float | None) -> float | None:
    return None if other is None else value - other


def _chained(study: StudyRecord, index: int) -> bool:
    """Whether all steps before one have handed over."""
    return all(stage["handed_over"] for stage in study["stages"][:index])


def _rates(studies: Sequence[StudyRecord], index: int) -> tuple[float, float, float, float] | None:
    """a, b, c of a step, and the share of those that reached it that only time kept from it.

    A step that no episode reached has b = a and c = 0, which changes nothing: a factor before it is
    0. None where it was never run by itself.
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
    """The first step's rate times that of each next one where the one before handed over.

    0 from the first factor that is 0; None where a factor was never seen.
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
    """What each factor's change from `old` to `new` takes off the product, one after the other."""
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
    """Adds the skill that used up the time: the most steps over the median of its successes."""
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
    """What happens between the last handoff and the verdict."""
    complete = [_chained(study, len(study["stages"])) for study in studies]
    pairs = list(zip(studies, complete, strict=True))
    lost = sum(done and not study["success"] for study, done in pairs) / len(studies)
    made_good = sum(study["success"] and not done for study, done in pairs) / len(studies)
    return [
        LossPart(kind=kind, stage=None, from_="end", to="verdict", skill="", value=value)
        for kind, value in (("lost", lost), ("made_good", -made_good))
    ]
