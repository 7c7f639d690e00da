"""`tpsrl demos`: records what a skill's scripted expert would do, to clone a policy from."""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from tpsrl import config, files, progress
from tpsrl.commands import Command, by_skill
from tpsrl.errors import UserError, renamed

if TYPE_CHECKING:
    from skills.envs.environment import EnvOptions

_DESCRIPTION = """Records demonstrations of a skill in apartments of the training split: the
scripted expert acts, in a share of the episodes pushed off its way now and then, and in every state
it is kept what it would do there. `tpsrl clone SKILL demos=DIR` fits a policy to them; see
docs/imitation.md."""

_MOST_STEPS = 100_000  # of an episode, all of which are kept until it is over
_MOST_STATES = 1000
_JOB = 12  # episodes that a worker is given at a time
_FEW_OBJECTS = 12


@dataclasses.dataclass(frozen=True, slots=True)
class DemosSettings:
    """Everything that a recording can be told."""

    skill: str = config.option("", "which one")
    num: int = config.option(1000, "episodes", minimum=1, maximum=config.MOST_EPISODES)
    depth: int = config.option(
        64, "height and width of the camera, in pixels", minimum=1, maximum=config.MOST_PIXELS
    )
    start_states: str | None = config.option(
        None,
        "instead of the skill's own: bank:DIR/SKILL, rearranged, or a mixture such as "
        "own:0.5,bank:DIR/SKILL:0.5",
    )
    agent: str = config.option(
        "demonstrator", "who acts: demonstrator, scripted, or a checkpoint, or folder of a training"
    )
    states: int = config.option(
        0,
        "of each run so many states are kept, for start_states=along:DIR",
        minimum=0,
        maximum=_MOST_STATES,
    )
    camera: bool = config.option(True, "false: no depth is recorded, which is quicker")
    disturbed: float = config.option(
        0.6, "share of the episodes in which the expert is disturbed", minimum=0, maximum=1
    )
    noise: float = config.option(
        0.25, "largest standard deviation of the noise on its action there", minimum=0, maximum=10
    )
    lapses: float = config.option(
        0.2, "largest share of time in which something else is done there", minimum=0, maximum=1
    )
    hesitation: int = config.option(
        12,
        "most steps that grip and stop are turned too late, to show for longer that they are to",
        minimum=0,
        maximum=1000,
    )
    horizon: int | None = config.option(
        None, "steps of an episode (default: the skill's own)", minimum=1, maximum=_MOST_STEPS
    )
    num_objects: int | None = config.option(
        None,
        "objects in a home, 1 to 30 (default: 12, or the skill's own if fewer)",
        minimum=1,
        maximum=30,
    )
    num_episodes: int = config.option(
        126, "base episodes that starts are drawn from", minimum=1, maximum=1008
    )
    engine: Literal["mujoco"] = config.option("mujoco", "what simulates")
    format: Literal["tpsrl", "lerobot"] = config.option(
        "tpsrl", "of the files: our own, or a LeRobot dataset (v3.0)"
    )
    skill_modules: str | None = config.option(
        None, "modules or files, by commas, that register skills of your own"
    )
    seed: int = config.option(0, "of everything that is random", minimum=0)
    processes: int | None = config.option(
        None, "workers (default: one for each core)", minimum=1, maximum=config.MOST_PROCESSES
    )
    out: str | None = config.option(None, "folder to write (default: out/demos/SKILL)")


