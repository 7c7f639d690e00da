"""`tpsrl view`: shows an episode in the browser."""

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpsrl import config
from tpsrl.commands import Command
from tpsrl.commands import eval as eval_command
from tpsrl.errors import UserError
from tpsrl.runtime import progress

_DESCRIPTION = """Shows an episode of a scenario, or of a skill alone, in the browser: apartment,
robot and objects in 3D, the plan, conditions of success with their margins, reward terms, force,
and depth as policies see it. The timeline has a mark for each step of the plan and for the first
cause of a failure.

compare=AGENT[,AGENT...] shows further agents beside the first, on the same episode. The folder of
an evaluation, `tpsrl view out/tidy_house episode=17`, shows one of its episodes, run again.

Needs viser: pip install 'tpsrl[view]'."""
_CONFIG = "config.yaml"
_IGNORED = ("num_episodes", "videos", "video_stride", "measure_view", "view_stride", "out",
            "replace", "analysis_episodes", "analysis_steps", "analysis_players")  # fmt: skip


def choose(word: str | None) -> Command:
    """Returns the view of a scenario, a skill, or an episode of an evaluation's folder.

    Raises:
        UserError: there is no such scenario or skill; names the nearest.
    """
    from eval import settings
    from eval.viewing.settings import ScenarioView, SkillView

    if word and (Path(word).is_dir() or ("/" in word and not word.endswith((".yaml", ".yml")))):
        return _again(Path(word))
    command = eval_command.choose(word)
    views = {settings.EvalSettings: ScenarioView, settings.SkillSettings: SkillView}
    if command.settings not in views:
        raise UserError(f"view: {word} has several evaluations; choose one scenario or skill")
    view = views[command.settings]
    return dataclasses.replace(
        command, description=_DESCRIPTION, settings=view, run=run, ignored=_IGNORED
    )


def _again(folder: Path) -> Command:
    """Returns the view of an episode of an evaluation, with the evaluation's settings.

    Raises:
        UserError: the folder is not that of an evaluation.
    """
    from eval.viewing.settings import ScenarioView, SkillView
    from tpsrl.runtime import locks

    places = [folder / locks.RUNNING / _CONFIG, folder / _CONFIG]  # an unfinished one first
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        raise UserError(f"view: {folder} is not the folder of an evaluation (no {_CONFIG})")
    schema: type[Any] = SkillView if config.entry_of(found, "skill") else ScenarioView

    def load(values: Mapping[str, Any]) -> Any:
        chosen = config.load(schema, values, found)
        if "episode" in values:
            _check_evaluated(found, chosen)
        return dataclasses.replace(chosen, num_episodes=None)

    return Command(_DESCRIPTION, schema, run, load=load, ignored=_IGNORED)


def _check_evaluated(path: Path, settings: Any) -> None:
    """Checks that an evaluation has the chosen episode.

    Args:
        path: its config.yaml
        settings: of the view

    Raises:
        UserError: it does not have the episode; names those that it has.
    """
    from eval.running import reports
    from tpsrl.errors import unknown

    folder, only = path.parent, config.entry_of(path, "episode")
    episode, count = settings.episode, settings.num_episodes
    if episode.isdecimal() and not only:
        if count is not None and int(episode) >= count:
            raise UserError(
                f"episode: {folder} has {count} episodes (0 to {count - 1}), got {episode}"
            )
        return
    known = [*filter(None, [only]), *reports.episode_ids(folder)]
    if known and episode not in known:
        raise unknown("episode", episode, known)


def run(settings: Any) -> int:
    """Shows the episode until Ctrl-C is pressed."""
    if importlib.util.find_spec("viser") is None:
        raise UserError("view: needs viser, which is not installed; pip install 'tpsrl[view]'")
    with progress.loading():
        from eval.viewing import server

    server.show(settings)
    return 0
