"""Types of the keys of report.json, in the order of the file.

A key with the default `UNSET` is left out of files that do not have it; None is null: not measured.
Files of earlier versions are decoded with the same types, with defaults for keys that they lack.
docs/architecture.md and docs/handoffs.md explain the keys.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from eval.analysing.bounds import ByName, Change, Fraction, Items, Maybe, Number, StageNumber
from eval.analysing.intervals import Rate
from planner.execution.trace import Cause
from tpsrl.runtime.records import Count, FilePath, FolderPath, Text


class ReportedPolicy(Struct, frozen=True):
    """The policy that acted for one skill (`skills.policies.learned.about`)."""

    checkpoint: Text
    trained_steps: int | float
    sample: bool | UnsetType = UNSET
    stuck_noise: Number | UnsetType = UNSET
    grip_within: Number | UnsetType = UNSET
    grip_beyond: Number | UnsetType = UNSET
    stop_within: Number | UnsetType = UNSET
    release_speed: Number | UnsetType = UNSET
    release_after: int | UnsetType = UNSET
    release_upright: int | UnsetType = UNSET
    follow_path: int | UnsetType = UNSET
    privileged: Items[Text] | UnsetType = UNSET
    policy: Text | UnsetType = UNSET


class Ran(Struct, frozen=True, kw_only=True):
    """Description of a run, in the reports of scenarios, skills and several of either."""

    scenario: Text | UnsetType = UNSET
    skill: Text | UnsetType = UNSET
    title: Text
    protocol: Text
    protocol_changes: ByName[Any]
    protocol_values: ByName[Any]
    engine: Text
    split: Text
    seed: Count
    version: Text
    versions: ByName[Text] | UnsetType = UNSET
    agent: Text
    learned: ByName[ReportedPolicy]
    agent_rules: ByName[Any] | UnsetType = UNSET
    agent_changes: ByName[Any] | UnsetType = UNSET
    stand_ins: ByName[Text] | UnsetType = UNSET


class ScenarioRan(Ran, frozen=True, kw_only=True):
    """Description of a run of a scenario."""

    stage_rule: Literal["ever", "cumulative", "subtask"]
    replan: bool
    dataset: Text | None = None
    left_out: ByName[Count] | UnsetType = UNSET
    invalid: ByName[Text] | UnsetType = UNSET
    domain: Text | UnsetType = UNSET
    plan: Text | UnsetType = UNSET
    settings_command: Text | None = None


class SkillRan(Ran, frozen=True, kw_only=True):
    """Description of a run of a skill in isolation."""

    num_objects: Count | None = None
    starts: Text | None = None
    dataset: Text
    blind: Items[Text] | UnsetType = UNSET


class Spread(Struct, frozen=True):
    """Mean, median, 90th percentile (nearest rank) and maximum of one value per episode."""

    mean: Number
    median: Number
    p90: Number
    max: Number


class Forces(Struct, frozen=True):
    """Forces in newtons: the largest of a control step, and the sum over a run."""

    peak_n: Spread
    total_n: Spread


class TimeoutRates(Struct, frozen=True):
    """See `eval.analysing.extras.timeouts`."""

    episodes: Count
    reasons: ByName[Count]
    ending: Rate
    ignored: Rate | None
    how: Text


class SolvedAtStart(Struct, frozen=True):
    """Episodes whose goals hold at the start, and the success of the others."""

    episodes: Count
    others: Rate | None


class ClutterMoved(Struct, frozen=True):
    """See `eval.analysing.extras.clutter_moved`."""

    mean: Number
    none: Fraction
    objects: Number
    targets: Number | UnsetType = UNSET


class ViewBlocked(Struct, frozen=True):
    """See `eval.analysing.extras.view_blocked`."""

    mean: Fraction
    episodes: Count


class CauseRow(Struct, frozen=True):
    """A first cause of failure, with the number of episodes and the median margin."""

    stage: StageNumber
    name: Text
    skill: Text
    predicate: Text
    reason: Text
    margin: Number | None
    unit: Text
    count: Count


class StageRow(Struct, frozen=True, kw_only=True):
    """See `eval.analysing.report.stage_rates`."""

    index: Count
    name: Text
    skill: Text
    reached: Count
    succeeded: Count
    rate: Fraction | None
    ci_low: Fraction | None
    ci_high: Fraction | None
    cumulative: Fraction
    skill_succeeded: Count
    skill_rate: Fraction | None = None
    skill_ci_low: Fraction | None = None
    skill_ci_high: Fraction | None = None
    only_predicates: Count
    only_skill: Count


class GoalRow(Struct, frozen=True):
    """See `eval.analysing.report.goal_rates`."""

    name: Text
    episodes: Count
    reached: Count
    rate: Fraction | None
    ci_low: Fraction | None
    ci_high: Fraction | None


class HandoffRow(Struct, frozen=True, kw_only=True):
    """See `eval.analysing.report.handoffs` and `eval.handoffs.matrix.by_step`."""

    index: Count
    from_: Text = field(name="from")
    to: Text
    skill_from: Text | UnsetType = UNSET
    skill_to: Text | UnsetType = UNSET
    n: Count
    rate_after_handoff: Fraction | None
    rate_isolated: Fraction | None = None
    paired: Count | UnsetType = UNSET
    tax: Change | None = None
    ci_low: Number | None = None
    ci_high: Number | None = None
    p_value: Fraction | UnsetType = UNSET
    significant: bool | UnsetType = UNSET


class ErrorBin(Struct, frozen=True):
    """Success of the handoffs with an error between `low` and `high`."""

    low: Number
    high: Number | None
    n: Count
    rate: Rate | None


class ErrorRow(Struct, frozen=True):
    """Relation of one error dimension of the state at a handoff to success after it."""

    dimension: Text
    unit: Text
    n: Count
    median_before_success: Number | None
    median_before_failure: Number | None
    bins: Items[ErrorBin]


class MatrixRow(Struct, frozen=True, kw_only=True):
    """See `eval.handoffs.matrix.by_skills`."""

    from_: Text = field(name="from")
    to: Text
    n: Count
    after: Rate | None
    isolated: Rate | None
    paired: Count | UnsetType = UNSET
    tax: Change | None
    ci_low: Number | None
    ci_high: Number | None
    p_value: Fraction | None
    errors: Items[ErrorRow]
    significant: bool


class LossPart(Struct, frozen=True, kw_only=True):
    """A part of the loss, by stage; `stage` is None for losses after the last one."""

    kind: Text
    stage: StageNumber | None
    from_: Text | None = field(name="from")
    to: Text | None
    skill: Text | None
    value: Change
    used_by: Maybe[Text] = UNSET


class Propagation(Struct, frozen=True, kw_only=True):
    """See `eval.handoffs.propagation.propagation`."""

    episodes: Count | UnsetType = UNSET
    measured: Fraction
    product_isolated: Fraction | None = None
    product_conditional: Fraction | None = None
    residual: Maybe[Change] = UNSET
    loss: Change | None = None
    parts: Maybe[Items[LossPart]] = UNSET


class ObjectRates(Struct, frozen=True, kw_only=True):
    """See `eval.analysing.interactions.of_objects`; without `object`, over all objects."""

    object: Count | UnsetType = UNSET
    turns: Count
    nav_pick: Rate
    nav_pick_nav_place: Rate


class Interactions(Struct, frozen=True):
    """Progress of the robot with each object."""

    objects: Items[ObjectRates]
    all: ObjectRates


class Travelled(Struct, frozen=True):
    """Number of runs of a skill, and the mean path length of the base in metres."""

    runs: Count
    mean: Number


class AnalysisSize(Struct, frozen=True, kw_only=True):
    """Size of a handoff analysis.

    Attributes:
        episodes: number of analysed episodes
        repaired: number of episodes in which all coalitions were run, by kind of repair
        steps: control steps of all studies
        repair_steps: control steps of repaired continuations
        budget: of control steps for repaired continuations
        canonical: description of the repairs
    """

    episodes: Count
    repaired: ByName[Count] = field(default_factory=dict)
    steps: Count | UnsetType = UNSET
    repair_steps: Count | UnsetType = UNSET
    budget: Count | UnsetType = UNSET
    canonical: Text = ""


class FlowNode(Struct, frozen=True):
    """A cause, stage or end, and the share of all episodes that pass through it."""

    id: Text
    kind: Literal["cause", "stage", "end"]
    label: Text
    share: Fraction


class FlowEdge(Struct, frozen=True, kw_only=True):
    """Share of all episodes that pass from one node to another."""

    from_: Text = field(name="from")
    to: Text
    share: Fraction


class Flow(Struct, frozen=True):
    """See `eval.handoffs.flow.flow`."""

    nodes: Items[FlowNode]
    edges: Items[FlowEdge]


class Gain(Struct, frozen=True):
    """See `eval.handoffs.ranking.gain`."""

    n: Count
    applied: Count
    before: Fraction | None
    after: Fraction | None
    gain: Change | None
    ci_low: Number | None
    ci_high: Number | None


class RepairRow(Struct, frozen=True, kw_only=True):
    """See `eval.handoffs.ranking.ranked`."""

    kind: Text
    from_: Text = field(name="from")
    to: Text
    n: Count
    applied: Count
    before: Fraction
    after: Fraction
    gain: Change
    ci_low: Number
    ci_high: Number
    shapley: Change | None = None
    shapley_ci_low: Number | None = None
    shapley_ci_high: Number | None = None
    own: Number | UnsetType = UNSET


class BlameRow(Struct, frozen=True):
    """Failed episodes by failing skill, and the skill that set it up to fail (None: itself)."""

    skill: Text
    set_up_by: Text | None
    count: Count


class Clip(Struct, frozen=True):
    """A clip of a failure; `text` is its first cause with figures."""

    episode: Text
    video: FilePath
    poster: FilePath | None
    text: Text


class ReelGroup(Struct, frozen=True):
    """Clips of one cause, and the number of episodes with it."""

    cause: Text
    count: Count
    clips: Items[Clip]


class LostEpisode(Struct, frozen=True):
    """An episode that lost its home, and the cause; it is not part of any rate."""

    episode: Text
    cause: Text


class Report(ScenarioRan, frozen=True, kw_only=True):
    """Report of a scenario."""

    num_episodes: Count
    lost: Items[LostEpisode] | UnsetType = UNSET
    success: Rate
    solved_at_start: SolvedAtStart | UnsetType = UNSET
    goals_met: Fraction
    timeouts: TimeoutRates | None = None
    stages: Items[StageRow]
    stage_goals: Items[GoalRow]
    handoffs: Items[HandoffRow] | None = None
    propagation: Propagation | None = None
    first_causes: Items[CauseRow]
    steps: Spread
    force: Forces
    interactions: Interactions | None = None
    travelled_m: ByName[Travelled] | None = None
    clutter_moved: ClutterMoved | None = None
    view_blocked: ViewBlocked | None = None
    analysis: AnalysisSize | None = None
    analysis_left_out: Text | UnsetType = UNSET
    handoff_matrix: Maybe[Items[MatrixRow]] = UNSET
    flow: Maybe[Flow] = UNSET
    repairs: Maybe[Items[RepairRow]] = UNSET
    repair_all: Maybe[ByName[Gain]] = UNSET
    blame: Maybe[Items[BlameRow]] = UNSET
    findings: Maybe[Items[Text]] = UNSET
    reel: Maybe[Items[ReelGroup]] = UNSET


class SkillPart(Struct, frozen=True):
    """A condition of success of a skill: the number of runs in which it held at the end.

    `median_lacking` is the median margin of the other runs.
    """

    name: Text
    unit: Text
    held: Count
    runs: Count
    median_lacking: Number | None


class MeanInterval(Struct, frozen=True):
    """Bounds of the 95 percent interval of a mean."""

    ci_low: Number
    ci_high: Number


class SkillReport(SkillRan, frozen=True, kw_only=True):
    """Report of a skill in isolation."""

    num_episodes: Count
    lost: Items[LostEpisode] | UnsetType = UNSET
    success: Rate
    ends: ByName[Count] = field(default_factory=dict)
    parts: Items[SkillPart]
    first_causes: Items[CauseRow]
    steps: Spread
    force: Forces
    reward: Spread
    path: ByName[Number] | None = None
    path_intervals: ByName[MeanInterval] | None = None
    view_blocked: ViewBlocked | None = None


class IndexRow(Struct, frozen=True, kw_only=True):
    """One evaluation of several, of a scenario or of a skill (`eval.reporting.index`)."""

    name: Text
    folder: Text
    num_episodes: Count
    lost: Count | UnsetType = UNSET
    success: Rate
    goals_met: Fraction | UnsetType = UNSET
    stages: Number | UnsetType = UNSET
    num_stages: Count | UnsetType = UNSET
    disagree: Count | UnsetType = UNSET
    stages_run: Count | UnsetType = UNSET
    ends: ByName[Count] | UnsetType = UNSET
    steps: Spread
    force: Forces
    reward: Spread | UnsetType = UNSET
    timeouts: Maybe[TimeoutRates] = UNSET
    clutter_moved: Maybe[ClutterMoved] = UNSET
    view_blocked: Maybe[ViewBlocked] = UNSET


class Index(Ran, frozen=True, kw_only=True):
    """Report of several evaluations."""

    runs: Annotated[Items[IndexRow], Meta(min_length=1)]
    num_episodes: Count


class ComparedAgent(Struct, frozen=True, kw_only=True):
    """One evaluation of a comparison: parts of its report, figures of the common episodes."""

    name: Text
    folder: Text
    agent: Text
    learned: ByName[ReportedPolicy]
    protocol: Text
    protocol_changes: ByName[Any]
    replan: bool | UnsetType = UNSET
    version: Text
    versions: ByName[Text] | UnsetType = UNSET
    settings_command: Text | None
    handoff_matrix: Items[MatrixRow] | None
    num_episodes: Count
    success: Rate
    stages: Items[StageRow] | UnsetType = UNSET
    parts: Items[SkillPart] | UnsetType = UNSET
    first_causes: Items[CauseRow]
    link: FolderPath | UnsetType = UNSET


class AgentDifference(Struct, frozen=True):
    """Difference of an agent to the first one (`eval.analysing.paired`)."""

    name: Text
    against: Text
    both: Count
    only_first: Count
    only_second: Count
    neither: Count
    value: Change
    ci_low: Number | None
    ci_high: Number | None
    unpaired_ci_low: Number | None
    unpaired_ci_high: Number | None
    p_value: Fraction


class ComparedOutcome(Struct, frozen=True):
    """Outcome of an episode for one of the agents."""

    success: bool
    steps: Count
    first_cause: Cause | None
    cause_text: Text | None
    set_up_by: Text | None
    video: FilePath | None


class DifferingEpisode(Struct, frozen=True):
    """An episode with different success; `outcomes` in the order of the agents."""

    id: Text
    outcomes: Items[ComparedOutcome]


class Comparison(Struct, frozen=True, kw_only=True):
    """Report of several agents on the same episodes of a scenario or skill."""

    scenario: Text | UnsetType = UNSET
    skill: Text | UnsetType = UNSET
    title: Text
    split: Text
    seed: Count
    dataset: Text | None
    num_episodes: Count
    agents: Items[ComparedAgent]
    differences: Items[AgentDifference]
    episodes: list[DifferingEpisode]
