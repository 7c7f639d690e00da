"""Log probabilities under the policy at the start of an update, for steps of older policies.

PPO's ratio bounds how far an update moves the policy, so its denominator must be the policy that is
updated. If an older policy collected the step, the recorded probability is a different one: it then
enters as a fixed importance weight, proximal / behaviour (decoupled PPO: Hilton, Cobbe and Schulman
2022, "Batch size-invariance for policy optimization", equation 3).
"""

import numpy as np
import torch

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.learning.sequences import Minibatch, packed, sequences
from tpsrl.rl.policy.actor_critic import ActorCritic


def proximal_log_prob(
    policy: ActorCritic, rollout: Rollout, version: int, batch: int
) -> torch.Tensor:
    """Returns the log probabilities of a finished rollout's actions under a policy, as a column.

    Where version `version` of the policy collected a row, the recorded log probability is used.
    Elsewhere the policy is run over the sequence from its start up to the last row of another
    version, so that a few steps of another version cost little.

    Args:
        policy: the current policy
        rollout: a finished rollout
        version: version of `policy`
        batch: approximate number of steps per run of the policy
    """
    found = rollout.log_prob
    parts = stale_sequences(rollout, version, batch)
    if not parts:
        return found
    found = found.clone()
    for part in parts:
        rows = part.rows
        observation = {name: t.index_select(0, rows) for name, t in rollout.observation.items()}
        with torch.no_grad():
            step = policy.evaluate(observation, rollout.previous_action[rows], part.pack)
            mean, std = step.mean.float(), step.std.float()
            found[rows] = policy.log_prob(mean, std, rollout.action[rows])
    return found


def stale_sequences(rollout: Rollout, version: int, batch: int) -> list[Minibatch]:
    """Returns the sequences with rows of other versions, each up to the last of these rows.

    Each part has at most `batch` steps, unless it is a single sequence.
    """
    rows = rollout.rows
    columns = (rollout.env, rollout.is_first, rollout.generation)
    order, lengths = sequences(*(column[rows] for column in columns))
    if rollout.memory.shape[1] == 0:
        lengths = np.ones(len(order), np.int64)
    begins = np.cumsum(lengths) - lengths
    place = np.arange(len(order)) - np.repeat(begins, lengths)
    stale = rollout.version[rows[order]] != version
    if not stale.any():
        return []
    needed = np.maximum.reduceat(np.where(stale, place + 1, 0), begins)
    order = rows[order[place < np.repeat(needed, lengths)]]
    needed = needed[needed > 0]
    parts: list[Minibatch] = []
    first = 0
    while first < len(needed):
        ends = np.cumsum(needed[first:])
        count = max(1, int((ends <= batch).sum()))
        steps = int(ends[count - 1])
        parts.append(packed(rollout, order[:steps], needed[first : first + count]))
        order, first = order[steps:], first + count
    return parts
