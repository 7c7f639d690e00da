"""Model card of a shipped policy, as JSON in its file and as a page."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from skills.policies.rules import RULES
from tpsrl.runtime import records
from tpsrl.runtime.records import Count

UNKNOWN = "not recorded"
# Fields that older files lack, so omitted if empty.
_LATER = ("cameras", *RULES, "glimpse", "grip_rule")
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=2**53)]


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredSuccess:
    """Success rate of a policy in an evaluation of its skill outside a plan.

    `mean` has a 95% Wilson interval (`ci_low`, `ci_high`). `starts` is None for the skill's own
    start states, in the apartments of `split`. `failures` describe the first causes, with numbers
    of runs.
    """

    mean: Share
    ci_low: Share
    ci_high: Share
    num_episodes: Count
    split: str
    seed: Count
    starts: str | None
    num_objects: Count | None
    dataset: str
    protocol: str
    version: str
    failures: tuple[str, ...]
    command: str


@dataclasses.dataclass(frozen=True, slots=True)
class BlindSuccess:
    """Success rate of a policy whose `sensors` were replaced by those of another run (`blind=`).

    `mean` has a 95% Wilson interval. A policy that succeeds as often as with its own readings does
    not use these sensors.
    """

    sensors: tuple[str, ...]
    mean: Share
    ci_low: Share
    ci_high: Share
    num_episodes: Count
    command: str


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """Facts about a shipped policy; None and () for those not recorded.

    `privileged` are the sensors that a robot does not have. `difference` is the maximum change of
    mean actions by half precision. `cameras` are the sizes of pictures other than head depth.
    `sight` is the range in metres to which camera and laser are limited, 0 for no limit. `hours` is
    the duration of the training on `machine`. `stuck_noise` is the standard deviation of the noise
    while the robot is stuck. `grip_within` is the distance in metres from the object's first
    position within which the grip is always closed, `grip_beyond` that beyond which it is always
    open, `stop_within` that from the goal within which stop is always called. `release_speed` is
    the speed of the hand in m/s below which an object is released, 0 for any. `release_after` is
    the number of steps near the goal after which it is released, 0 for none. `release_upright` is
    the greatest number of steps in which it is turned upright before, 0 for none. `follow_path` is
    the number of steps for which a robot that stays in place follows its path, 0 for none.
    `glimpse` is the side in pixels of the cut-out of head depth around the goal, 0 for none.
    `grip_rule` is whether the sensor of this name sets the grip.
    """

    skill: str
    sensors: tuple[str, ...]
    privileged: tuple[str, ...]
    depth: tuple[Count, Count] | None
    delay: bool
    sample: bool
    encoder: str
    parameters: Count
    difference: Amount
    steps: Count
    version: str
    sight: Amount = 0.0
    apartments: str | None = None
    demonstrations: str | None = None
    machine: str | None = None
    hours: Amount | None = None
    commit: str | None = None
    licence: str | None = None
    commands: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    success: MeasuredSuccess | None = None
    blind: tuple[BlindSuccess, ...] = ()
    cameras: Mapping[str, tuple[Count, Count]] = dataclasses.field(default_factory=dict)
    stuck_noise: Amount = 0.0
    grip_within: Amount = 0.0
    grip_beyond: Amount = 0.0
    stop_within: Amount = 0.0
    release_speed: Amount = 0.0
    release_after: Count = 0
    release_upright: Count = 0
    follow_path: Count = 0
    glimpse: Count = 0
    grip_rule: bool = False

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as JSON types, without empty ones of `_LATER`."""
        record = dataclasses.asdict(self)
        return {k: v for k, v in record.items() if v or k not in _LATER}

    @staticmethod
    def from_json(found: Any, where: str = "card") -> "Card":
        """Creates a card from the result of `to_json`.

        Raises:
            UserError: an entry is unknown, missing, of the wrong type or out of range; the message
                begins with `where`.
        """
        return records.decode(found, Card, where, closed=True)


