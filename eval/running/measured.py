"""Success rates of a policy from its evaluations, for the model card."""

import dataclasses
from collections.abc import Collection

from eval.analysing.schema import CauseRow, SkillReport
from eval.reporting import words
from eval.running.command import command_line
from eval.running.reports import read_report
from eval.settings import SkillSettings
from skills.policies import pretrained
from skills.policies.card import BlindSuccess, MeasuredSuccess
from skills.starts.seeds import VALIDATION_SEED
from tpsrl import config
from tpsrl.errors import UserError
from tpsrl.runtime import files

# Settings that do not affect the results, or that are part of the call already.
_LEFT_OUT = ("skill", "agent", "skills", "out", "processes", "videos", "video_stride")


def measured(
    folder: str,
    skill: str,
    digest: str,
    chosen_by: Collection[str] = (),
    seeds: Collection[int] = (VALIDATION_SEED,),
    agent: str = pretrained.WORD,
) -> MeasuredSuccess:
    """Returns the success rate of a policy from the report of an evaluation.

    Args:
        folder: output folder of `tpsrl eval SKILL agent=...`
        skill: of the policy
        digest: of the policy, see `skills.policies.learned.Network.digest`
        chosen_by: start states, as in `starts=`, that were used to select checkpoints
        seeds: seeds of the skill's own start states that were used to select checkpoints
        agent: how the command on the card names the policy

    Raises:
        UserError: the folder is not of such an evaluation, or is of another policy; or the
            evaluation is in apartments of the training, or from start states that were used to
            select checkpoints.
    """
    report, command = _evaluation(folder, skill, digest, "evaluation", agent)
    if report.blind:
        raise UserError(f"evaluation: {folder} evaluates a blinded policy; pass it as blind=")
    _check_unseen(report, folder, chosen_by, seeds)
    return MeasuredSuccess(
        **dataclasses.asdict(report.success),
        num_episodes=report.num_episodes,
        split=report.split,
        seed=report.seed,
        starts=report.starts,
        num_objects=report.num_objects,
        dataset=report.dataset,
        version=report.version,
        protocol=_protocol(report),
        failures=tuple(_failure(cause, report) for cause in report.first_causes),
        command=command,
    )


def measured_blind(folders: str, skill: str, digest: str) -> tuple[BlindSuccess, ...]:
    """Returns the success rates of a policy that received readings of other runs.

    Args:
        folders: output folders of `tpsrl eval SKILL agent=... blind=...`, comma-separated
        skill: see `measured`
        digest: see `measured`

    Raises:
        UserError: a folder is not of such an evaluation, or of another policy, or not blinded.
    """
    found = []
    for folder in filter(None, (part.strip() for part in folders.split(","))):
        report, command = _evaluation(folder, skill, digest, "blind")
        if not report.blind:
            raise UserError(f"blind: {folder} evaluates a policy that is not blinded")
        success, count = dataclasses.asdict(report.success), report.num_episodes
        found.append(
            BlindSuccess(tuple(report.blind), **success, num_episodes=count, command=command)
        )
    return tuple(found)


def _evaluation(
    folder: str, skill: str, digest: str, field: str, agent: str = pretrained.WORD
) -> tuple[SkillReport, str]:
    """Returns the report of a policy's evaluation, and the command that repeats it."""
    path = files.user_path(folder, field)
    if not (path / "report.json").is_file():
        raise UserError(f"{field}: {folder} is not the folder of an evaluation (no report.json)")
    report = read_report(path)
    if not isinstance(report, SkillReport) or report.skill != skill:
        raise UserError(f"{field}: {folder} is not an evaluation of {skill} alone")
    acted = report.learned[skill].policy if skill in report.learned else None
    if acted != digest:
        raise UserError(
            f"{field}: {folder} evaluates another policy ({acted or report.agent}, this one is "
            f"{digest}); evaluate the exported file"
        )
    settings = config.load(SkillSettings, {}, path / "config.yaml")
    call = ("tpsrl", "eval", skill, f"agent={agent}")
    return report, command_line(call, settings, _LEFT_OUT)


def _check_unseen(
    report: SkillReport, folder: str, chosen_by: Collection[str], seeds: Collection[int]
) -> None:
    """Checks that an evaluation used no data of the training or of the selection of checkpoints.

    The apartments of the training and the start states of validations would bias the figures.
    """
    if report.split != "val":
        raise UserError(f"evaluation: {folder} uses split {report.split}, must use split val")
    own = report.starts is None
    if own and report.seed in seeds:
        other = next(seed for seed in range(len(seeds) + 1) if seed not in seeds)
        raise UserError(
            f"evaluation: {folder} uses seed {report.seed}, on which checkpoints were selected; "
            f"evaluate with another seed, such as seed={other}"
        )
    if not own and report.starts in chosen_by:
        raise UserError(
            f"evaluation: {folder} uses the start states on which checkpoints were selected"
        )


def _protocol(report: SkillReport) -> str:
    changes = words.changes(report.protocol_changes)
    return f"{report.protocol} with {changes}" if changes else report.protocol


def _failure(cause: CauseRow, report: SkillReport) -> str:
    count = f"{cause.count} of {report.num_episodes} runs"
    return f"{count}: {words.reason(cause.reason)}; `{cause.predicate}` did not hold"
