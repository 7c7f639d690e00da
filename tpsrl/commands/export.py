"""`tpsrl export`: writes a trained policy as a small file with its model card."""

import contextlib
import dataclasses
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tpsrl
from skills.policies.rules import RULES
from skills.starts.seeds import VALIDATION_SEED
from tpsrl import config
from tpsrl.commands import Command, by_skill
from tpsrl.errors import UserError, renamed, unknown
from tpsrl.runtime import files, progress
from tpsrl.training import loading

_DESCRIPTION = """Exports a training's best checkpoint as SKILL.safetensors, reduced to the acting
network (weights in half precision, at most 8 MB), with a model card SKILL.md. Fails if the actions
of the exported policy differ from the original's.

The success on the card comes from an evaluation of this policy: evaluation=DIR of `tpsrl eval SKILL
agent=... num_episodes=500`. Evaluations with the training's validation seed are rejected, because
checkpoints are selected on it. Facts about the training are read from its folder; an already
exported policy keeps the facts of its card.

format=torch_export writes SKILL.pt2, a program of torch.export that runs without tpsrl, and
format=onnx SKILL.onnx, for ONNX runtimes; SKILL.json describes inputs and outputs. See
docs/pretrained.md."""

_CONFIG = "config.yaml"
_LONGEST_S = 1e10  # longest plausible duration of a training: centuries
_LEFT_OUT = ("skill", "out", "resume", "processes", "threads")  # keys left out of its command line
_FORMATS = ("safetensors", "torch_export", "onnx")
_OF_FILE = (
    "evaluation",
    "blind",
    "mean_with",
    "stop_shift",
    *RULES,
    "as_teacher",
)  # only for format=safetensors
_GIVEN = ("demonstrations", "machine", "hours", "commit", "licence")  # copied to the card


@dataclasses.dataclass(frozen=True, slots=True)
class ExportSettings:
    """Settings of `tpsrl export`."""

    skill: str = config.option("", "name of the skill")
    agent: str = config.option("", "folder of a training, a checkpoint, or an exported policy")
    evaluation: str | None = config.option(
        None, "folder of an evaluation of this policy, reported on the card"
    )
    blind: str | None = config.option(
        None, "card: comma-separated folders of evaluations with blind="
    )
    out: str = config.option("out/pretrained", "output folder of policy and card")
    format: str = config.option(
        "safetensors", "safetensors, or torch_export or onnx: a program that runs without tpsrl"
    )
    sample: bool | None = config.option(
        None, "sample actions; false: use the mean action (default: as in the checkpoint)"
    )
    mean_with: str | None = config.option(
        None,
        "comma-separated further checkpoints of the same network, whose weights are averaged with "
        "those of agent",
    )
    stop_shift: float = config.option(
        0.0,
        "lower the stop output before squashing, so that the policy stops only when more certain",
        minimum=0,
        maximum=10,
    )
    stuck_noise: float | None = config.option(
        None,
        "standard deviation of noise on the actions of arm and base while the robot is stuck; 0: "
        "none (default: as in the checkpoint)",
        minimum=0,
        maximum=5,
    )
    grip_within: float | None = config.option(
        None,
        "distance (m) of the cup from the object's first position within which the grip is always "
        "closed; 0: none (default: as in the checkpoint)",
        minimum=0,
        maximum=1,
    )
    grip_beyond: float | None = config.option(
        None,
        "the same distance (m) beyond which the grip is always open; 0: none (default: as in the "
        "checkpoint)",
        minimum=0,
        maximum=1,
    )
    stop_within: float | None = config.option(
        None,
        "distance (m) of the goal by the compass within which stop is always called; 0: none "
        "(default: as in the checkpoint)",
        minimum=0,
        maximum=1,
    )
    release_speed: float | None = config.option(
        None,
        "speed (m/s) of the hand below which an object is released, until which the robot stands "
        "still; 0: any (default: as in the checkpoint)",
        minimum=0,
        maximum=1,
    )
    release_after: int | None = config.option(
        None,
        "steps of an object in a hand near the goal after which it is released; 0: none (default: "
        "as in the checkpoint)",
        minimum=0,
        maximum=300,
    )
    release_upright: int | None = config.option(
        None,
        "most steps in which the object is turned upright over its goal before its release; 0: "
        "none (default: as in the checkpoint)",
        minimum=0,
        maximum=300,
    )
    follow_path: int | None = config.option(
        None,
        "steps for which a robot that stays in place follows the path on its own map; 0: none "
        "(default: as in the checkpoint)",
        minimum=0,
        maximum=300,
    )
    replace: bool = config.option(False, "replace another policy in the output folder")
    as_teacher: bool = config.option(
        False, "write SKILL.teacher.safetensors, the policy that students learn from"
    )
    tolerance: float = config.option(
        0.02, "maximum change of a mean action by half precision", minimum=0
    )
    demonstrations: str | None = config.option(None, "card: the demonstrations used")
    machine: str | None = config.option(None, "card: the training machine")
    hours: float | None = config.option(
        None, "card: training time (default: from metrics.jsonl)", minimum=0
    )
    commands: str | None = config.option(
        None, "card: the commands, separated by semicolons (default: the training's)"
    )
    commit: str | None = config.option(None, "card: commit of the code (default: this checkout's)")
    licence: str | None = config.option(None, "card: licence of the weights (default: MIT)")
    failures: str | None = config.option(
        None, "card: further known failures, separated by semicolons"
    )
    skill_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own skills"
    )
    encoder_modules: str | None = config.option(
        None, "comma-separated modules or files that register your own encoders"
    )


