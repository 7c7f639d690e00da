"""Value of repairs: gain of each player alone, and Shapley values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import structs

from eval.analysing.paired import paired_difference, pairs
from eval.analysing.schema import Gain, RepairRow
from eval.handoffs.repairs import KINDS, Kind
from eval.handoffs.shapley import shapley
from eval.handoffs.statistics import bootstrap
from eval.handoffs.study import Players, StudyRecord


def ranked(studies: Sequence[StudyRecord], players: Players) -> list[RepairRow]:
    """Ranks the repairs of both kinds by the gain that each of them alone accounts for.

    `gain` = `after` - `before` over the `n` episodes in which the repair was run alone, with
    Newcombe's paired interval; in `applied` of them something was replaced. `shapley` is the share
    of the repair in the gain of repairing everything, over the episodes in which all coalitions
    were run, with a bootstrap interval over episodes; None if there are none.

    A repair that prevents a failure does not need to concern its cause: granting an effect also
    helps a skill that began in a state from which it could not succeed. Therefore repairs are
    sorted by `own`, then by gain. For a state, `own` is the gain if its interval is above 0, else
    0. For an effect, it is the share of episodes that only its repair turns into successes, and no
    repair of a state with `own` > 0; it is at most the gain.
    """
    rows: dict[str, list[tuple[int, RepairRow]]] = {kind: [] for kind in KINDS}
    for kind in KINDS:
        shares = _shares(kind, studies, players)
        for bit, handoff in enumerate(players.of[kind]):
            alone = gain(kind, studies, 1 << bit)
            if alone.n:
                mean, low, high = bootstrap(shares[bit] if len(shares) else [])
                row = RepairRow(
                    kind=kind,
                    from_=handoff[0],
                    to=handoff[1],
                    **structs.asdict(alone),
                    shapley=mean,
                    shapley_ci_low=low,
                    shapley_ci_high=high,
                )
                rows[kind].append((1 << bit, row))
    ranking: list[RepairRow] = []
    mended: set[str] = set()
    for coalition, row in rows["state"]:
        own = row.gain if row.ci_low > 0.0 else 0.0
        mended |= _mended("state", studies, coalition) if own else set()
        ranking.append(structs.replace(row, own=own))
    for coalition, row in rows["effect"]:
        others = _mended("effect", studies, coalition) - mended
        own = min(max(0.0, row.gain), len(others) / row.n)
        ranking.append(structs.replace(row, own=own))
    return sorted(ranking, key=lambda row: (-float(row.own or 0.0), -row.gain, -(row.shapley or 0)))


def _mended(kind: Kind, studies: Sequence[StudyRecord], coalition: int) -> set[str]:
    """Returns the failed episodes that a coalition's repair turns into successes."""
    outcomes = [(study, _outcome(kind, study, coalition)) for study in studies]
    return {s["id"] for s, o in outcomes if not s["success"] and o is not None and o["success"]}


def repair_all(studies: Sequence[StudyRecord], players: Players) -> dict[str, Gain]:
    """Returns the gain of repairing every handoff, by kind, over the Shapley values' episodes."""
    found: dict[str, Gain] = {}
    for kind in KINDS:
        whole = complete(kind, studies, players)
        found[kind] = gain(kind, whole, 2 ** len(players.of[kind]) - 1)
    return found


def gain(kind: Kind, studies: Sequence[StudyRecord], coalition: int) -> Gain:
    """Returns success before and after a coalition's repair, over the episodes that ran it."""
    run = [s for s in studies if _outcome(kind, s, coalition) is not None]
    before = [bool(study["success"]) for study in run]
    after = [bool(_outcome(kind, study, coalition)["success"]) for study in run]  # type: ignore[index]
    difference = paired_difference(pairs(before, after))
    applied = sum(_outcome(kind, study, coalition)["applied"] > 0 for study in run)  # type: ignore[index]
    return Gain(
        n=len(run),
        applied=applied,
        before=float(np.mean(before)) if run else None,
        after=float(np.mean(after)) if run else None,
        gain=difference.value,
        ci_low=difference.ci_low,
        ci_high=difference.ci_high,
    )


def _outcome(kind: Kind, study: StudyRecord, coalition: int) -> dict[str, Any] | None:
    """Returns the outcome of a coalition, None if it was not run."""
    found: dict[str, Any] | None = study["repairs"][kind].get(str(coalition))
    return found


def complete(kind: Kind, studies: Sequence[StudyRecord], players: Players) -> list[StudyRecord]:
    """Returns the studies in which all coalitions were run."""
    every = range(1, 2 ** len(players.of[kind]))
    return [s for s in studies if all(_outcome(kind, s, c) is not None for c in every)]


def _shares(kind: Kind, studies: Sequence[StudyRecord], players: Players) -> np.ndarray:
    """Returns Shapley values (players, n) of the n episodes in which all coalitions were run."""
    whole = complete(kind, studies, players)
    if not whole:
        return np.zeros((0, 0))
    worth = {0: np.array([study["success"] for study in whole], dtype=float)}
    for coalition in range(1, 2 ** len(players.of[kind])):
        outcomes = [_outcome(kind, study, coalition) for study in whole]
        worth[coalition] = np.array([o["success"] for o in outcomes if o], dtype=float)
    return shapley(worth, len(players.of[kind]))
