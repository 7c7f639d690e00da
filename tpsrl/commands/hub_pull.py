"""`tpsrl hub pull`: downloads exported policies from a repository."""

import dataclasses

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError
from tpsrl.runtime import files

DESCRIPTION = """Downloads the policies of a repository, or of one skill, with their cards; `tpsrl
eval SKILL agent=DIR` runs them. The repository is given as for `tpsrl hub push`. Size, header,
skill and completeness of each file are checked before it is put in place. No code is executed."""


@dataclasses.dataclass(frozen=True, slots=True)
class HubPullSettings:
    """Settings of `tpsrl hub pull`."""

    skill: str = config.option("", "name of the skill (default: all)")
    repo: str = config.option("", "OWNER/NAME, or a folder")
    revision: str | None = config.option(None, "branch, tag or commit (default: main)")
    out: str = config.option("out/pretrained", "output folder")
    replace: bool = config.option(False, "replace other policies in the output folder")
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )


def run(settings: HubPullSettings) -> int:
    """Downloads the policies; nothing is written unless all are valid."""
    if not settings.repo:
        raise UserError("repo: name the source, OWNER/NAME or a folder")
    from skills import registry
    from skills.policies import hub

    if settings.skill:
        registry.get(settings.skill)
    out = files.check_writable(settings.out)
    repository = hub.open_repository(settings.repo, settings.revision)
    paths = hub.pull(repository, out, settings.skill, settings.replace)
    print(f"from {repository.state}:")
    for path in paths:
        print(f"wrote {path}; evaluate it with `tpsrl eval {path.stem} agent={path}`")
    return 0


COMMAND = Command(DESCRIPTION, HubPullSettings, run, positional=("skill",))
