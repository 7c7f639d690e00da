"""Rules that change a network's actions by what the robot senses, and their descriptions."""

import dataclasses

from skills.core.sensors import CARRIED
from skills.policies import follow, steady, stuck, upright

GRIP_SENSOR = "start_from_ee"  # vector (3,) from the cup to the object's first position, in m
STOP_SENSOR = "compass"  # distance of the goal in m, cosine and sine of its direction


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """Sensors that a rule needs, and formats of its value on a model card and in a report."""

    sensors: tuple[str, ...]
    card: str
    report: str


# By the setting with the rule's value, 0 for none; in the order of descriptions.
RULES = {
    "stuck_noise": Rule(
        (stuck.VELOCITY,),
        "noise of standard deviation {:g} while the robot is stuck",
        "noise of {:g} while stuck",
    ),
    "grip_within": Rule(
        (GRIP_SENSOR,),
        "grip closed within {:g} m of the object's first position",
        "grip closed within {:g} m of the object",
    ),
    "grip_beyond": Rule(
        (GRIP_SENSOR, steady.HOLDING),
        "grip open beyond {:g} m of the object's first position",
        "grip open beyond {:g} m of the object",
    ),
    "stop_within": Rule(
        (STOP_SENSOR,),
        "stop within {:g} m of the goal by the compass",
        "stop within {:g} m of the goal",
    ),
    "release_speed": Rule(
        (upright.GOAL, steady.HOLDING),
        "stands still to release, once the hand is slower than {:g} m/s",
        "release from a hand slower than {:g} m/s",
    ),
    "release_after": Rule(
        (upright.GOAL, steady.HOLDING),
        f"releases after {{:g}} steps within {steady.NEAR_M:g} m of the goal without coming nearer",
        "release after {:g} steps near the goal",
    ),
    "release_upright": Rule(
        (upright.GOAL, steady.HOLDING, upright.ARM, upright.TO_REST, CARRIED),
        "turns the object upright over its goal before the release, in at most {:g} steps",
        "object turned upright before release, in at most {:g} steps",
    ),
    "follow_path": Rule(
        (stuck.VELOCITY, follow.PATH),
        "follows its path for {:g} steps where it does not advance",
        "path followed for {:g} steps without progress",
    ),
}
