"""What a training is in: environments, held-out ones, and demonstrations."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpsrl.errors import UserError, renamed, unknown

if TYPE_CHECKING:
    from tpsrl.commands.train import TrainingSettings
    from tpsrl.rl.learning.teaching import Teacher
    from tpsrl.rl.run.settings import TrainSettings

_FEW_OBJECTS = 12


def make(settings: "TrainingSettings", rank: int = 0) -> tuple[Any, Any, Any]:
    """What a policy is trained in, as `tpsrl.rl.run.trainer.TrainTask`, and what it imitates.

    The third is its teacher (`tpsrl.rl.learning.teaching.Teacher`), None where there is none.

    What is wrong with that is found before the episodes are made, which may take minutes.

    Raises:
        UserError: an option is not valid, or the demonstrations do not fit.
        RunError: an episode cannot be made.
    """
    from skills import registry
    from skills.core import settings as task_settings
    from skills.envs.environment import EnvOptions
    from skills.envs.held_out import HeldOut, validation_pools
    from skills.envs.training import TrainingVecEnvFactory, deployment
    from tpsrl.rl.envs.delay import DelayedVecEnvFactory
    from tpsrl.rl.run.trainer import TrainTask

    camera = settings.preset.policy.encoder != "state"
    changes = _changes(settings)
    task_settings.changed(registry.get(settings.skill).load_settings(), changes, "task")
    options = EnvOptions(
        depth=(settings.depth, settings.depth) if camera else None,
        critic=settings.preset.policy.critic,
        sensors=settings.sensors or settings.preset.sensors or None,
        height_map=settings.height_map,
        base_movement=settings.base_movement,
        settings=changes,
        starts=settings.start_states,
        num_objects=_objects(settings),
        num_episodes=settings.num_episodes,
        engine=settings.engine,
    )
    options.check(settings.skill)
    factory = TrainingVecEnvFactory(
        settings.skill,
        options,
        settings.seed,
        limit_ends=settings.limit_ends,
        desynchronise=settings.preset.desynchronise,
        retry=settings.preset.retry,
    )
    making = None if settings.processes is None else max(settings.processes, 1)
    with renamed("starts", "start_states"):
        deploy = deployment(factory, settings.delay)
        imitation = _imitation(settings, deploy, rank)
        teacher = None
        if settings.teacher is not None:
            teacher = load_teacher(settings.skill, settings.teacher, settings.preset)
        factory.prepare(making)
        banks = {str(bank.folder): bank.digest for bank in options.source(settings.skill).banks}
    if banks:
        deploy["banks"] = banks
    shown = DelayedVecEnvFactory(factory) if settings.delay else factory
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
        validation = validation_pools(settings.skill, options, how)
    return TrainTask(shown, validation, deploy), imitation, teacher


def _imitation(settings: "TrainingSettings", deploy: Mapping[str, Any], rank: int) -> Any:
    """The loss on demonstrations, None where there are none.

    Raises:
        UserError: they are of another skill or lack a sensor, or nothing is to be made of them.
    """
    if not settings.demos:
        return None
    if settings.preset.ppo.imitation_coef == 0.0:
        raise UserError("demos: no effect with preset.ppo.imitation_coef=0; try 0.1")
    from skills.demos import selecting
    from skills.demos.preset import SCALES, SWITCHES
    from tpsrl.rl.imitation.imitator import Imitator
    from tpsrl.rl.imitation.settings import CloningSettings

    depth = deploy["depth"]
    size = None if depth is None else (int(depth[0]), int(depth[1]))
    folders = [folder.strip() for folder in settings.demos.split(",")]
    episodes = selecting.load(folders, settings.skill, deploy["sensors"], size)
    return Imitator(episodes, SWITCHES, CloningSettings(), settings.seed + rank, SCALES)


def load_teacher(skill: str, where: str, preset: "TrainSettings") -> "Teacher":
    """The policy of the true state that labels every state that a student of a skill gets into.

    Args:
        skill: what is taught
        where: a checkpoint, folder of a training, or `pretrained` for the one that comes with it
        preset: of the student

    Raises:
        UserError: it is of another skill, has a sensor that is not of the true state, or no label
            can be had of it.
    """
    from skills import registry
    from skills.core import sensors
    from skills.demos.preset import SWITCHES
    from skills.policies import pretrained
    from skills.policies.learned import Network, find
    from tpsrl.rl.learning.teaching import Teacher

    shipped = where == pretrained.WORD
    path = pretrained.find_teacher(skill) if shipped else find(skill, where, "teacher")
    network = Network(path, "teacher")
    if network.skill != skill:
        raise UserError(f"teacher: {where} acts for {network.skill}")
    definition = registry.get(skill).definition
    held = sensors.chosen(definition, "teacher", False)
    for name in network.sensors:
        if name not in held:
            raise UserError(
                f"teacher: {where} is shown '{name}', which is not among the sensors of "
                "sensors=teacher"
            )
    if not preset.policy.critic:
        raise UserError(
            "teacher: it acts by the true state, which environments show with "
            "preset.policy.critic=true"
        )
    columns = sensors.places(definition, held, network.sensors).tolist()
    return Teacher(network.policy, columns, SWITCHES)


def _changes(settings: "TrainingSettings") -> dict[str, float | None]:
    """The entries of the skill's settings that preset and `task` change.

    Raises:
        UserError: one of them does not read so.
    """
    from skills import registry

    horizon: dict[str, float | None] = {}
    if settings.preset.plan_horizon:
        horizon["horizon"] = registry.get(settings.skill).values().limits.steps
    with renamed("task", "preset.task"):
        own = task_changes(settings.preset.task, settings.skill)
    return {**horizon, **own, **task_changes(settings.task, settings.skill)}


def task_changes(text: str | None, skill: str) -> dict[str, float | None]:
    """The entries of a skill's settings that `task` changes; OTHER.KEY is of another skill alone.

    Raises:
        UserError: it does not read so, or names a skill that there is not (names the nearest).
    """
    from skills.registry import names

    found: dict[str, float | None] = {}
    for pair in filter(None, (text or "").split(",")):
        key, _, value = (part.strip() for part in pair.partition(":"))
        owner, of_one, own_key = key.rpartition(".")
        if of_one and owner not in names():
            raise unknown("task", owner, names())
        if of_one and owner != skill:
            continue
        key = own_key
        try:
            number = None if value == "null" else float(value)
        except ValueError:
            raise UserError(f"task: '{pair}' does not read KEY:NUMBER") from None
        whole = number is not None and number.is_integer()
        if key in found:
            raise UserError(f"task: '{text}' names {key} twice")
        found[key] = int(number) if whole and number is not None else number
    return found


def _objects(settings: "TrainingSettings") -> int:
    """Fewer objects simulate faster, so that no more than 12 are taken unless asked for."""
    from skills import registry

    own = registry.get(settings.skill).start_states().num_objects
    return min(own, _FEW_OBJECTS) if settings.num_objects is None else settings.num_objects
