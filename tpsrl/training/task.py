"""Environments, validation, demonstrations and teacher of a training."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpsrl import config
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.rl.collection.settings import DEVICE
from tpsrl.sim import engines
from tpsrl.training import cameras
from tpsrl.training.ranks import device_of
from tpsrl.training.settings import TrainingSettings

if TYPE_CHECKING:
    from skills.core.inputs import PolicyInputs
    from skills.envs.options import EnvOptions
    from tpsrl.rl.envs.vec_env import VecEnvFactory
    from tpsrl.rl.learning.teaching import Teacher
    from tpsrl.rl.run.settings import TrainSettings


def make(settings: TrainingSettings, rank: int = 0) -> tuple[Any, Any, Any]:
    """Returns the training's `tpsrl.rl.run.trainer.TrainTask`, imitation loss and teacher.

    The imitation loss on demonstrations and the teacher (`tpsrl.rl.learning.teaching.Teacher`) are
    None where not used. Invalid options are found before the episodes are generated, which may take
    minutes.

    Raises:
        UserError: an option is not valid, or the demonstrations do not fit.
        RunError: an episode cannot be generated.
    """
    from skills.envs.held_out import HeldOut, validation_pools
    from skills.envs.training import TrainingVecEnvFactory
    from skills.policies.deployed import Deployment
    from tpsrl.rl.envs.colours import ColouredVecEnvFactory
    from tpsrl.rl.envs.delay import DelayedVecEnvFactory
    from tpsrl.rl.run.trainer import TrainTask

    options = env_options(settings)
    if settings.preset.collector == DEVICE:
        with renamed("starts", "start_states"):
            _check_device(settings, options)
    factory = TrainingVecEnvFactory(
        options,
        settings.seed,
        limit_ends=settings.limit_ends,
        desynchronise=settings.preset.desynchronise,
        retry=settings.preset.retry,
        device_starts=settings.preset.device_starts,
    )
    making = None if settings.processes is None else max(settings.processes, 1)
    with renamed("starts", "start_states"):
        deploy = Deployment(options.inputs, settings.delay).to_json()
        imitation = _imitation(settings, options.inputs, rank)
        teacher = None
        if settings.teacher is not None:
            teacher = load_teacher(settings.skill, settings.teacher, settings.preset)
        factory.prepare(making)
        banks = {str(bank.folder): bank.digest for bank in options.source().banks}
    if banks:
        deploy["banks"] = banks
    shown: VecEnvFactory = factory
    if changed := cameras.colour_changes(settings):
        shown = ColouredVecEnvFactory(factory, changed, settings.seed)
    if settings.delay:
        shown = DelayedVecEnvFactory(shown)
    if not settings.validation_episodes:
        return TrainTask(shown, None, deploy), imitation, teacher
    how = HeldOut(
        settings.validation_episodes,
        settings.validation_seed,
        settings.preset.num_envs,
        settings.validation_starts,
        settings.processes or 0,
        settings.delay,
        settings.preset.hang_s,
    )
    with renamed("starts", "validation_starts"):
        # A teacher is deployed without the margin.
        validation = validation_pools(dataclasses.replace(options, object_margin=0.0), how)
    return TrainTask(shown, validation, deploy), imitation, teacher


def _check_device(settings: TrainingSettings, options: "EnvOptions") -> None:
    """Refuses settings that the collector `device` does not support.

    Raises:
        UserError: names the setting and the nearest that is possible.
    """
    from skills.envs import device

    device.check(options)
    if settings.engine == "mujoco" and device_of(settings.device).type != "cpu":
        raise UserError(
            f"device: collector={DEVICE} with engine=mujoco needs the cpu; nearest: cpu"
        )
    if settings.delay:
        raise UserError(f"delay: collector={DEVICE} delays no observations; nearest: false")
    if settings.preset.retry:
        raise UserError(f"preset.retry: collector={DEVICE} draws at random; nearest: 0")
    if settings.preset.object_margin:
        raise UserError(f"preset.object_margin: collector={DEVICE} adds no margin; nearest: 0")


def env_options(settings: TrainingSettings) -> "EnvOptions":
    """Returns the options of a training's environments.

    Raises:
        UserError: an option is not valid.
    """
    from skills.envs.options import EnvOptions, few_objects

    preset = settings.preset
    sensors = settings.sensors or preset.sensors or None
    if preset.object_margin:
        engines.require_object_margin(settings.engine, "preset.object_margin")
    return EnvOptions.of(
        settings.skill,
        **cameras.of_network(settings, sensors, preset.policy.encoder),
        critic=preset.policy.critic,
        sensors=sensors,
        height_map=settings.height_map,
        base_movement=settings.base_movement,
        settings=changes(settings),
        thresholds=success_thresholds(settings),
        starts=settings.start_states,
        num_objects=few_objects(settings.skill, settings.num_objects),
        num_episodes=settings.num_episodes,
        engine=settings.engine,
        habitat=settings.habitat,
        object_margin=preset.object_margin,
    )


def _imitation(settings: TrainingSettings, inputs: "PolicyInputs", rank: int) -> Any:
    """Returns the imitation loss on demonstrations, or None without demonstrations.

    Raises:
        UserError: the demonstrations are of another skill or lack a sensor, or the loss has weight
            0.
    """
    if not settings.demos:
        return None
    if settings.preset.ppo.imitation_coef == 0.0:
        raise UserError("demos: no effect with preset.ppo.imitation_coef=0; try 0.1")
    from skills.demos import selecting
    from skills.demos.preset import SCALES, SWITCHES
    from tpsrl.rl.imitation.imitator import Imitator
    from tpsrl.rl.imitation.settings import CloningSettings

    folders = [folder.strip() for folder in settings.demos.split(",")]
    episodes = selecting.load(folders, inputs)
    return Imitator(episodes, SWITCHES, CloningSettings(), settings.seed + rank, SCALES)


def load_teacher(skill: str, where: str, preset: "TrainSettings") -> "Teacher":
    """Loads the teacher, a policy of the true state that labels every state its student visits.

    Args:
        skill: skill of the student
        where: a checkpoint, the folder of a training, or `pretrained` for the shipped teacher
        preset: preset of the student's training

    Raises:
        UserError: the teacher is of another skill or uses a sensor outside `sensors=teacher`, or
            the student's environments do not provide the true state (`policy.critic`).
    """
    from skills.core.inputs import PolicyInputs
    from skills.demos.preset import SWITCHES
    from skills.policies import pretrained
    from skills.policies.learned import Network, find
    from tpsrl.rl.learning.teaching import Teacher

    shipped = where == pretrained.WORD
    path = pretrained.find_teacher(skill) if shipped else find(skill, where, "teacher")
    network = Network(path, "teacher")
    if network.inputs.skill != skill:
        raise UserError(f"teacher: {where} is a policy for {network.inputs.skill}, not for {skill}")
    held = PolicyInputs.of(skill, "teacher")
    for name in network.inputs.sensors:
        if name not in held.sensors:
            raise UserError(
                f"teacher: {where} uses '{name}', which is not among the sensors of sensors=teacher"
            )
    if not preset.policy.critic:
        raise UserError(
            "teacher: needs the true state, which environments provide with "
            "preset.policy.critic=true"
        )
    columns = held.places(network.inputs).tolist()
    return Teacher(network.policy, columns, SWITCHES)


def changes(settings: TrainingSettings) -> dict[str, Any]:
    """Returns the entries of the skill's settings that the preset and `task` change.

    Raises:
        UserError: see `task_changes`.
    """
    from skills import registry

    horizon: dict[str, Any] = {}
    if settings.preset.plan_horizon:
        horizon["horizon"] = registry.get(settings.skill).values().limits.steps
    return {
        **horizon,
        **task_changes(settings.preset.task, settings.skill, "preset.task"),
        **task_changes(settings.task, settings.skill, "task"),
    }


def success_thresholds(settings: TrainingSettings) -> Any:
    """Returns the skill's success thresholds during training.

    Raises:
        UserError: an entry is unknown (names the nearest), or its value is not a valid number.
    """
    from skills import registry

    own = registry.get(settings.skill).thresholds
    names = [field.name for field in dataclasses.fields(own)]
    for name, value in settings.thresholds.items():
        if name not in names:
            raise unknown("thresholds", name, names)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise UserError(f"thresholds.{name}: '{value}' is not a number")
        config.check_range(type(own), name, value, "thresholds")
    return dataclasses.replace(own, **settings.thresholds)


def task_changes(task: Mapping[str, Any], skill: str, field: str) -> dict[str, Any]:
    """Returns the entries of a skill's settings that `task` changes.

    Entries nested under the name of a skill apply only to that skill, and take precedence.

    Raises:
        UserError: an entry is unknown (names the nearest), or its value is not valid.
    """
    from skills import registry
    from skills.core.settings import changed

    own = {name: _number(value) for name, value in task.items() if not isinstance(value, Mapping)}
    for name in task.keys() - own.keys():
        if name not in registry.names():
            raise unknown(field, name, registry.names())
        of_one = {key: _number(value) for key, value in task[name].items()}
        changed(registry.get(name).load_settings(), of_one, f"{field}.{name}")
        own |= of_one if name == skill else {}
    changed(registry.get(skill).load_settings(), own, field)
    return own


def _number(value: Any) -> Any:
    """Converts a float without a fraction to an integer; other values are unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
