"""Presets of `tpsrl clone` (`configs/clone`): settings of network and optimisation."""

import dataclasses

from tpsrl import config
from tpsrl.rl.imitation.settings import CloningSettings
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.world import action as act

SWITCHES = (act.GRIP, act.STOP)  # the parts of an action of which only the sign matters
# Factors of errors in the loss. An error of a tenth of the maximum is 8 mm or half a degree per
# step for the base, but only a few hundredths of a degree for the arm.
SCALES = dict.fromkeys(range(act.BASE.start, act.BASE.stop), 3.0)


@dataclasses.dataclass(frozen=True, slots=True)
class ClonePreset:
    """Settings of network and optimisation."""

    name: str = ""
    policy: PolicySettings = config.part(PolicySettings, "network")
    cloning: CloningSettings = config.part(CloningSettings, "optimisation")
