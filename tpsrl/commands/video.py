"""`tpsrl video`: films episodes of a scenario or skill."""

import dataclasses
from typing import Any

from tpsrl.commands import Command
from tpsrl.commands import eval as eval_command

_DESCRIPTION = """Films episodes of a scenario, or of a skill alone: an evaluation of one episode,
or of `num_episodes`, with a video of each. The report is written beside the videos. Defaults that
differ from those of `tpsrl eval`: num_episodes=1, videos=num_episodes, out=out/videos/NAME,
whose earlier videos are replaced.

For the folder of a training, the newest checkpoint is used instead of the best one, so that a
training can be watched while it runs; agent=DIR/checkpoints/best.safetensors selects the best one.
The filmed policies are copied to policies/SKILL.safetensors in `out`."""


recorded = eval_command.recorded


def choose(word: str | None) -> Command:
    """Returns the evaluation of a scenario or skill (or of `all`, `skills`), with videos.

    Raises:
        UserError: there is no such scenario or skill; names the nearest.
    """
    command = eval_command.choose(word)

    def run(settings: Any) -> int:
        from eval.running import filming

        return command.run(filming.with_newest(filming.filmed(settings, word)))

    description = f"{_DESCRIPTION}\n\n{eval_command.TARGETS}"
    return dataclasses.replace(command, description=description, run=run)
