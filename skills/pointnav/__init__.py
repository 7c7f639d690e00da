"""PointNav, Flee and Explore, tasks in addition to the benchmark's skills, with baselines."""

from skills.core.limits import SkillLimits
from skills.pointnav.roaming import Explore, ExploreThresholds, Flee, FleeThresholds
from skills.pointnav.task import PointNav, PointNavThresholds
from skills.registry import register
from skills.spec import ProtocolValues, SkillSpec

_BASELINES = "skills.pointnav.baselines"
_ROAMERS = {
    "random": f"{_BASELINES}:RandomRoamer",
    "forward_only": f"{_BASELINES}:ForwardOnlyRoamer",
}

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
        teacher="pointnav.teacher.safetensors",
        gym_id="tpsrl/PointNav-v0",
        protocols={"habitat": ProtocolValues(PointNavThresholds(), alone=SkillLimits(500))},
    )
)

FLEE = register(
    SkillSpec(
        name="flee",
        definition=Flee(),
        starts="skills.pointnav.starts:ROAMING",
        agents=_ROAMERS | {"farthest_path": f"{_BASELINES}:FarthestPathFollower"},
        default_agent="farthest_path",
        protocols={"habitat": ProtocolValues(FleeThresholds(), alone=SkillLimits(500))},
    )
)

EXPLORE = register(
    SkillSpec(
        name="explore",
        definition=Explore(),
        starts="skills.pointnav.starts:ROAMING",
        agents=_ROAMERS,
        default_agent="random",
        protocols={"habitat": ProtocolValues(ExploreThresholds(), alone=SkillLimits(500))},
    )
)
