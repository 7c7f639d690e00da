"""Settings of trainings and distillations."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from skills.core.choices import SensorChoice
from skills.starts.seeds import VALIDATION_SEED
from skills.tables import task_keys, threshold_keys
from tpsrl import config
from tpsrl.rl.run.settings import TrainSettings
from tpsrl.sim.engines import EngineName
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.training import cameras

_PRESET = (
    "rollouts, network and learner; preset.KEY=... overrides an entry; presets: "
    f"{', '.join(config.preset_names('train'))}"
)

# The best checkpoint is chosen by its validations. Its reported success must therefore be measured
# on other episodes, so validations use another seed than evaluations, whose default seed is 0.


@dataclasses.dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of `tpsrl train`."""

    skill: str = config.option("", "name of the skill")
    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "cpu_small",
        _PRESET,
        files=True,
    )
    depth: int = config.option(
        64, "height and width of the depth image (pixels)", minimum=1, maximum=config.MOST_PIXELS
    )
    cameras: str | None = config.option(None, cameras.HELP, instead_of="depth")
    sensors: SensorChoice | None = config.option(
        None, "sensors beside the camera (default: habitat; full without a camera)"
    )
    height_map: bool = config.option(
        False, "add an egocentric height map, built from depth and odometry"
    )
    base_movement: bool = config.option(
        True, "allow base motion; false: the base is fixed, as in the paper's ablation"
    )
    task: dict[str, Any] = config.some_of(
        task_keys, "settings of the skill during training, such as task.horizon=200"
    )
    thresholds: dict[str, Any] = config.some_of(
        threshold_keys,
        "stricter success thresholds during training, such as thresholds.rest_m=0.1",
    )
    limit_ends: bool = config.option(
        False,
        "treat a timeout as termination; false: truncate the episode and bootstrap the value",
    )
    delay: bool = config.option(False, "act on the previous observation, as in the VER paper")
    colour_jitter: float = config.option(
        0.0,
        "maximum relative change of brightness, contrast and colour channels in each training "
        "episode; needs a colour camera",
        minimum=0.0,
        maximum=1.0,
    )
    colour_noise: float = config.option(
        0.0,
        "standard deviation of the noise of colour images in training, as a fraction of the "
        "maximum value; needs a colour camera",
        minimum=0.0,
        maximum=1.0,
    )
    start_states: str | None = config.option(
        None,
        "start states: own (default), bank:DIR/SKILL, along:DIR, rearranged, a mixture such as "
        "own:0.5,bank:DIR/SKILL:0.5, or a file",
    )
    starts: str | None = config.option(None, "the same as start_states")
    num_objects: int | None = config.option(
        None,
        "number of objects, 1 to 30 (default: 12, or the skill's own if fewer)",
        minimum=1,
        maximum=30,
    )
    num_episodes: int = config.option(
        63, "number of base episodes to draw start states from", minimum=1, maximum=1008
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
    auxiliary_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own auxiliary losses"
    )
    seed: int = config.option(0, "random seed", minimum=0)
    processes: int | None = config.option(
        None,
        "number of environment workers, 0: in this process (default: one per core; 0 with "
        "preset.collector=batch)",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    threads: int = config.option(
        0,
        "number of torch threads; 0: all cores, half of them with preset.collector=overlap",
        minimum=0,
        maximum=config.MOST_PROCESSES,
    )
    ranks: int = config.option(
        1, "number of ranks on this machine (distributed data parallel)", minimum=1, maximum=1024
    )
    device: Literal["auto", "cpu", "cuda"] = config.option(
        "auto", "device of the network; auto: a GPU if there is one"
    )
    validate_every: int = config.option(250_000, "steps between validations", minimum=1)
    validation_starts: str | None = config.option(
        None, "start states of validations: own (default), bank:DIR/SKILL, or a file"
    )
    validation_seed: int = config.option(
        VALIDATION_SEED,
        "seed of validation episodes; differs from seed=0, on which `tpsrl eval` reports",
        minimum=0,
    )
    validation_episodes: int = config.option(
        100,
        "number of episodes of each validation; 0: none",
        minimum=0,
        maximum=config.MOST_EPISODES,
    )
    logger: str = config.option(
        "tensorboard",
        "comma-separated loggers besides metrics.jsonl: tensorboard, wandb, trackio, or none",
    )
    checkpoint_minutes: float = config.option(5.0, "minutes between checkpoints", minimum=0)
    demos: str | None = config.option(
        None,
        "comma-separated folders of demonstrations for an imitation loss "
        "(preset.ppo.imitation_coef)",
    )
    teacher: str | None = config.option(
        None,
        "teacher that labels every state: a checkpoint, or the folder of a training (default: "
        "the shipped teacher, if preset.ppo.teacher_coef is not 0)",
    )
    init: str | None = config.option(
        None, "initial weights: a checkpoint, or the folder of a training, of the same skill"
    )
    encoder: str | None = config.option(
        None,
        "initial visual encoder: a checkpoint, or the folder of a training, of any skill; or "
        "timm:NAME, a network of timm",
    )
    encoder_weights: str | None = config.option(
        None, "file with pretrained weights of encoder=timm:NAME"
    )
    frozen: bool = config.option(False, "freeze the visual encoder")
    resume: str | None = config.option(
        None, "folder of a training to resume; auto: resume `out` if it holds one"
    )
    out: str | None = config.option(None, "output folder (default: out/train/SKILL)")

    @staticmethod
    def of_earlier(entries: dict[str, Any]) -> dict[str, Any]:
        """Converts a config.yaml of an earlier version, with `task` as KEY:VALUE,KEY:VALUE.

        Raises:
            ValueError: a value of `task` is not a number.
        """
        entries, preset = dict(entries), entries.get("preset")
        if "task" in entries:
            own = _of_text(entries["task"])
            # Only presets may have SKILL.KEY now. Here, entries of other skills have no effect.
            of_one = own.get(str(entries.get("skill")), {})
            own = {key: value for key, value in own.items() if not isinstance(value, dict)}
            entries["task"] = own | (of_one if isinstance(of_one, dict) else {})
        if isinstance(preset, dict) and "task" in preset:
            entries["preset"] = {**preset, "task": _of_text(preset["task"])}
        return entries


@dataclasses.dataclass(frozen=True, slots=True)
class DistillSettings(TrainingSettings):
    """Settings of `tpsrl distill`."""

    preset: TrainSettings = config.preset(
        "train",
        TrainSettings,
        "distill",
        _PRESET,
        files=True,
    )


def _of_text(task: Any) -> dict[str, Any]:
    """Parses `task` as earlier versions wrote it, a text such as "force:0.1,place.drop:5".

    Raises:
        ValueError: a value is not a number.
    """
    if isinstance(task, Mapping):
        return dict(task)
    found: dict[str, Any] = {}
    for pair in filter(None, str(task or "").split(",")):
        key, _, value = (part.strip() for part in pair.partition(":"))
        owner, _, name = key.rpartition(".")
        entries = found.setdefault(owner, {}) if owner else found
        entries[name] = None if value == "null" else _plain(float(value))
    return found


def _plain(value: float) -> float:
    """Converts a float without a fraction to an integer."""
    return int(value) if value.is_integer() else value
