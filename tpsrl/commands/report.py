"""`tpsrl report`: regenerates the report of an evaluation, or compares several."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError

DESCRIPTION = """With one folder of an evaluation, regenerates report.html from report.json and
episodes.jsonl and prints its table; also for folders of `tpsrl eval all` and `tpsrl eval skills`.

With several folders, compares the agents: success with paired differences to the first, stages,
handoff taxes or parts of a skill's success, first causes, and the episodes in which they differ.
The folders must be evaluations of one scenario, or of one skill alone; only the episodes common to
all are compared. Writes report.html and report.json into `out`."""


@dataclasses.dataclass(frozen=True, slots=True)
class ReportSettings:
    """Settings of `tpsrl report`."""

    folder: Any = config.option(None, "folder of an evaluation; folder=... may be repeated")
    out: str | None = config.option(None, "output folder of a comparison (default: out/compare)")


def load(values: Mapping[str, Any]) -> ReportSettings:
    """Loads the settings, with all given folders in `folder`, in their order.

    Raises:
        UserError: no folder was given, or a key is unknown.
    """
    rest = {key: value for key, value in values.items() if key != "folder"}
    settings = config.load(ReportSettings, rest)
    folders = tuple(filter(None, values.get("folder", ())))
    for folder in folders:
        config.check_text("report", folder)
    if not folders:
        raise UserError("report: name the folder of an evaluation, or several")
    return dataclasses.replace(settings, folder=folders)


def run(settings: ReportSettings) -> int:
    """Regenerates one report, or compares several."""
    from eval.running import reports

    if len(settings.folder) == 1:
        if settings.out is not None:
            raise UserError("out: a single report is rewritten in its own folder; leave it out")
        reports.rebuild(settings.folder[0])
    else:
        reports.compare(settings.folder, settings.out or "out/compare")
    return 0


COMMAND = Command(DESCRIPTION, ReportSettings, run, load=load, repeated="folder")