def choose(word: str | None) -> Command:
    """Returns the command for a skill.

    Raises:
        UserError: there is no such skill; names the nearest.
    """
    return by_skill.of_skill(word, Command(_DESCRIPTION, ExportSettings, run, load=load))


def load(values: Mapping[str, Any]) -> ExportSettings:
    """Loads and checks the settings.

    Raises:
        UserError: a setting is not valid, or `agent` is missing.
    """
    settings: ExportSettings = loading.of_skill(ExportSettings, values)
    if not settings.agent:
        raise UserError("agent: name the folder of a training, or a checkpoint")
    if settings.format not in _FORMATS:
        raise unknown("format", settings.format, _FORMATS)
    if settings.format != "safetensors":
        for key in _OF_FILE:
            if getattr(settings, key):
                raise UserError(
                    f"{key}: has no effect on format={settings.format}; export with "
                    "format=safetensors first, then the file that it writes"
                )
    return settings


def run(settings: ExportSettings) -> int:
    """Exports the policy; nothing is written unless all checks pass."""
    progress.say(f"exporting {settings.skill}")
    if settings.format != "safetensors":
        return _write_program(settings)
    from eval.running.measured import measured, measured_blind
    from skills.policies import pretrained, shipped

    out = files.check_writable(settings.out)
    with renamed(f"skills.{settings.skill}", "agent"):
        made = shipped.make(
            settings.skill,
            settings.agent,
            settings.sample,
            settings.tolerance,
            settings.stop_shift,
            {name: getattr(settings, name) for name in RULES},
            [path.strip() for path in (settings.mean_with or "").split(",") if path.strip()],
        )
    training = _training(settings)
    facts = _facts(settings, training, made.card)
    if settings.evaluation is not None:
        starts = getattr(training, "validation_starts", None)
        chosen_by = {starts} if starts else ()
        seeds = {VALIDATION_SEED, getattr(training, "validation_seed", VALIDATION_SEED)}
        agent = pretrained.WORD  # the student
        if settings.as_teacher:
            agent = str(out / pretrained.file_name(settings.skill, teacher=True))
        facts["success"] = measured(
            settings.evaluation, settings.skill, made.digest, chosen_by, seeds, agent
        )
    if settings.blind is not None:
        facts["blind"] = measured_blind(settings.blind, settings.skill, made.digest)
    card = dataclasses.replace(made.card, **facts)
    made = dataclasses.replace(made, card=card)
    path = shipped.write(made, out, settings.as_teacher, settings.replace)
    size = path.stat().st_size / 1e6
    print(f"half precision changes mean actions by at most {card.difference:.2g}")
    print(f"wrote {path} ({size:.2f} MB) and {path.with_suffix('.md')}")
    if card.success is None:
        agent = f"agent={path} num_episodes=500"
        print(f"success not measured yet; measure it with `tpsrl eval {settings.skill} {agent}`")
    return 0


def _write_program(settings: ExportSettings) -> int:
    from skills.policies import program

    out = files.check_writable(settings.out)
    with renamed(f"skills.{settings.skill}", "agent"):
        path = program.write(settings.skill, settings.agent, out, settings.sample, settings.format)
    print(f"wrote {path} ({path.stat().st_size / 1e6:.2f} MB) and {path.with_suffix('.json')}")
    return 0


def _facts(settings: ExportSettings, training: Any, card: Any) -> dict[str, Any]:
    """Returns the fields of the card from the settings, or else from the training's folder."""
    given = {key: getattr(settings, key) for key in _GIVEN}
    for key in ("commands", "failures"):
        text = getattr(settings, key)
        given[key] = None if text is None else _parts(text)
    found = {} if training is None else _recorded(settings, training, card.steps)
    found = {key: value for key, value in found.items() if not getattr(card, key)}
    found["commit"] = card.commit or _commit()
    found["licence"] = card.licence or "MIT"
    return found | {key: value for key, value in given.items() if value is not None}


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _folder(settings: ExportSettings) -> Path | None:
    """Returns the folder of the training that `agent` is, or lies in; None if there is none."""
    from tpsrl.rl.run.checkpoint import FOLDER

    path = Path(os.path.realpath(files.user_path(settings.agent, "agent")))
    folder = path.parent.parent if path.parent.name == FOLDER else path
    return folder if (folder / _CONFIG).is_file() else None


