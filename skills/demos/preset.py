"""What a cloning can be told of network and fitting: a preset of `configs/clone`."""

import dataclasses

from tpsrl import config
from tpsrl.rl.imitation.settings import CloningSettings
from tpsrl.rl.policy.settings import PolicySettings
from tpsrl.world import action as act

SWITCHES = (act.GRIP, act.STOP)  # the parts of an action of which only the sign matters
# A tenth of the base's fastest is 8 mm or half a degree in a step, of the arm's a few hundredths of
# a degree.
SCALES = dict.fromkeys(range(act.BASE.start, act.BASE.stop), 3.0)


@dataclasses.dataclass(frozen=True, slots=True)
class ClonePreset:
    """Network and fitting."""

    name: str = ""
    policy: PolicySettings = config.part(PolicySettings, "network")
    cloning: CloningSettings = config.part(CloningSettings, "optimisation")
