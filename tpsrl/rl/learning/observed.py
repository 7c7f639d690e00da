"""Running moments of observations over the rollouts of all ranks."""

import torch

from tpsrl.rl.collection.rollout import Rollout
from tpsrl.rl.distributed.group import Group
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.rl.policy.moments import RunningMoments

_AT_ONCE = 256  # images per batch of sums


def follow(policy: ActorCritic, rollout: Rollout, group: Group) -> None:
    """Updates a policy's running moments with the fresh steps of all ranks.

    Sums are over all ranks and in float64, so all ranks keep equal moments. For images, the moments
    are per channel (`tpsrl.rl.policy.channel_norm`).

    Args:
        policy: the policy, whose moments, if any, are changed in place
        rollout: a finished rollout
        group: ranks that learn together; all of them call this function
    """
    rows = torch.as_tensor(rollout.rows[: rollout.num_fresh], device=rollout.device)
    for name, moments in policy.moments.items():
        assert isinstance(moments, RunningMoments)
        seen = rollout.observation[name].index_select(0, rows).double()
        count, *sums = group.totals([float(len(rows)), *seen.sum(0).tolist()])
        mean = torch.tensor(sums, dtype=torch.float64, device=seen.device) / max(count, 1.0)
        squares = group.totals((seen - mean).square().sum(0).tolist())
        variance = torch.tensor(squares, dtype=torch.float64, device=seen.device) / max(count, 1.0)
        moments.add(count, mean, variance)
    for towers in policy.towers():
        parts = [
            towers[0].sums({n: rollout.observation[n].index_select(0, p) for n in towers[0].names})
            for p in rows.split(_AT_ONCE)
        ]
        totals = group.totals(torch.stack(parts).sum(0).tolist())
        for tower in towers:
            tower.norm.take(totals)