def _training(settings: ExportSettings) -> Any:
    """Returns the settings of the training or cloning; None if there is only a file."""
    from tpsrl.training.cloning import CloneSettings
    from tpsrl.training.settings import TrainingSettings

    folder = _folder(settings)
    if folder is None:
        return None
    path = folder / _CONFIG
    cloned = config.entry_of(path, "round_episodes") != ""
    try:
        return config.load(CloneSettings if cloned else TrainingSettings, {}, path)
    except UserError as error:
        raise UserError(f"agent: {path}: {error}") from None


def _recorded(settings: ExportSettings, training: Any, steps: int) -> dict[str, Any]:
    """Returns the fields of the card that the folder of a training records."""
    from eval.running.command import command_line
    from tpsrl.training.cloning import CloneSettings

    cloned = isinstance(training, CloneSettings)
    verb = "clone" if cloned else "train"
    call = command_line(("tpsrl", verb, settings.skill), training, _LEFT_OUT)
    shown = {"demonstrations": _demonstrations(training)} if cloned else {}
    return shown | {
        "apartments": _apartments(training),
        "commands": (call.replace(f"{Path.cwd()}/", ""),),
        "hours": _hours(settings, steps),
    }


def _demonstrations(training: Any) -> str:
    """Describes the demonstrations of a cloned policy, as far as their folders still exist."""
    folders, notes = training.demos.split(","), _notes(training)
    if len(notes) < len(folders):
        return f"of the scripted expert, in {len(folders)} folders that no longer exist"
    episodes, frames = sum(n.episodes for n in notes), sum(n.frames for n in notes)
    return f"{episodes:,} episodes of the scripted expert, {frames:,} frames"


def _apartments(training: Any) -> str:
    """Describes the apartments of a policy's training and, if they exist, of its demonstrations."""
    from skills.starts import mixture
    from tpsrl.world import rearranging
    from tpsrl.world.layouts import load_layout_set

    layout_set = load_layout_set("replica_cad")
    used = layout_set.split("train")[: training.num_episodes]
    families = ", ".join(sorted({layout.family for layout in used}))
    text = f"{len(used)} apartments of split train (families {families})"
    parts: list[mixture.StartShare] = []
    for given in (training.start_states, *(n.made.get("start_states") for n in _notes(training))):
        with contextlib.suppress(UserError):
            parts += mixture.parse(given) if mixture.is_mixture(given) else []
    if any(part.rearranged or _split_of(part.folder) == rearranging.SPLIT for part in parts):
        rearranged = rearranging.names(layout_set)[: training.num_episodes]
        text += f" and {len(rearranged)} of these with fridge or furniture moved"
    return text


def _split_of(bank: Path | None) -> str | None:
    """Returns the split that a bank was recorded in; None if its index cannot be read."""
    if bank is None:
        return None
    try:
        return str(files.parse_json(files.read_text(bank / "index.json"))["split"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _notes(training: Any) -> list[Any]:
    """Returns the notes of the folders of demonstrations that still exist and are valid."""
    from skills.demos import store

    found = []
    for folder in filter(None, (training.demos or "").split(",")):
        with contextlib.suppress(UserError):
            found.append(store.read_note(folder.strip()))
    return found


def _hours(settings: ExportSettings, steps: int) -> float | None:
    """Returns the hours until a training had made `steps` steps; None if not validly recorded."""
    from tpsrl.rl.run import metrics

    folder = _folder(settings)
    if folder is None or not (folder / metrics.METRICS).is_file():
        return None
    took_s = (row.get("seconds") for row in metrics.read(folder) if row["steps"] >= steps)
    try:
        seconds = next(took_s, None)
    except UserError:
        return None
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _LONGEST_S:
        return None
    return seconds / 3600


def _commit() -> str | None:
    """Returns the commit of the checkout that contains this code; None outside a checkout."""
    root = Path(tpsrl.__file__).resolve().parents[1]
    try:
        top, head = (_git(root, "rev-parse", what) for what in ("--show-toplevel", "HEAD"))
    except (OSError, subprocess.CalledProcessError):
        return None
    if Path(top).resolve() != root:  # installed within the checkout of another project
        return None
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    return head[:12] + (" with changes" if changed else "")


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
