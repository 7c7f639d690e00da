"""`tpsrl hub push`: puts shipped policies into a repository."""

import dataclasses

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.errors import UserError

DESCRIPTION = """Puts policies that `tpsrl export` made into a repository, each with its card, and
a README.md of all cards in it. SKILL is the policy that comes with tpsrl, `pretrained` all that do;
FOLDER (or a file) holds what was exported. The repository is OWNER/NAME on the Hugging Face hub,
which needs pip install 'tpsrl[hub]', or a folder: file://PATH, or a path that begins with /, . or
~."""


@dataclasses.dataclass(frozen=True, slots=True)
class HubPushSettings:
    """What to put where."""

    what: str = config.option("", "a skill, pretrained, a folder of shipped policies, or a file")
    repo: str = config.option("", "OWNER/NAME, or a folder")
    revision: str | None = config.option(None, "branch (default: main)")
    private: bool = config.option(False, "nobody else may see a repository that is made")
    skill_modules: str | None = config.option(
        None, "modules or files, by commas, that register skills of your own"
    )
    encoder_modules: str | None = config.option(
        None, "modules or files, by commas, that register encoders of your own"
    )


def run(settings: HubPushSettings) -> int:
    """Checks the policies and puts them there."""
    if not settings.what:
        raise UserError("hub push: name a skill, or a folder of shipped policies")
    if not settings.repo:
        raise UserError("repo: say where to; OWNER/NAME, or a folder")
    from skills.policies import hub

    repository = hub.open_repository(settings.repo, settings.revision, settings.private)
    skills = hub.push(settings.what, repository)
    print(f"put {', '.join(skills)} into {repository.state}")
    return 0


COMMAND = Command(DESCRIPTION, HubPushSettings, run, positional=("what",))
