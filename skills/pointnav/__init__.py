"""PointNav, a task beside the benchmark's skills: definition, start states, blind baselines."""

from skills.core.limits import SkillLimits
from skills.pointnav.task import PointNav, PointNavThresholds
from skills.registry import register
from skills.spec import ProtocolValues, SkillSpec

_BASELINES = "skills.pointnav.baselines"

SPEC = register(
    SkillSpec(
        name="pointnav",
        definition=PointNav(),
        starts="skills.pointnav.starts:STARTS",
        agents={
            "random": f"{_BASELINES}:RandomDriver",
            "forward_only": f"{_BASELINES}:ForwardOnlyAgent",
            "goal_follower": f"{_BASELINES}:GoalFollower",
            "shortest_path": f"{_BASELINES}:ShortestPathFollower",
        },
        default_agent="shortest_path",
        gym_id="tpsrl/PointNav-v0",
        protocols={"habitat": ProtocolValues(PointNavThresholds(), alone=SkillLimits(500))},
    )
)