def choose(word: str | None) -> Command:
    """The recording of a skill.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, DemosSettings, run))


def run(settings: DemosSettings) -> int:
    """Records and writes; 0 when all episodes were recorded, however they ended."""
    with renamed("starts", "start_states"):
        return _record(settings)


def _record(settings: DemosSettings) -> int:
    progress.say(f"recording {settings.num:,} episodes of {settings.skill}")
    from rich.console import Console

    from skills import registry
    from skills.core.sensors import known
    from skills.demos import lerobot, store
    from skills.demos.recording import DEMONSTRATOR, recorded_sensors

    if settings.format == "lerobot":
        if settings.states:
            raise UserError(f"states: {settings.states}, but format=lerobot keeps none; nearest: 0")
        lerobot.check_installed()
    spec = registry.get(settings.skill)
    made: dict[str, Any] = dataclasses.asdict(settings)
    if settings.agent == DEMONSTRATOR:
        kind = type(spec.make_demonstrator())  # refuses a skill that has none
        made["demonstrator"] = f"{kind.__module__}:{kind.__name__}"
    skill = spec.definition
    sizes = known(skill)
    note = store.DemosNote(
        settings.skill,
        tuple((name, sizes[name].size) for name in recorded_sensors(skill)),
        (settings.depth, settings.depth) if settings.camera else None,
        made=made,
    )
    console = Console()
    path = files.user_path(settings.out or f"out/demos/{settings.skill}")
    if (path / store.NOTE).is_file() and store.read_note(path, "out").made == note.made:
        # Killed when all was done, the same command is to end well.
        files.sweep_unfinished(path)
        _say(console, f"{path} holds these already; another out= has them recorded anew")
        return 0
    out = files.new_folder(path)
    with files.unfinished(out) as folder:
        writer: Any
        if settings.format == "lerobot":
            writer = lerobot.LeRobotWriter(folder, note)
        else:
            writer = store.DemosWriter(folder, note, _homes(settings) if settings.states else None)
        for recordings in record(settings, console):
            writer.add(recordings)
        done = writer.finish()
    ended = ", ".join(f"{name} {count}" for name, count in done.ended.items())
    _say(console, f"{done.episodes:,} episodes, {done.frames:,} frames: {ended}\nwrote {out}")
    return 0


def _homes(settings: DemosSettings) -> dict[str, int]:
    """The homes that states are of: how many objects they hold, and how many there are."""
    from skills import registry
    from tpsrl.world.slots import capacity_for

    options = env_options(settings)
    own = registry.get(settings.skill).start_states().num_objects
    count = min(own, options.num_objects or 0)
    slots = options.source(settings.skill).slots(settings.engine)
    return {"slots": slots or capacity_for(count), "num_objects": count}


def _say(console: Any, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def record(settings: DemosSettings, console: Any) -> Iterator[list[Any]]:
    """The recordings of all episodes, job by job in their order, with a progress bar.

    Raises:
        UserError, RunError: see `skills.starts.source.StartSource`; a worker failed.
    """
    from skills.demos.recording import Actors, RecorderFactory, RecordJob
    from tpsrl import machine, pool
    from tpsrl.sim import datasets

    options = env_options(settings)
    processes = settings.processes or machine.cores()
    with datasets.shown(console):
        options.source(settings.skill).prepare(processes)
    actors = Actors(None, settings.disturbed, settings.noise, settings.lapses, settings.hesitation)
    jobs = [
        RecordJob(tuple(range(first, min(first + _JOB, settings.num))), actors, settings.seed)
        for first in range(0, settings.num, _JOB)
    ]
    factory = RecorderFactory(settings.skill, options, agent=settings.agent, states=settings.states)
    kept: dict[int, list[Any]] = {}
    written = 0
    done = 0
    with progress.Bar(console, settings.skill, settings.num) as bar:
        bar.update(done)
        for index, recordings in pool.run(factory, jobs, processes):
            done += len(jobs[index].numbers)
            bar.update(done)
            kept[index] = sorted(recordings, key=lambda recording: recording.number)
            while written in kept:  # in their order, whoever was the quickest
                yield kept.pop(written)
                written += 1


def env_options(settings: DemosSettings) -> "EnvOptions":
    """The homes in which it is recorded."""
    from skills import registry
    from skills.envs.environment import EnvOptions

    own = registry.get(settings.skill).start_states().num_objects
    count = settings.num_objects
    return EnvOptions(
        depth=(settings.depth, settings.depth) if settings.camera else None,
        horizon=settings.horizon,
        starts=settings.start_states,
        num_objects=min(own, _FEW_OBJECTS) if count is None else count,
        num_episodes=settings.num_episodes,
        engine=settings.engine,
    )
