"""Model and data of many homes on the device."""

import mujoco
import mujoco_warp
import warp as wp

from tpsrl.sim.home_model import HomeModel
from tpsrl.sim.warp.starts import DATA_FIELDS, MODEL_FIELDS

# State of a home between steps: with the state of the rules, all that its next step depends on.
STATE_FIELDS = ("qpos", "qvel", "qacc_warmstart", "ctrl", "time")

_SLEEP = int(mujoco.mjtEnableBit.mjENBL_SLEEP)


class DeviceHomes:
    """Arrays of mujoco-warp, and tensors that are views of them.

    Sleep is disabled, so that the engine updates the poses of all moving bodies and has room for
    all degrees of freedom of the model.

    Args:
        home: the compiled home.
        num_envs: number of homes.
        room: room per home for "contacts", shared by all homes, and for rows of "constraints".
        device: warp device, "cpu" or "cuda:0".
    """

    def __init__(self, home: HomeModel, num_envs: int, room: dict[str, int], device: str) -> None:
        model = home.model.__copy__()
        model.opt.enableflags &= ~_SLEEP
        with wp.ScopedDevice(device):
            batched = dict.fromkeys(MODEL_FIELDS, num_envs)
            self.model = mujoco_warp.put_model(model, batch_sizes=batched)
            self.model.opt.warn_overflow = 0
            self.data = mujoco_warp.make_data(
                model, nworld=num_envs, nconmax=room["contacts"], njmax=room["constraints"]
            )
        self.of_model = {name: wp.to_torch(getattr(self.model, name)) for name in MODEL_FIELDS}
        self.of_data = {name: wp.to_torch(getattr(self.data, name)) for name in DATA_FIELDS}
        self.tip = wp.to_torch(self.data.site_xpos)[:, home.cup_site]
        self.overflow = wp.to_torch(self.data.overflow)
