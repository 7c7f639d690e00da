"""Behaviour cloning of a skill from demonstrations, as called by `tpsrl clone`."""

import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING

from skills.core.choices import SensorChoice
from skills.demos.preset import ClonePreset
from skills.starts.seeds import VALIDATION_SEED
from tpsrl import config
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.runtime import files, locks, progress
from tpsrl.sim.engines import EngineName
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.training import cameras
from tpsrl.training.checks import whole_folders, whole_paths

if TYPE_CHECKING:
    from skills.core.inputs import PolicyInputs
    from skills.envs.options import EnvOptions
    from tpsrl.rl.run.checkpoint import Checkpoint

_CONFIG = "config.yaml"
_VALIDATION_HOMES = 32


@dataclasses.dataclass(frozen=True, slots=True)
class CloneSettings:
    """Settings of `tpsrl clone`."""

    skill: str = config.option("", "name of the skill")
    demos: str = config.option("", "comma-separated folders of demonstrations")
    init: str | None = config.option(
        None, "initial weights: a checkpoint, or the folder of a cloning"
    )
    left_out: str = config.option("timeout,lost", "comma-separated endings of episodes to exclude")
    preset: ClonePreset = config.preset(
        "clone",
        ClonePreset,
        "default",
        "network and optimisation; preset.KEY=... overrides an entry",
        files=True,
    )
    sensors: SensorChoice = config.option("habitat", "sensors of the policy beside the camera")
    depth: int = config.option(
        64,
        "height and width of the depth image, as recorded (pixels)",
        minimum=1,
        maximum=config.MOST_PIXELS,
    )
    cameras: str | None = config.option(None, cameras.HELP, instead_of="depth")
    frames: int = config.option(2_000_000, "number of frames to train on", minimum=1)
    rounds: int = config.option(0, "number of DAgger rounds, spread over these frames", minimum=0)
    round_episodes: int = config.option(
        200, "number of episodes in a DAgger round", minimum=1, maximum=config.MOST_EPISODES
    )
    takeover: float = config.option(
        1.0,
        "fraction of these episodes in which the demonstrator takes over at some step",
        minimum=0,
        maximum=1,
    )
    relabel: bool = config.option(
        False, "also train on the demonstrator's labels before it takes over"
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
    start_states: str | None = config.option(
        None, "start states of DAgger rounds: own (default), bank:DIR/SKILL, or a mixture"
    )
    engine: EngineName = config.option("mujoco", "simulation engine")
    habitat: HabitatSettings = config.part(
        HabitatSettings, "paths and options of the engine habitat"
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )
    seed: int = config.option(0, "random seed", minimum=0)
    processes: int | None = config.option(
        None,
        "number of workers of rounds and validations (default: one per core)",
        minimum=1,
        maximum=config.MOST_PROCESSES,
    )
    threads: int = config.option(
        0, "number of torch threads; 0: all cores", minimum=0, maximum=config.MOST_PROCESSES
    )
    validations: int = config.option(4, "number of validations, spread over the frames", minimum=1)
    validation_episodes: int = config.option(
        100,
        "number of episodes of each validation; 0: none",
        minimum=0,
        maximum=config.MOST_EPISODES,
    )
    out: str | None = config.option(None, "output folder (default: out/clone/SKILL)")


def clone(settings: CloneSettings) -> Path:
    """Trains a policy on demonstrations and returns its folder.

    Raises:
        UserError: a setting is not valid, or the folder holds another policy.
        RunError: a worker failed.
    """
    settings = cameras.plain(settings)
    out = files.check_writable(settings.out or f"out/clone/{settings.skill}")
    with locks.hold(out), renamed("starts", "start_states"):
        _clone(settings, out)
    return out


def _clone(settings: CloneSettings, out: Path) -> None:
    """Runs the cloning in a locked output folder."""
    for field, parts in (("rounds", settings.rounds + 1), ("validations", settings.validations)):
        if parts > settings.frames:
            raise UserError(
                f"{field}: {getattr(settings, field)} is too large for {settings.frames:,} frames, "
                "must leave at least one frame for each; choose fewer, or more frames"
            )
    side, _ = _check_network(settings)
    progress.say(f"cloning {settings.skill}'s demonstrations")
    from rich.console import Console

    from skills import registry
    from skills.demos import recording, selecting
    from skills.demos.cloning import CloneSchedule, Cloning, was_stopped
    from skills.envs.held_out import HeldOut, validation_pools
    from tpsrl.rl.policy.encoder_registry import check_encoder
    from tpsrl.rl.run import sizes
    from tpsrl.rl.run.checkpoint import FOLDER
    from tpsrl.runtime import machine
    from tpsrl.sim import datasets

    check_encoder(settings.preset.policy.encoder, "preset.policy.encoder")
    settings.preset.policy.check("preset.policy.")
    sizes.check_network(settings.preset.policy, side)
    spec = registry.get(settings.skill)
    spec.make_demonstrator()  # raises an error for a skill without a demonstrator
    if not settings.demos:
        raise UserError("demos: name a folder; record one with `tpsrl demos SKILL`")
    as_given = config.to_yaml(_whole(settings, out))
    if (out / FOLDER).exists() and not was_stopped(out):
        if _says(out / _CONFIG, as_given):
            # The same command succeeds if it was killed after its work was done.
            progress.say(f"{out} already contains this policy; choose another out to clone again")
            return
        raise UserError(f"out: {out} contains a policy; choose another out")
    options = _options(settings)
    inputs = options.inputs
    folders = [folder.strip() for folder in settings.demos.split(",")]
    left_out = [name.strip() for name in settings.left_out.split(",")]
    ends = ("none", "skill_stop", *recording.ENDS, *spec.definition.failures)
    for name in left_out:
        if name not in ends:
            raise unknown("left_out", name, filter(None, ends))
    console = Console()

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    say(f"reading {', '.join(folders)}")
    init = None if settings.init is None else _init(settings.init, inputs)
    episodes = selecting.load(folders, inputs, left_out)
    say(f"{len(episodes):,} episodes, {sum(map(len, episodes)):,} frames")
    # Without demonstrations, the first DAgger round needs an initial policy to record episodes.
    if not episodes and not (settings.rounds and init is not None):
        raise UserError(f"demos: left_out excludes every episode of {settings.demos}")
    processes = settings.processes or machine.cores()
    import torch

    torch.set_num_threads(settings.threads or machine.cores())
    machine.keep_memory()
    with datasets.shown(console):
        options.source().prepare(processes)
    schedule = CloneSchedule(
        settings.frames,
        settings.rounds,
        init is not None,
        settings.round_episodes,
        settings.takeover,
        settings.relabel,
        settings.validations,
        settings.validation_episodes,
    )
    how = HeldOut(
        settings.validation_episodes, VALIDATION_SEED, _VALIDATION_HOMES, processes=processes
    )
    validation = None
    if settings.validation_episodes:
        with datasets.shown(console):
            validation = validation_pools(options, how)
    made = {"demos": folders, "episodes": len(episodes), "seed": settings.seed}
    cloning = Cloning(
        options,
        settings.preset,
        schedule,
        out,
        validation,
        processes,
        settings.seed,
        say,
        init,
    )
    files.write_text(out / _CONFIG, as_given)
    cloning.run(episodes, made)
    say(f"wrote {cloning.latest.parent}")


def _whole(settings: CloneSettings, out: Path) -> CloneSettings:
    """Returns the settings with absolute paths, valid from any directory."""
    starts = settings.start_states
    return dataclasses.replace(
        settings,
        demos=whole_folders(settings.demos, "demos") or "",
        init=whole_folders(settings.init, "init"),
        start_states=None if starts is None else whole_paths(starts, "start_states"),
        out=os.path.realpath(out),
    )


def _check_network(settings: CloneSettings) -> tuple[int, str]:
    """Refuses a network that cannot be cloned; returns the values of
    `tpsrl.training.cameras.check`.

    Raises:
        UserError: the network has a critic of the true state, which demonstrations do not contain;
            freezes an encoder without initial weights; does not fit the camera; or normalises
            observations without initial weights.
    """
    policy = settings.preset.policy
    if policy.critic:
        raise UserError(
            "preset.policy.critic: demonstrations do not contain the true state; leave it out"
        )
    if policy.normalise_observations and settings.init is None:
        raise UserError(
            "preset.policy.normalise_observations: cloning keeps no running moments; set it to "
            "false"
        )
    if policy.frozen_encoder and (settings.init is None or policy.encoder == "state"):
        raise UserError(
            "preset.policy.frozen_encoder: needs init=CHECKPOINT of a policy with camera, whose "
            "encoder is frozen"
        )
    return cameras.check(settings, settings.sensors, policy.encoder, "preset.policy.encoder")


def _says(path: Path, text: str) -> bool:
    """Returns whether a file has exactly this text."""
    try:
        return files.plain(path).read_text(encoding="utf-8") == text
    except (OSError, ValueError):
        return False


def _init(path: str, inputs: "PolicyInputs") -> "Checkpoint":
    """Loads the checkpoint with the initial weights.

    Raises:
        UserError: the checkpoint is missing or damaged, is of another skill, sensors or camera, or
            has a critic of the true state.
    """
    from skills.policies import deployed
    from tpsrl.rl.run import checkpoint as checkpoints
    from tpsrl.rl.run import warm_start

    found = checkpoints.load(warm_start.find(path), field="init")
    spec, network = checkpoints.network_of(found)
    made_for = deployed.read(found, spec).inputs
    for key in ("skill", "sensors", "depth", "cameras"):
        theirs = getattr(made_for, key)
        if theirs != getattr(inputs, key):
            shown = list(theirs) if isinstance(theirs, tuple) else theirs
            raise UserError(f"init: {found.path} was made with {key} {shown}")
    if network.critic:
        raise UserError(
            f"init: {found.path} has a critic of the true state, which demonstrations do not "
            "contain; `tpsrl export` removes the critic"
        )
    return found


def _options(settings: CloneSettings) -> "EnvOptions":
    """Returns the options of the environments of DAgger rounds and validations.

    Raises:
        UserError: an option is not valid.
    """
    from skills.envs.options import EnvOptions, few_objects

    return EnvOptions.of(
        settings.skill,
        **cameras.of_network(settings, settings.sensors, settings.preset.policy.encoder),
        sensors=settings.sensors,
        starts=settings.start_states,
        num_objects=few_objects(settings.skill, settings.num_objects),
        num_episodes=settings.num_episodes,
        engine=settings.engine,
        habitat=settings.habitat,
    )
