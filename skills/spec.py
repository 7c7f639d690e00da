"""What one skill consists of: the one place where all that belongs to it is said."""

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

_NO_LIMITS = SkillLimits()  # of its own, but for 200 steps

# Something, or where it is found, "module:name": what takes long to import waits until it is used.
Ref = str | Any


@dataclasses.dataclass(frozen=True, slots=True)
class ProtocolValues:
    """A skill's numbers under one protocol.

    `thresholds` is the skill's own dataclass that says when it has succeeded; `limits` hold for one
    run of it within a plan, `alone` where it is run by itself. Both are of one class.
    """

    thresholds: Any
    limits: SkillLimits = _NO_LIMITS
    alone: SkillLimits = _NO_LIMITS


@dataclasses.dataclass(frozen=True, slots=True)
class Referent:
    """A thing that a planner's action names, as a skill sees it.

    `kind` is what it is; `object` the index into `Episode.objects` (goals: of the object that
    belongs there), -1 for none; `marker` the handle's name, "" for none; `position` (3,) in metres
    is where it is now.
    """

    kind: Literal["object", "goal", "handle", "robot"]
    object: int
    marker: str
    position: tuple[float, float, float]


GoalOf = Callable[[Sequence[Referent]], SkillGoal]


@dataclasses.dataclass(frozen=True, slots=True)
class SkillSpec:
    """A skill, registered once beside its definition; everything else is derived from this.

    Args:
        name: as it is called on the command line, in reports and files: lower case, underscores
        definition: what it may do, measures, success and failure, reward
        starts: its `skills.starts.source.StartStates`, or where they are
        protocols: its numbers by the name of the protocol; a protocol that is not among them has
            those of "habitat", which have to be there
        settings: horizon and weights of the reward; None: those of `configs/skill/NAME.yaml`
        scripted: makes a policy that acts without training, or where that is; None: there is none
        demonstrator: makes what demonstrations are recorded of, or where that is; None: there is
            none
        teacher: file of the policy of the true state that its students learn from, in
            `skills/pretrained` unless it is a whole path; None: there is none
        agents: further policies by name, for the skill by itself
        default_agent: who acts for the skill by itself unless another is named; "" for "scripted"
        actions: of the planning domain, that it carries out
        goal_of: what it is about, of the things that such an action names
        seed: keeps its draws of start states apart from other skills'; None: of its name
        gym_id: None: "tpsrl/NameInCapitals-v0"
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
                f"skill {self.name}: actions need goal_of, which says what they are about"
            )

    def values(self, protocol: str = DEFAULT_PROTOCOL) -> ProtocolValues:
        """Its numbers under a protocol."""
        return self.protocols.get(protocol, self.protocols[DEFAULT_PROTOCOL])

    @property
    def thresholds(self) -> Any:
        """When it has succeeded, by the default protocol."""
        return self.values().thresholds

    def load_settings(self) -> Any:
        """Horizon and weights of the reward.

        Raises:
            UserError: the preset does not fit the skill's settings.
        """
        if self.settings is not None:
            return self.settings
        if self.name not in config.preset_names("skill"):
            raise UserError(f"skill {self.name}: it has no settings; give SkillSpec(settings=...)")
        kind: Any = self.definition.settings_type
        return _preset(self.name, kind)

    def start_states(self) -> "StartStates":
        """Where its episodes start."""
        starts: StartStates = resolve(self.starts)
        return starts

    def agent_names(self) -> tuple[str, ...]:
        """Who may act for it by itself, besides trained policies."""
        from skills.policies import agents

        scripted = () if self.scripted is None else ("scripted",)
        return tuple(dict.fromkeys((*scripted, *self.agents, *agents.names())))

    def make_scripted(self) -> SkillPolicy:
        """The policy that acts for it without training.

        Raises:
            UserError: there is none; says what may act instead.
        """
        if self.scripted is None:
            raise UserError(
                f"skills.{self.name}: it has no scripted version; a checkpoint acts with "
                f"skills.{self.name}=PATH or, of it alone, agent=PATH; `tpsrl train {self.name}` "
                "makes one"
            )
        policy: SkillPolicy = resolve(self.scripted)()
        return policy

    def make_demonstrator(self) -> Demonstrator:
        """What demonstrations are recorded of.

        Raises:
            UserError: there is none; says who may be recorded instead.
        """
        if self.demonstrator is None:
            raise UserError(
                f"skills.{self.name}: it has no demonstrator; agent=scripted records its scripted "
                "version, if there is one, agent=PATH a trained policy"
            )
        own: Demonstrator = resolve(self.demonstrator)()
        return own

    @property
    def draw_seed(self) -> int:
        """Part of the seed of every draw of its start states."""
        return zlib.crc32(self.name.encode()) if self.seed is None else self.seed

    @property
    def env_id(self) -> str:
        """The id that it is registered by with gymnasium."""
        title = "".join(word.capitalize() for word in self.name.split("_"))
        return self.gym_id or f"tpsrl/{title}-v0"


@functools.cache  # an executor asks for it at every step of a plan
def _preset(name: str, schema: Any) -> Any:
    return config.load_preset("skill", name, schema)


def resolve(ref: Ref) -> Any:
    """What a reference "module:name" leads to; anything else is that itself."""
    return _imported(ref) if isinstance(ref, str) else ref


@functools.cache
def _imported(ref: str) -> Any:
    module, _, name = ref.partition(":")
    return getattr(importlib.import_module(module), name)
