"""`tpsrl convert`: converts a checkpoint of habitat-baselines to a policy of tpsrl."""

import dataclasses
from pathlib import Path

from tpsrl import config
from tpsrl.commands import Command, by_skill
from tpsrl.errors import UserError
from tpsrl.runtime import files

_DESCRIPTION = """Converts a checkpoint of habitat-baselines (ckpt.N.pth of rl_skill.yaml:
PointNavResNetPolicy with ResNet-18, LSTM and Gaussian actions) into SKILL.safetensors. The policy
then acts in `tpsrl eval`, `video`, `view` and plans, and `tpsrl train SKILL init=` continues it.
It computes the same actions from the same observations. Weights that only training needs are left
out and listed. No code of the checkpoint is executed. See docs/from_habitat_baselines.md."""


@dataclasses.dataclass(frozen=True, slots=True)
class ConvertSettings:
    """Settings of `tpsrl convert`."""

    skill: str = config.option("", "name of the skill of the checkpoint")
    checkpoint: str = config.option("", "checkpoint of habitat-baselines, ckpt.N.pth")
    out: str = config.option("out/converted", "output folder")
    replace: bool = config.option(False, "replace another policy in the output folder")


def choose(word: str | None) -> Command:
    """Returns the command for a skill.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, ConvertSettings, run))


def run(settings: ConvertSettings) -> int:
    """Converts the checkpoint and writes the policy.

    Raises:
        UserError: the file is not a checkpoint of habitat-baselines, its network has no
            counterpart, or the folder already has a policy of the skill.
    """
    if not settings.checkpoint:
        raise UserError("checkpoint: name a checkpoint of habitat-baselines, ckpt.N.pth")
    from skills.policies import baselines, baselines_file, pretrained
    from tpsrl.rl.run import checkpoint as checkpoints

    file = baselines_file.read(settings.checkpoint)
    made = baselines.convert(file, settings.skill)
    out = Path(files.check_writable(settings.out)) / pretrained.file_name(settings.skill)
    if out.exists() and not settings.replace:
        raise UserError(f"out: {out} exists; choose another folder, or set replace=true")
    tensors, note = checkpoints.policy_part(made.policy)
    deploy = {"deploy": made.deployment.to_json(), "steps": file.steps}
    checkpoints.save(out, tensors, note | deploy)
    count = sum(parameter.numel() for parameter in made.policy.parameters())
    depth = made.deployment.inputs.depth
    sees = "blind" if depth is None else f"{depth[0]} x {depth[1]} head depth"
    print(f"{count:,} parameters, {sees}, {file.steps:,} steps of experience")
    if made.left_out:
        print(f"left out, used in training only: {', '.join(made.left_out)}")
    print(f"wrote {out}; evaluate it with `tpsrl eval {settings.skill} agent={out}`")
    return 0
