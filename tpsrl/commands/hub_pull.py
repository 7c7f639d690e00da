"""`tpsrl hub pull`: gets shipped policies from a repository."""

import dataclasses

from tpsrl import config, files
from tpsrl.commands import Command
from tpsrl.errors import UserError

DESCRIPTION = """Gets the policies of a repository, or that of one skill, with their cards:
`tpsrl eval SKILL agent=DIR` acts by them. The repository is as for `tpsrl hub push`. Each file is
checked before it is put in place: its size, its header, its skill, that it is a whole policy.
Nothing in it is run."""


@dataclasses.dataclass(frozen=True, slots=True)
class HubPullSettings:
    """What to get from where."""

    skill: str = config.option("", "which one (default: all that are there)")
    repo: str = config.option("", "OWNER/NAME, or a folder")
    revision: str | None = config.option(None, "branch, tag or commit (default: main)")
    out: str = config.option("out/pretrained", "folder of the files")
    skill_modules: str | None = config.option(
        None, "modules or files, by commas, that register skills of your own"
    )
    encoder_modules: str | None = config.option(
        None, "modules or files, by commas, that register encoders of your own"
    )


def run(settings: HubPullSettings) -> int:
    """Gets them; nothing is written unless all are good."""
    if not settings.repo:
        raise UserError("repo: say where from; OWNER/NAME, or a folder")
    from skills import registry
    from skills.policies import hub

    if settings.skill:
        registry.get(settings.skill)
    out = files.check_writable(settings.out)
    repository = hub.open_repository(settings.repo, settings.revision)
    paths = hub.pull(repository, out, settings.skill)
    print(f"from {repository.state}:")
    for path in paths:
        print(f"wrote {path}; `tpsrl eval {path.stem} agent={path}` acts by it")
    return 0


COMMAND = Command(DESCRIPTION, HubPullSettings, run, positional=("skill",))
