"""Settings of `tpsrl view`."""

import dataclasses

from eval.settings import EvalSettings, SkillSettings
from tpsrl import config

_COMPARE = "comma-separated further agents, shown beside the first on the same episode"
_PORT = "port of the viewer on this machine"
_MOST_PORT = 65_535


@dataclasses.dataclass(frozen=True, slots=True)
class ScenarioView(EvalSettings):
    """Settings for viewing an episode of a scenario."""

    episode: str | None = config.option("0", "episode to show, by its id or number")
    compare: str = config.option("", _COMPARE)
    port: int = config.option(8080, _PORT, minimum=1, maximum=_MOST_PORT)


@dataclasses.dataclass(frozen=True, slots=True)
class SkillView(SkillSettings):
    """Settings for viewing a skill in isolation."""

    episode: str | None = config.option("0", "episode to show, by its id or number")
    compare: str = config.option("", _COMPARE)
    port: int = config.option(8080, _PORT, minimum=1, maximum=_MOST_PORT)
