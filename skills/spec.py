"""Specification of a skill: its definition, start states, protocols, policies and plan actions."""

import dataclasses
import functools
import importlib
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from skills.core.interface import Demonstrator, SkillGoal, SkillPolicy
from skills.core.limits import SkillLimits
from skills.core.settings import TaskSettings
from skills.core.skill import Skill
from tpsrl import config
from tpsrl.errors import UserError

if TYPE_CHECKING:
    from skills.starts.source import StartStates

DEFAULT_PROTOCOL = "habitat"

_NO_LIMITS = SkillLimits()  # 200 steps, no limits on force

# An object, or "module:name" of one, which defers a slow import until the first use.
Ref = str | Any


@dataclasses.dataclass(frozen=True, slots=True)
class ProtocolValues:
    """Thresholds and limits of a skill under one protocol.

    `thresholds` is the skill's own dataclass of success thresholds. `limits` apply to one run of
    the skill within a plan, `alone` to a run outside a plan; both have the same class.
    """

    thresholds: Any
    limits: SkillLimits = _NO_LIMITS
    alone: SkillLimits = _NO_LIMITS


@dataclasses.dataclass(frozen=True, slots=True)
class Referent:
    """Argument of a planner's action, in the form that a skill needs.

    `object` is the index into `Episode.objects` (for a goal: of the object that belongs there), -1
    for none; `marker` is the name of the handle, "" for none; `position` (3,) is the current
    position in the world frame, in metres.
    """

    kind: Literal["object", "goal", "handle", "robot"]
    object: int
    marker: str
    position: tuple[float, float, float]


GoalOf = Callable[[Sequence[Referent]], SkillGoal]


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSpec:
    """Specification of a skill, registered beside its definition; all else is derived from it.

    Arguments of type `Ref` are an object, or "module:name" of one.

    Args:
        name: name on the command line, in reports and in files: lower case, underscores
        definition: action parts, measures, success, failure and reward
        starts: `skills.starts.source.StartStates` of the skill
        protocols: thresholds and limits by the name of the protocol; "habitat" is required, and
            stands in for protocols that are missing
        settings: horizon and reward weights; None: those of `configs/skill/NAME.yaml`
        scripted: factory of a policy that needs no training; None: the skill has none
        demonstrator: factory of the demonstrator that demonstrations are recorded from; None: the
            skill has none
        teacher: checkpoint of the teacher, a policy of the true state that labels states for
            students; relative to `skills/pretrained`, or an absolute path; None: the skill has none
        agents: further policies by name, for runs outside a plan
        default_agent: policy of runs outside a plan if none is named; "" for "scripted"
        actions: actions of the planning domain that the skill carries out
        goal_of: maps the arguments of such an action to the skill's goal
        seed: separates the draws of start states from those of other skills; None: a hash of `name`
        gym_id: gymnasium id; None: "tpsrl/NameInCapitals-v0"
    """

    name: str
    definition: Skill
    starts: "Ref | StartStates"
    protocols: Mapping[str, ProtocolValues]
    settings: TaskSettings | None = None
    scripted: Ref | Callable[[], SkillPolicy] | None = None
    demonstrator: Ref | Callable[[], Demonstrator] | None = None
    teacher: str | None = None
    agents: Mapping[str, Ref] = dataclasses.field(default_factory=dict)
    default_agent: str = ""
    actions: tuple[str, ...] = ()
    goal_of: GoalOf | None = None
    seed: int | None = None
    gym_id: str | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name != self.name.lower():
            raise UserError(
                f"skill: '{self.name}' is not a valid name; use lower case and underscores"
            )
        if DEFAULT_PROTOCOL not in self.protocols:
            raise UserError(f"skill {self.name}: protocols lack '{DEFAULT_PROTOCOL}'")
        own = self.protocols[DEFAULT_PROTOCOL]
        for protocol, values in self.protocols.items():
            for field in ("thresholds", "limits", "alone"):
                kind, other = type(getattr(own, field)), type(getattr(values, field))
                if kind is not other:
                    raise UserError(
                        f"skill {self.name}: {field} under {protocol} are {other.__name__}, under "
                        f"{DEFAULT_PROTOCOL} {kind.__name__}"
                    )
        if self.actions and self.goal_of is None:
            raise UserError(
                f"skill {self.name}: actions need goal_of, which gives the goal of an action"
            )

    def values(self, protocol: str = DEFAULT_PROTOCOL) -> ProtocolValues:
        """Returns thresholds and limits under a protocol; unknown ones get those of "habitat"."""
        return self.protocols.get(protocol, self.protocols[DEFAULT_PROTOCOL])

    @property
    def thresholds(self) -> Any:
        """Success thresholds under the default protocol."""
        return self.values().thresholds

    def load_settings(self) -> Any:
        """Returns horizon and reward weights, from `settings` or the skill's preset.

        Raises:
            UserError: the skill has no settings, or its preset does not fit their class.
        """
        if self.settings is not None:
            return self.settings
        if self.name not in config.preset_names("skill"):
            raise UserError(f"skill {self.name}: has no settings; give SkillSpec(settings=...)")
        kind: Any = self.definition.settings_type
        return _preset(self.name, kind)

    def start_states(self) -> "StartStates":
        """Returns the distribution of the skill's start states."""
        starts: StartStates = resolve(self.starts)
        return starts

    def agent_names(self) -> tuple[str, ...]:
        """Returns the names of agents for runs outside a plan, other than trained policies."""
        from skills.policies import agents

        scripted = () if self.scripted is None else ("scripted",)
        return tuple(dict.fromkeys((*scripted, *self.agents, *agents.names())))

    def make_scripted(self) -> SkillPolicy:
        """Creates the scripted version of the skill.

        Raises:
            UserError: the skill has none; the message names the alternatives.
        """
        if self.scripted is None:
            raise UserError(
                f"skills.{self.name}: there is no scripted version; train a policy with `tpsrl "
                f"train {self.name}`, and name it by skills.{self.name}=PATH (agent=PATH for the "
                "skill alone)"
            )
        policy: SkillPolicy = resolve(self.scripted)()
        return policy

    def make_demonstrator(self) -> Demonstrator:
        """Creates the demonstrator that demonstrations are recorded from.

        Raises:
            UserError: the skill has none; the message names the alternatives.
        """
        if self.demonstrator is None:
            raise UserError(
                f"skills.{self.name}: there is no demonstrator; record a scripted version with "
                "agent=scripted, or a trained policy with agent=PATH"
            )
        own: Demonstrator = resolve(self.demonstrator)()
        return own

    @property
    def draw_seed(self) -> int:
        """Part of the seed of every draw of the skill's start states."""
        return zlib.crc32(self.name.encode()) if self.seed is None else self.seed

    @property
    def env_id(self) -> str:
        """Id of the skill's environment in gymnasium."""
        title = "".join(word.capitalize() for word in self.name.split("_"))
        return self.gym_id or f"tpsrl/{title}-v0"


@functools.cache  # An executor loads the settings at every step of a plan.
def _preset(name: str, schema: Any) -> Any:
    return config.load_preset("skill", name, schema)


def resolve(ref: Ref) -> Any:
    """Returns the object that "module:name" refers to; other values are returned unchanged."""
    return _imported(ref) if isinstance(ref, str) else ref


@functools.cache
def _imported(ref: str) -> Any:
    module, _, name = ref.partition(":")
    return getattr(importlib.import_module(module), name)
