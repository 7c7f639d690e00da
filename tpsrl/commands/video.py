"""`tpsrl video`: films episodes."""

import dataclasses
from typing import Any

from tpsrl.commands import Command
from tpsrl.commands import eval as eval_command

_DESCRIPTION = """Films episodes of a scenario, or of a skill by itself: an evaluation of one
episode, or of `num_episodes`, with a video of each. The report is written beside the videos."""


def choose(word: str | None) -> Command:
    """The evaluation of a scenario or skill (or of `all`, `skills`), with videos.

    Raises:
        UserError: there is no such scenario or skill; names the nearest.
    """
    command = eval_command.choose(word)

    def run(settings: Any) -> int:
        return command.run(filmed(settings, word))

    description = f"{_DESCRIPTION}\n\n{eval_command.TARGETS}"
    return dataclasses.replace(command, description=description, run=run)


def filmed(settings: Any, word: str | None) -> Any:
    """Settings of an evaluation that films every episode, one unless told otherwise."""
    count = settings.num_episodes or max(1, settings.videos)
    name = settings.scenario.name if hasattr(settings, "scenario") else word
    # Who wants to see an episode does not want to wait for its analysis.
    fewer = {"analysis_episodes": 0} if hasattr(settings, "analysis_episodes") else {}
    return dataclasses.replace(
        settings,
        num_episodes=count,
        videos=settings.videos or count,
        out=settings.out or f"out/videos/{name}",
        **fewer,
    )