def markdown(card: Card) -> str:
    """Formats the model card as a Markdown page."""
    rows = "\n".join(f"| {name} | {_cell(text)} |" for name, text in _facts(card))
    parts = [
        f"# {card.skill}",
        f"A policy of tpsrl for the skill `{card.skill}`. `tpsrl eval {card.skill} agent=PATH` "
        "evaluates it, where PATH is its file, or `pretrained` for a policy shipped with tpsrl.",
        f"| | |\n|---|---|\n{rows}",
        f"## Success\n\n{_success(card.success)}{_blind(card.blind)}",
        f"## Known failures\n\n{_listed([*card.failures, *_measured_failures(card)])}",
        f"## Commands\n\n{_commands(card)}",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(card: Card) -> list[tuple[str, str]]:
    head = {} if card.depth is None else {"head_depth": card.depth}
    seen = (head | dict(card.cameras)).items()
    depth = "; ".join(f"{name.replace('_', ' ')}, {h} x {w}" for name, (h, w) in seen) or "none"
    sight = f"; depth and laser are limited to a range of {card.sight:g} m" if card.sight else ""
    if card.glimpse:
        sight = (
            f", halved, and {card.glimpse} x {card.glimpse} of its pixels around the goal{sight}"
        )
    acts = "samples actions, as in training" if card.sample else "uses mean actions"
    for name, rule in RULES.items():
        if value := getattr(card, name):
            acts += f"; {rule.card.format(value)}"
    if card.grip_rule:
        acts += "; the grip is that of the sensor grip_rule"
    delay = ", delayed by one step after the observation" if card.delay else ""
    half = f"half precision, mean actions within {card.difference:.1g} of full precision"
    return [
        ("sensors", ", ".join(card.sensors)),
        ("privileged sensors, unavailable to a robot", ", ".join(card.privileged) or "none"),
        ("camera", depth + sight),
        ("acting", acts + delay),
        ("network", f"{card.encoder}, {card.parameters:,} parameters, {half}"),
        ("trained in", card.apartments or UNKNOWN),
        ("steps of experience", f"{card.steps:,}"),
        ("demonstrations", card.demonstrations or UNKNOWN),
        ("machine", card.machine or UNKNOWN),
        ("time", _time(card.hours)),
        ("written by", f"tpsrl {card.version}, commit {card.commit or UNKNOWN}"),
        ("licence", card.licence or UNKNOWN),
    ]


def _time(hours: float | None) -> str:
    if hours is None:
        return UNKNOWN
    return f"{60 * hours:.0f} minutes" if hours < 2 else f"{hours:.1f} hours"


def _success(found: MeasuredSuccess | None) -> str:
    if found is None:
        return "Not measured."
    good = round(found.mean * found.num_episodes)
    where = found.starts or f"the skill's own start states of split {found.split}"
    objects = "" if found.num_objects is None else f", {found.num_objects} objects"
    return (
        f"**{100 * found.mean:.1f}%** ({good} of {found.num_episodes}; 95% Wilson interval "
        f"{100 * found.ci_low:.1f} to {100 * found.ci_high:.1f}) in isolation, from {where}, seed "
        f"{found.seed}{objects}, not used to select checkpoints; protocol {found.protocol}, "
        f"tpsrl {found.version}, digest of the episodes {found.dataset}."
    )


def _blind(found: Sequence[BlindSuccess]) -> str:
    """Formats one line for each set of replaced sensors."""
    lines = [
        f"- {' and '.join(one.sensors)}: {100 * one.mean:.1f}% "
        f"({round(one.mean * one.num_episodes)} of {one.num_episodes})"
        for one in found
    ]
    if not lines:
        return ""
    return "\n\nWith sensors replaced by those of another run:\n\n" + "\n".join(lines)


def _measured_failures(card: Card) -> Sequence[str]:
    return () if card.success is None else card.success.failures


def _commands(card: Card) -> str:
    evaluation = [] if card.success is None else [card.success.command]
    lines = [*card.commands, *evaluation, *(one.command for one in card.blind)]
    return "\n".join(f"    {line}" for line in lines) or f"{UNKNOWN.capitalize()}."


def _listed(lines: Sequence[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or f"{UNKNOWN.capitalize()}."


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
