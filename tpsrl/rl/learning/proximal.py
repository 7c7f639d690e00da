"""What the policy would have done at the start of an update where another one has collected.

PPO's ratio bounds how far an update moves the policy, so it has to be taken to the policy that is
updated. Where a former one has collected, that is another probability than the recorded one, and
the recorded one counts as a fixed importance weight, proximal / behaviour (decoupled PPO: Hilton,
Cobbe and Schulman 2022, "Batch size-invariance for policy optimization", equation 3).
"""

import numpy as np
import torch

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.learning.sequences import Minibatch, packed, sequences
from tpsrl.rl.policy.actor_critic import ActorCritic


def proximal_log_prob(
    policy: ActorCritic, rollout: Rollout, version: int, batch: int
) -> torch.Tensor:
    """Logarithms of the probability that a policy gives the actions of a finished rollout.

    A column of the rollout. Where the policy of this `version` has collected, it is what was
    recorded; elsewhere the policy is run over the sequence from its start, as far as other versions
    have collected, so that a few steps of another version cost little.

    Args:
        policy: as it is now
        rollout: finished
        version: of the policy
        batch: about how many steps it is run on at once
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
    """The sequences of a rollout in which other versions have collected, each up to the last such.

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
