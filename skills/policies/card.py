"""What is said of a shipped policy: the same facts as JSON in its file and as a model card."""

import dataclasses
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from tpsrl.errors import UserError

UNKNOWN = "not recorded"
_RATES = ("mean", "ci_low", "ci_high")
_MOST = 2**53  # of any number


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredSuccess:
    """How often a policy succeeded in an evaluation of its skill by itself.

    `mean` has a 95% Wilson interval; `starts` is None for the skill's own start states, of the
    apartments of `split`; `failures` say what failed first, in how many runs.
    """

    mean: float
    ci_low: float
    ci_high: float
    num_episodes: int
    split: str
    seed: int
    starts: str | None
    num_objects: int | None
    dataset: str
    protocol: str
    version: str
    failures: tuple[str, ...]
    command: str


@dataclasses.dataclass(frozen=True, slots=True)
class BlindSuccess:
    """How often a policy succeeded that was shown another run's `sensors`, as in `blind=`.

    `mean` has a 95% Wilson interval. A policy that succeeds as often as with its own does not use
    these sensors.
    """

    sensors: tuple[str, ...]
    mean: float
    ci_low: float
    ci_high: float
    num_episodes: int
    command: str


@dataclasses.dataclass(frozen=True, slots=True)
class Card:
    """The facts of a shipped policy; None and () for what nobody has recorded.

    `privileged` are those of its sensors that a robot does not have, `difference` by how much half
    precision changes its mean actions at most, `sight` how many metres its camera and laser see (0:
    as far as they do), `hours` what the training took on `machine`.
    """

    skill: str
    sensors: tuple[str, ...]
    privileged: tuple[str, ...]
    depth: tuple[int, ...] | None
    delay: bool
    sample: bool
    encoder: str
    parameters: int
    difference: float
    steps: int
    version: str
    sight: float = 0.0
    apartments: str | None = None
    demonstrations: str | None = None
    machine: str | None = None
    hours: float | None = None
    commit: str | None = None
    licence: str | None = None
    commands: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    success: MeasuredSuccess | None = None
    blind: tuple[BlindSuccess, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """JSON types by name."""
        return dataclasses.asdict(self)

    @staticmethod
    def from_json(found: Any) -> "Card":
        """The card of `to_json`.

        Raises:
            UserError: an entry is unknown, missing, of the wrong type or out of range.
        """
        card: Card = _read(Card, found, "card")
        return card


def markdown(card: Card) -> str:
    """The model card as a page."""
    rows = "\n".join(f"| {name} | {_cell(text)} |" for name, text in _facts(card))
    parts = [
        f"# {card.skill}",
        f"A policy of tpsrl for the skill `{card.skill}`: `tpsrl eval {card.skill} agent=PATH` "
        "acts by it, where PATH is its file, or `pretrained` for one that came with tpsrl.",
        f"| | |\n|---|---|\n{rows}",
        f"## Success\n\n{_success(card.success)}{_blind(card.blind)}",
        f"## Known failures\n\n{_listed([*card.failures, *_measured_failures(card)])}",
        f"## Commands\n\n{_commands(card)}",
    ]
    return "\n\n".join(parts) + "\n"


def _facts(card: Card) -> list[tuple[str, str]]:
    depth = "none" if card.depth is None else f"head depth, {card.depth[0]} x {card.depth[1]}"
    sight = (
        f"; beyond {card.sight:g} m neither it nor the laser sees anything" if card.sight else ""
    )
    acts = "draws its actions, as in training" if card.sample else "takes the mean of its actions"
    delay = ", one step after what it has seen" if card.delay else ""
    half = f"half precision, mean actions within {card.difference:.1g} of full precision's"
    return [
        ("sensors", ", ".join(card.sensors)),
        ("of these privileged, which a robot does not have", ", ".join(card.privileged) or "none"),
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
        f"{100 * found.ci_low:.1f} to {100 * found.ci_high:.1f}) by itself, from {where}, seed "
        f"{found.seed}{objects}, by which no checkpoint was chosen; protocol {found.protocol}, "
        f"tpsrl {found.version}, digest of the episodes {found.dataset}."
    )


def _blind(found: Sequence[BlindSuccess]) -> str:
    """A line for each set of sensors of another run."""
    lines = [
        f"- {' and '.join(one.sensors)}: {100 * one.mean:.1f}% "
        f"({round(one.mean * one.num_episodes)} of {one.num_episodes})"
        for one in found
    ]
    if not lines:
        return ""
    return "\n\nWith sensors of another run in the place of its own:\n\n" + "\n".join(lines)


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


def _read(kind: Any, found: Any, where: str) -> Any:
    """A dataclass of JSON types."""
    fields = {field.name: field for field in dataclasses.fields(kind)}
    if not isinstance(found, Mapping):
        raise UserError(f"{where}: must be a mapping of entries")
    for name in found:
        if name not in fields:
            raise UserError(f"{where}: unknown entry '{name}'")
    for name, field in fields.items():
        if name not in found and field.default is dataclasses.MISSING:
            raise UserError(f"{where}: '{name}' is missing")
    hints = typing.get_type_hints(kind)
    read = {n: _value(hints[n], value, f"{where}: {n}") for n, value in found.items()}
    for name, value in read.items():
        _check_range(value, 1 if name in _RATES else _MOST, f"{where}: {name}")
    return kind(**read)


def _check_range(value: Any, most: int, where: str) -> None:
    """Refuses a number, or one of several, that is not from 0 to `most`, which NaN is not."""
    for number in value if isinstance(value, tuple) else (value,):
        if isinstance(number, int | float) and not 0 <= number <= most:
            raise UserError(f"{where}: {number} is out of range, must be between 0 and {most}")


def _value(hint: Any, value: Any, where: str) -> Any:
    """A value of an annotation: a plain type, a tuple of one, a dataclass, or None beside one."""
    options = typing.get_args(hint) if type(None) in typing.get_args(hint) else (hint,)
    if value is None and type(None) in options:
        return None
    plain = options[0]
    if dataclasses.is_dataclass(plain):
        return _read(plain, value, where)
    if typing.get_origin(plain) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where}: must be a list, got '{value}'")
        return tuple(_value(typing.get_args(plain)[0], part, where) for part in value)
    if plain is float and type(value) is int:
        return float(value)
    if type(value) is not plain:
        raise UserError(f"{where}: '{value}' is of the wrong type")
    if plain is str:
        _check_text(value, where)
    return value


def _check_text(text: str, where: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"{where}: {text!r} has half a character (a lone surrogate)") from None
