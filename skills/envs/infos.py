"""Infos of environments, with the same structure after every reset and step.

Infos contain only numbers and booleans, under the same names, so that recorders and tensor
libraries can stack them.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from skills.core.conditions import Conditions
from skills.envs.batch import BatchStep, SkillBatch

Told = dict[str, Any]  # arrays (m,) by name, or nested dictionaries of them


def begun(batch: SkillBatch, env_ids: Sequence[int], starts: Sequence[int]) -> Told:
    """Returns the infos of m homes that were just reset to these start states."""
    terms = {name: np.zeros(len(env_ids)) for name in batch.reward_names(env_ids[0])}
    success, failure = (np.zeros(len(env_ids), dtype=kind) for kind in (bool, np.int64))
    conditions = batch.conditions(env_ids, stop=success)
    return _told(batch, env_ids, starts, success, failure, terms, conditions)


def stepped(
    batch: SkillBatch, env_ids: Sequence[int], starts: Sequence[int], done: BatchStep
) -> Told:
    """Returns the infos of m homes after a step, in episodes from these start states."""
    outcome = done.outcome
    terms = {name: np.asarray(term) for name, term in outcome.reward_terms.items()}
    success, failure = np.asarray(outcome.success), np.asarray(outcome.failure, dtype=np.int64)
    return _told(batch, env_ids, starts, success, failure, terms, outcome.conditions)


def _told(
    batch: SkillBatch,
    env_ids: Sequence[int],
    starts: Sequence[int],
    success: np.ndarray,
    failure: np.ndarray,
    terms: Told,
    conditions: Conditions,
) -> Told:
    info = {
        "start": np.array(starts, dtype=np.int64),
        "success": success,
        "failure": failure,
        "reward_terms": terms,
        "results": {
            name: {"holds": np.asarray(found.holds), "margin": np.asarray(found.margin)}
            for name, found in conditions.items()
        },
    }
    ways = batch.ways(env_ids, success)
    return info if ways is None else info | {"path": ways}


def merged(count: int, parts: Sequence[tuple[Sequence[int], Told]]) -> Told:
    """Merges infos of subsets of homes into arrays (count,), with zeros for other homes.

    Args:
        count: number of all homes
        parts: numbers and infos of each subset
    """
    (env_ids, first), *others = parts
    if not others and len(env_ids) == count:
        return first
    whole: Told = {}
    for name, value in first.items():
        rows = [(homes, info[name]) for homes, info in parts]
        if isinstance(value, dict):
            whole[name] = merged(count, rows)
            continue
        whole[name] = np.zeros(count, dtype=value.dtype)
        for homes, values in rows:
            whole[name][homes] = values
    return whole


def row_of(info: Told, row: int) -> dict[str, Any]:
    """Returns the info of the home at `row`, as Python numbers."""
    return {
        name: row_of(value, row) if isinstance(value, dict) else value[row].item()
        for name, value in info.items()
    }


def with_masks(info: Told, here: np.ndarray) -> dict[str, Any]:
    """Adds to each entry the mask "_name" that gymnasium's vector environments have.

    Args:
        info: infos
        here: (n,) bool, homes that the entries are valid for
    """
    infos: dict[str, Any] = {}
    for name, value in info.items():
        infos[name] = with_masks(value, here) if isinstance(value, dict) else value
        infos[f"_{name}"] = here
    return infos
