"""Adapters that run policies of other libraries for a skill of tpsrl, alone and in a plan.

tpsrl eval pick agent=own_policy.py:StableBaselinesPick
tpsrl eval tidy_house skills.pick=own_policy.py:LeRobotPick
"""

import os

import numpy as np


class StableBaselinesPick:
    """A Stable-Baselines3 policy, trained on tpsrl/Pick-v0 with `sensors="fetch", depth=(64, 64)`.

    The environment variable SB3_MODEL is the path of its file (default: pick_ppo.zip).
    """

    sensors = "fetch"
    depth = (64, 64)

    def __init__(self) -> None:
        from stable_baselines3 import PPO

        self.model = PPO.load(os.environ.get("SB3_MODEL", "pick_ppo.zip"), device="cpu")

    def reset(self) -> None:
        """Does nothing: the policy has no memory."""

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the mean action (11,)."""
        action, _ = self.model.predict(observation, deterministic=True)
        return action


class LeRobotPick:
    """A LeRobot policy, trained on a dataset of `tpsrl demos pick format=lerobot`.

    The environment variable LEROBOT_POLICY is the path of its folder (default: lerobot_pick).
    """

    sensors = "fetch"
    depth = (64, 64)

    def __init__(self) -> None:
        from lerobot.policies.act.modeling_act import ACTPolicy

        self.policy = ACTPolicy.from_pretrained(os.environ.get("LEROBOT_POLICY", "lerobot_pick"))

    def reset(self) -> None:
        """Discards the rest of the current chunk of actions."""
        self.policy.reset()

    def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Returns the next action (11,) of the current chunk."""
        import torch

        # LeRobot expects images as (channels, height, width) with three channels in [0, 1].
        depth = torch.from_numpy(observation["depth"]).expand(3, -1, -1)
        batch = {
            "observation.state": torch.from_numpy(observation["state"])[None],
            "observation.depth": depth[None],
        }
        with torch.inference_mode():
            return self.policy.select_action(batch)[0].numpy()
