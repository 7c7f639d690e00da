"""`tpsrl hub push`: uploads exported policies to a repository."""

import dataclasses

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError

DESCRIPTION = """Uploads policies written by `tpsrl export` to a repository, with their cards and a
README.md. SKILL selects a shipped policy, `pretrained` all shipped policies, FOLDER (or a file)
your own exported policies. The repository is OWNER/NAME on the Hugging Face hub (requires pip
install 'tpsrl[hub]') or a folder: file://PATH, or a path that begins with /, . or ~."""


@dataclasses.dataclass(frozen=True, slots=True)
class HubPushSettings:
    """Settings of `tpsrl hub push`."""

    what: str = config.option("", "a skill, pretrained, a folder of shipped policies, or a file")
    repo: str = config.option("", "OWNER/NAME, or a folder")
    revision: str | None = config.option(None, "branch (default: main)")
    private: bool = config.option(False, "create a private repository")
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )


def run(settings: HubPushSettings) -> int:
    """Checks the policies and uploads them."""
    if not settings.what:
        raise UserError("hub push: name a skill, or a folder of shipped policies")
    if not settings.repo:
        raise UserError("repo: name the destination, OWNER/NAME or a folder")
    from skills.policies import hub

    repository = hub.open_repository(settings.repo, settings.revision, settings.private)
    skills = hub.push(settings.what, repository)
    print(f"uploaded {', '.join(skills)} to {repository.state}")
    return 0


COMMAND = Command(DESCRIPTION, HubPushSettings, run, positional=("what",))
