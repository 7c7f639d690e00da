"""Recording of a skill's demonstrations, as called by `tpsrl demos`."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tpsrl import config
from tpsrl.errors import UserError, renamed
from tpsrl.runtime import files, progress
from tpsrl.sim.engines import EngineName
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.training import cameras
from tpsrl.world.cameras import HEAD_DEPTH

if TYPE_CHECKING:
    from skills.envs.options import EnvOptions

_MOST_STEPS = 100_000  # maximum steps of an episode, which is kept in memory until its end
_MOST_STATES = 1000
_JOB = 12  # episodes of one task of a worker
_TRIED = 60  # the same with `failed_by`, where few episodes are recorded


@dataclasses.dataclass(frozen=True, slots=True)
class DemosSettings:
    """Settings of `tpsrl demos`."""

    skill: str = config.option("", "name of the skill")
    num: int = config.option(1000, "number of episodes", minimum=1, maximum=config.MOST_EPISODES)
    depth: int = config.option(
        64, "height and width of the depth image (pixels)", minimum=1, maximum=config.MOST_PIXELS
    )
    cameras: str | None = config.option(None, cameras.HELP, instead_of="depth")
    start_states: str | None = config.option(
        None,
        "start states: own (default), bank:DIR/SKILL, rearranged, or a mixture such as "
        "own:0.5,bank:DIR/SKILL:0.5",
    )
    agent: str = config.option(
        "demonstrator",
        "agent to record: demonstrator, scripted, a checkpoint, or the folder of a training",
    )
    failed_by: str | None = config.option(
        None,
        "record only episodes in which this policy fails: a checkpoint, or the folder of a "
        "training",
    )
    states: int = config.option(
        0,
        "number of states to keep of each run, for start_states=along:DIR",
        minimum=0,
        maximum=_MOST_STATES,
    )
    camera: bool = config.option(True, "record depth; false is faster")
    disturbed: float = config.option(
        0.6, "fraction of episodes in which the demonstrator is perturbed", minimum=0, maximum=1
    )
    noise: float = config.option(
        0.25,
        "maximum standard deviation of action noise in perturbed episodes",
        minimum=0,
        maximum=10,
    )
    lapses: float = config.option(
        0.2,
        "maximum fraction of time with other actions in perturbed episodes",
        minimum=0,
        maximum=1,
    )
    hesitation: int = config.option(
        12,
        "maximum delay of grip and stop (steps), so that their labels last longer",
        minimum=0,
        maximum=1000,
    )
    horizon: int | None = config.option(
        None,
        "maximum steps of an episode (default: the skill's own)",
        minimum=1,
        maximum=_MOST_STEPS,
    )
    num_objects: int | None = config.option(
        None,
        "number of objects, 1 to 30 (default: 12, or the skill's own if fewer)",
        minimum=1,
        maximum=30,
    )
    num_episodes: int = config.option(
        126, "number of base episodes to draw start states from", minimum=1, maximum=1008
    )
    engine: EngineName = config.option("mujoco", "simulation engine")
    habitat: HabitatSettings = config.part(
        HabitatSettings, "paths and options of the engine habitat"
    )
    format: Literal["tpsrl", "lerobot"] = config.option(
        "tpsrl", "file format: tpsrl, or lerobot (LeRobot dataset v3.0)"
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    seed: int = config.option(0, "random seed", minimum=0)
    processes: int | None = config.option(
        None, "number of workers (default: one per core)", minimum=1, maximum=config.MOST_PROCESSES
    )
    out: str | None = config.option(None, "output folder (default: out/demos/SKILL)")


def record(settings: DemosSettings) -> Path:
    """Records demonstrations, whatever their outcome, and returns their folder.

    Raises:
        UserError: a setting is not valid, or the folder exists already.
        RunError: a worker failed.
    """
    if settings.cameras is not None and not settings.camera:
        raise UserError("cameras: camera=false records none; leave one of them out")
    with renamed("starts", "start_states"):
        return _record(cameras.plain(settings))


def _record(settings: DemosSettings) -> Path:
    progress.say(f"recording {settings.num:,} episodes of {settings.skill}")
    from rich.console import Console

    from skills import registry
    from skills.demos import lerobot, store
    from skills.demos.recording import DEMONSTRATOR

    if settings.format == "lerobot":
        if settings.states:
            raise UserError(
                f"states: {settings.states}, but format=lerobot stores none; nearest: 0"
            )
        lerobot.check_installed()
    spec = registry.get(settings.skill)
    made: dict[str, Any] = dataclasses.asdict(settings)
    if settings.cameras is None:
        del made["cameras"]  # as in notes written before the setting existed
    if settings.agent == DEMONSTRATOR:
        kind = type(spec.make_demonstrator())  # raises an error for a skill without a demonstrator
        made["demonstrator"] = f"{kind.__module__}:{kind.__name__}"
    options = env_options(settings)
    note = store.DemosNote.of(options.inputs.complete(), made)
    console = Console()
    path = files.user_path(settings.out or f"out/demos/{settings.skill}")
    if (path / store.NOTE).is_file() and store.read_note(path, "out").made == note.made:
        # The same command succeeds if it was killed after its work was done.
        files.sweep_unfinished(path)
        _say(console, f"{path} already contains these; choose another out to record again")
        return path
    out = files.new_folder(path)
    with files.unfinished(out) as folder:
        writer: Any
        if settings.format == "lerobot":
            writer = lerobot.LeRobotWriter(folder, note)
        else:
            writer = store.DemosWriter(folder, note, _homes(options) if settings.states else None)
        for recordings in recorded(settings, options, console):
            writer.add(recordings)
        done = writer.finish()
    ended = ", ".join(f"{name} {count}" for name, count in done.ended.items())
    _say(console, f"{done.episodes:,} episodes, {done.frames:,} frames: {ended}\nwrote {out}")
    return out


def _homes(options: "EnvOptions") -> dict[str, int]:
    """Returns the maximum and the drawn number of objects of the homes in the recorded states."""
    from skills import registry

    own = registry.get(options.skill).start_states().num_objects
    return {"slots": options.capacity(), "num_objects": min(own, options.num_objects or 0)}


def _say(console: Any, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def recorded(settings: DemosSettings, options: "EnvOptions", console: Any) -> Iterator[list[Any]]:
    """Yields the recordings of each job in the order of the jobs, with a progress bar.

    Raises:
        UserError, RunError: see `skills.starts.source.StartSource`; a worker failed.
    """
    from skills.demos.recording import Actors, RecorderFactory, RecordJob
    from tpsrl.runtime import machine, pool
    from tpsrl.sim import datasets

    processes = settings.processes or machine.cores()
    with datasets.shown(console):
        options.source().prepare(processes)
    actors = Actors(None, settings.disturbed, settings.noise, settings.lapses, settings.hesitation)
    size = _JOB if settings.failed_by is None else _TRIED
    jobs = [
        RecordJob(tuple(range(first, min(first + size, settings.num))), actors, settings.seed)
        for first in range(0, settings.num, size)
    ]
    factory = RecorderFactory(
        options,
        agent=settings.agent,
        states=settings.states,
        failed_by=_policy(settings),
    )
    kept: dict[int, list[Any]] = {}
    written = 0
    done = 0
    with progress.Bar(console, settings.skill, settings.num) as bar:
        bar.update(done)
        for index, recordings in pool.run(factory, jobs, processes):
            done += len(jobs[index].numbers)
            bar.update(done)
            kept[index] = sorted(recordings, key=lambda recording: recording.number)
            while written in kept:  # in the order of the jobs, not of their completion
                yield kept.pop(written)
                written += 1


def _policy(settings: DemosSettings) -> Path | None:
    """Returns the checkpoint named by `failed_by`.

    Raises:
        UserError: there is no such policy, or it uses a sensor that is not recorded.
    """
    if settings.failed_by is None:
        return None
    from skills.policies import learned

    path = learned.find(settings.skill, settings.failed_by, "failed_by")
    with renamed(f"skills.{settings.skill}", "failed_by"):
        network = learned.load(settings.skill, path)
    inputs = network.inputs
    if inputs.height_map:
        raise UserError(f"failed_by: {path} uses a height map, which recordings do not contain")
    if inputs.pictures and not settings.camera:
        raise UserError(f"camera: false, but the policy of {path} uses it; nearest: true")
    recorded = env_options(settings).inputs.pictures
    if missing := [name for name, sides in inputs.cameras if recorded.get(name) != sides]:
        wanted = cameras.of_inputs(inputs)
        raise UserError(f"cameras: the policy of {path} uses {missing[0]}; nearest: {wanted}")
    if inputs.depth is not None and inputs.depth != recorded.get(HEAD_DEPTH):
        nearest = inputs.depth[0]
        raise UserError(f"depth: {settings.depth}, but {path} has {nearest}; nearest: {nearest}")
    return path


def env_options(settings: DemosSettings) -> "EnvOptions":
    """Returns the options of the environments to record in."""
    from skills.envs.options import EnvOptions, few_objects

    return EnvOptions.of(
        settings.skill,
        **cameras.as_options(settings, settings.camera),
        horizon=settings.horizon,
        starts=settings.start_states,
        num_objects=few_objects(settings.skill, settings.num_objects),
        num_episodes=settings.num_episodes,
        engine=settings.engine,
        habitat=settings.habitat,
    )
