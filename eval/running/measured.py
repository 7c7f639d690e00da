"""What an evaluation of a skill by itself has found of a policy, for the policy's card."""

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

# What has no part in what came of it, or stands in the call already.
_LEFT_OUT = ("skill", "agent", "skills", "out", "processes", "videos", "video_stride")


def measured(
    folder: str,
    skill: str,
    digest: str,
    chosen_by: Collection[str] = (),
    seeds: Collection[int] = (VALIDATION_SEED,),
) -> MeasuredSuccess:
    """How often a policy succeeded, by the report of an evaluation.

    Args:
        folder: what `tpsrl eval SKILL agent=...` wrote
        skill: that the policy acts for
        digest: of how it acts, `skills.policies.learned.Network.digest`
        chosen_by: start states, as `starts=` takes them, that checkpoints were chosen by
        seeds: of the skill's own start states that they were chosen by

    Raises:
        UserError: it is no such folder, of another policy, in apartments of the training, or from
            start states by which checkpoints are chosen.
    """
    report, command = _evaluation(folder, skill, digest, "evaluation")
    if report.blind:
        raise UserError(f"evaluation: {folder} is of a blinded policy; name it by blind=")
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
    """How often a policy succeeded that was shown other runs' sensors.

    Args:
        folders: what `tpsrl eval SKILL agent=... blind=...` wrote, by commas
        skill: see `measured`
        digest: see `measured`

    Raises:
        UserError: one is no such folder, of another policy, or of one that saw everything.
    """
    found = []
    for folder in filter(None, (part.strip() for part in folders.split(","))):
        report, command = _evaluation(folder, skill, digest, "blind")
        if not report.blind:
            raise UserError(f"blind: {folder} is of a policy that was shown its own sensors")
        success, count = dataclasses.asdict(report.success), report.num_episodes
        found.append(
            BlindSuccess(tuple(report.blind), **success, num_episodes=count, command=command)
        )
    return tuple(found)


def _evaluation(folder: str, skill: str, digest: str, field: str) -> tuple[SkillReport, str]:
    """The report of an evaluation of a policy, and the command that makes it again."""
    path = files.user_path(folder, field)
    if not (path / "report.json").is_file():
        raise UserError(f"{field}: {folder} is not the folder of an evaluation (no report.json)")
    report = read_report(path)
    if not isinstance(report, SkillReport) or report.skill != skill:
        raise UserError(f"{field}: {folder} is not of {skill} by itself")
    acted = report.learned[skill].policy if skill in report.learned else None
    if acted != digest:
        raise UserError(
            f"{field}: {folder} is of another policy ({acted or report.agent}, this one is "
            f"{digest}); evaluate the file that is exported"
        )
    settings = config.load(SkillSettings, {}, path / "config.yaml")
    call = ("tpsrl", "eval", skill, f"agent={pretrained.WORD}")
    return report, command_line(call, settings, _LEFT_OUT)


def _check_unseen(
    report: SkillReport, folder: str, chosen_by: Collection[str], seeds: Collection[int]
) -> None:
    """Refuses figures from what a policy was trained in, or a checkpoint chosen by."""
    if report.split != "val":
        raise UserError(f"evaluation: {folder} is of split {report.split}, of the training")
    own = report.starts is None
    if own and report.seed in seeds:
        other = next(seed for seed in range(len(seeds) + 1) if seed not in seeds)
        raise UserError(
            f"evaluation: {folder} is of seed {report.seed}, by whose start states checkpoints "
            f"are chosen; evaluate with another one, such as seed={other}"
        )
    if not own and report.starts in chosen_by:
        raise UserError(f"evaluation: {folder} is of the start states that validations were from")


def _protocol(report: SkillReport) -> str:
    changes = words.changes(report.protocol_changes)
    return f"{report.protocol} with {changes}" if changes else report.protocol


def _failure(cause: CauseRow, report: SkillReport) -> str:
    count = f"{cause.count} of {report.num_episodes} runs"
    return f"{count}: {words.reason(cause.reason)}; `{cause.predicate}` did not hold"
