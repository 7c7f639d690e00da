"""ObjectNav, a task in addition to the benchmark's skills: definition and baselines."""

from skills.core.limits import SkillLimits
from skills.objectnav.task import ObjectNav, ObjectNavThresholds
from skills.registry import register
from skills.spec import ProtocolValues, SkillSpec

_BASELINES = "skills.objectnav.baselines"

SPEC = register(
    SkillSpec(
        name="objectnav",
        definition=ObjectNav(),
        starts="skills.objectnav.starts:STARTS",
        scripted="skills.objectnav.frontier:FrontierExplorer",
        demonstrator=f"{_BASELINES}:ShortestViewpointPath",
        agents={
            "random": f"{_BASELINES}:RandomSearcher",
            "forward_only": f"{_BASELINES}:ForwardOnlySearcher",
            "frontier": "skills.objectnav.frontier:FrontierExplorer",
            "frontier_pictures": "skills.objectnav.frontier:PictureExplorer",
            "frontier_colour": "skills.objectnav.frontier:ColourExplorer",
            "shortest_path": f"{_BASELINES}:ShortestViewpointPath",
        },
        default_agent="shortest_path",
        gym_id="tpsrl/ObjectNav-v0",
        protocols={"habitat": ProtocolValues(ObjectNavThresholds(), alone=SkillLimits(500))},
    )
)
