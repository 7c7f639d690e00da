"""Export of a policy as a program that runs without tpsrl, with `SKILL.json`, its description.

The program is `SKILL.pt2` of `torch.export`, or `SKILL.onnx` for ONNX runtimes.

Inputs of the program are the observation of one home, the previous action (1, 11), the memory
(1, M) and whether an episode begins (1,). Outputs are mean and standard deviation of the action
(1, 11) and the new memory. The program contains the network and its preprocessing of observations.
"""

import importlib.util
import io
import logging
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tpsrl
from skills.policies import learned
from tpsrl.errors import UserError
from tpsrl.rl.envs import pictures
from tpsrl.rl.envs.pictures import CLASSES, COLOUR, DEPTH, INSTANCES, dtype_of, kind_of, pictures_of
from tpsrl.rl.policy.actor_critic import ActorCritic
from tpsrl.runtime import files
from tpsrl.world import action as act
from tpsrl.world import cameras
from tpsrl.world.categories import CATEGORIES
from tpsrl.world.fetch import HEAD_CAMERA_FAR_M

FORMAT = "tpsrl-program/1"
TORCH_EXPORT, ONNX = "torch_export", "onnx"
_SUFFIX = {TORCH_EXPORT: ".pt2", ONNX: ".onnx"}
# Not "mean", which is the name of ONNX operations.
_RESULTS = ("action_mean", "action_std", "next_memory")

# Units of sensors that are not in metres alone.
_UNITS = {
    "arm": "rad",
    "holding": "0 or 1",
    "velocity": "m/s, m/s, rad/s",
    "gap": "rad or m",
    "goal_polar": "m, rad",
    "start_polar": "m, rad",
    "target_polar": "m, rad",
    "compass": "m, cosine, sine",
    "start_facing": "cosine, sine",
    "shape": "m (3), direction (6)",
    "motion": "m/s (3), rad/s (3)",
    "clearance": "share of the range",
    "neighbours": "share of the range",
    "trail": "m (8), rad",
    "elapsed": "steps / 300",
}


_UNITS_OF_PICTURES = {
    DEPTH: f"{HEAD_CAMERA_FAR_M:g} m",
    COLOUR: "uint8",
    CLASSES: f"uint8: {', '.join(cameras.CLASSES)}",
    INSTANCES: "uint8: number of the instance, 0 for nothing",
    pictures.CATEGORIES: f"uint8: 0 for none, then from 1 {', '.join(CATEGORIES)}",
}


def write(
    skill: str,
    path: str | os.PathLike[str],
    folder: Path,
    sample: bool | None = None,
    form: str = TORCH_EXPORT,
) -> Path:
    """Writes program and description of a skill's policy and returns the program's path.

    Args:
        skill: name of the skill
        path: see `skills.policies.learned.find`
        folder: destination
        sample: whether the description says that actions are sampled; None for the checkpoint's
            setting
        form: TORCH_EXPORT or ONNX

    Raises:
        UserError: the checkpoint is missing, the folder cannot be written, or the packages for
            ONNX are not installed.
    """
    network = learned.load(skill, path)
    program, beside = folder / f"{skill}{_SUFFIX[form]}", f"{skill}.json"
    files.check_replaceable(folder, (program.name, beside))
    note = described(network, network.sample if sample is None else sample)
    made = _torch_export(network) if form == TORCH_EXPORT else _onnx(network)
    try:
        with files.atomic(program, durable=True) as temporary:
            temporary.write_bytes(made)
    except OSError as error:
        raise UserError(f"out: cannot write '{program}' ({error.strerror})") from None
    files.write_json(folder / beside, note)
    return program


def described(network: learned.Network, sample: bool) -> dict[str, Any]:
    """Returns the description of a program's inputs and outputs, as JSON types."""
    inputs, policy = network.inputs, network.policy
    layout, own = inputs.layout(), set(inputs.privileged)
    sensors = [
        {
            "name": name,
            "begin": layout[name].start,
            "end": layout[name].stop,
            "unit": _UNITS.get(name, "m"),
            "privileged": name in own,
        }
        for name in inputs.sensors
    ]
    shown: dict[str, Any] = {
        name: {"shape": list(shape)} for name, shape in inputs.shapes().items()
    }
    shown["state"]["sensors"] = sensors
    for name in pictures_of(shown):
        shown[name]["unit"] = _UNITS_OF_PICTURES[kind_of(name) or DEPTH]
    parts = {
        "arm": f"change of joint target, {act.ARM_DELTA_RAD} rad",
        "grip": ">= 0 grasps on contact",
        "base": f"forward {act.BASE_LINEAR_MPS} m/s, turn {act.BASE_ANGULAR_RPS} rad/s",
        "stop": "> 0 ends the skill",
    }
    return {
        "format": FORMAT,
        "version": tpsrl.__version__,
        "torch": torch.__version__,
        "skill": inputs.skill,
        "policy": network.digest,
        "observation": shown,
        "action": {"size": act.SIZE, "mask": network.mask.tolist(), "parts": parts},
        "memory_size": policy.memory_size,
        "control_hz": act.CONTROL_HZ,
        "delay": network.delay,
        "sample": sample,
        **network.deployment.rules,
    }


class _Step(nn.Module):
    """Step of a policy with tensors only as inputs and outputs, as `torch.export` needs them."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.policy = policy

    def forward(
        self,
        observation: dict[str, torch.Tensor],
        previous_action: torch.Tensor,
        memory: torch.Tensor,
        is_first: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        step = self.policy.act(observation, previous_action, memory, is_first)
        assert step.memory is not None
        return step.mean, step.std, step.memory


def _exported(network: learned.Network) -> Any:
    policy, shapes = network.policy, network.inputs.shapes()
    shown = {
        name: torch.from_numpy(np.zeros((1, *shape), dtype_of(name)))
        for name, shape in shapes.items()
    }
    first = torch.ones(1, dtype=torch.bool)
    given = shown, torch.zeros(1, act.SIZE), policy.initial_memory(1), first
    with torch.no_grad():
        return torch.export.export(_Step(policy).eval(), given)


def _torch_export(network: learned.Network) -> bytes:
    made = io.BytesIO()
    with warnings.catch_warnings():
        # torch warns of issues with weights that share memory; on the CPU there are none.
        warnings.filterwarnings("ignore", "No complete tensor found", UserWarning)
        torch.export.save(_exported(network), made)
    return made.getvalue()


def _onnx(network: learned.Network) -> bytes:
    """Exports to ONNX, with inputs named after the observations and `_Step.forward`."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise UserError(
                f"format: onnx needs {package}; install the extra 'onnx' (pip install '.[onnx]')"
            )
    names = [*network.inputs.shapes(), "previous_action", "memory", "is_first"]
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)  # Otherwise it warns of a missing torchvision, for example.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            made = torch.onnx.export(
                _exported(network),
                dynamo=True,
                verbose=False,
                input_names=names,
                output_names=list(_RESULTS),
            )
    finally:
        logging.disable(disabled)
    assert made is not None
    content: bytes = made.model_proto.SerializeToString()
    return content
