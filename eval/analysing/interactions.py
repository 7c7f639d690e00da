"""Progress with each object, and distance driven, independent of the skill that drives.

These are NavPick and NavPickNavPlace of the VER paper. They allow a comparison between agents with
and without a navigation skill.
"""

from collections.abc import Sequence

from msgspec import UNSET, UnsetType

from eval.analysing.intervals import wilson
from eval.analysing.results import EpisodeResult, StageResult
from eval.analysing.schema import Interactions, ObjectRates, Travelled


def of_objects(results: Sequence[EpisodeResult]) -> Interactions:
    """Returns the progress with each object, in the order of their turns, and over all objects.

    `turns` counts the episodes in which the object's turn came. `nav_pick` is the share of these in
    which the object was in the hand after any step of its turn, `nav_pick_nav_place` the share in
    which the plan step that places it succeeded. Both have Wilson intervals.
    """
    found: dict[int, list[tuple[bool, bool]]] = {}
    for result in results:
        for turn in sorted({stage.turn for stage in result.stages if stage.turn}):
            stages = [stage for stage in result.stages if stage.turn == turn]
            group = found.setdefault(turn, [])
            if any(stage.reached for stage in stages):
                group.append((any(stage.in_hand for stage in stages), _placed(stages)))
    objects = [_rates(found[turn], turn) for turn in sorted(found)]
    return Interactions(objects, _rates([both for group in found.values() for both in group]))


def travelled_m(results: Sequence[EpisodeResult]) -> dict[str, Travelled]:
    """Returns, by skill, the number of runs and the mean path length (m) of the base."""
    runs: dict[str, int] = {}
    metres: dict[str, float] = {}
    for stage in (stage for result in results for stage in result.stages if stage.attempts):
        runs[stage.skill] = runs.get(stage.skill, 0) + stage.attempts
        metres[stage.skill] = metres.get(stage.skill, 0.0) + stage.travelled_m
    return {name: Travelled(runs[name], metres[name] / runs[name]) for name in sorted(runs)}


def _placed(stages: Sequence[StageResult]) -> bool:
    return any(stage.succeeded for stage in stages if stage.purpose == "object_at")


def _rates(outcomes: Sequence[tuple[bool, bool]], turn: int | UnsetType = UNSET) -> ObjectRates:
    count = len(outcomes)
    picked, placed = (wilson(sum(o[part] for o in outcomes), count) for part in (0, 1))
    return ObjectRates(object=turn, turns=count, nav_pick=picked, nav_pick_nav_place=placed)
