"""Waterfall chart of the loss between success of isolated skills and success of the chain."""

import dataclasses
import itertools
import operator

from eval.analysing.schema import LossPart, Propagation
from eval.reporting import bars, words
from eval.reporting.words import percent, points

_LEAST = 0.005  # smaller parts (share of episodes) are one row


@dataclasses.dataclass(frozen=True, slots=True)
class LossStep:
    """A bar of the waterfall, from the success before a part of the loss to that after it."""

    label: str
    kind: str
    value: float
    before: float
    after: float


@dataclasses.dataclass(frozen=True, slots=True)
class Waterfall:
    """From the product of isolated rates to measured success; `summary` is one sentence."""

    axis: bars.Axis
    isolated: float
    measured: float
    steps: list[LossStep]
    summary: str


def waterfall(found: Propagation | None) -> Waterfall | None:
    """Returns the waterfall; None if the product of isolated rates was not measured."""
    if found is None or found.product_isolated is None or not isinstance(found.parts, list):
        return None
    small = [part.value for part in found.parts if abs(part.value) < _LEAST]
    shown = [
        (_label(part), part.kind, part.value) for part in found.parts if abs(part.value) >= _LEAST
    ]
    if small:
        shown.append((f"{len(small)} smaller parts", "other", sum(small)))
    values = [value for _, _, value in shown]
    left = list(itertools.accumulate(values, operator.sub, initial=found.product_isolated))
    steps = [
        LossStep(*row, *ends) for row, ends in zip(shown, itertools.pairwise(left), strict=True)
    ]
    axis = bars.around([*left, found.measured])
    text = _sum(found, found.product_isolated)
    return Waterfall(axis, found.product_isolated, found.measured, steps, text)


def _sum(found: Propagation, isolated: float) -> str:
    measured = found.measured
    text = f"Product of the isolated rates {percent(isolated)}, measured {percent(measured)}"
    text += f": {points(measured - isolated)} points"
    if found.product_conditional is not None and isinstance(found.residual, float):
        text += ". The product of the rates after each handoff is"
        text += f" {percent(found.product_conditional)},"
        text += f" {points(found.residual)} points from the measured success"
    return f"{text}."


def _label(part: LossPart) -> str:
    text = words.setback(part)
    return text if part.stage is None or part.stage < 0 else f"{part.stage + 1}  {text}"
