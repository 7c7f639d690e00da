"""Which pictures a training, cloning or recording is about: `depth=`, or `cameras=`."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

from skills.core import cameras
from tpsrl.errors import UserError
from tpsrl.rl.policy.settings import check_depth
from tpsrl.world.cameras import HEAD_DEPTH, Sides, bytes_of

if TYPE_CHECKING:
    from skills.core.inputs import PolicyInputs

HELP = (
    "pictures shown, with their sizes, in the place of depth: any of depth, rgb, semantic and "
    "instance of head and hand, such as head_depth:64,hand_rgb:32"
)
_NUMBER = 4  # bytes of a float32

CameraSettings = TypeVar("CameraSettings")  # settings with `depth` and `cameras`


def plain(settings: CameraSettings) -> CameraSettings:
    """The same settings, with `cameras` in its normal form, None where `depth` says the same.

    Raises:
        UserError: see `skills.core.cameras.parse`.
    """
    told: Any = settings
    if told.cameras is None:
        return settings
    sizes = cameras.parse(told.cameras)
    changed: Any = dataclasses.replace(told, cameras=cameras.text(sizes))
    if list(sizes) == [HEAD_DEPTH] and len(set(sizes[HEAD_DEPTH])) == 1:
        changed = dataclasses.replace(told, cameras=None, depth=sizes[HEAD_DEPTH][0])
    return cast(CameraSettings, changed)


def as_options(settings: Any, looks: bool) -> dict[str, Any]:
    """`depth` or `cameras` of `skills.envs.options.EnvKeywords`; nothing to see if none `looks`."""
    if settings.cameras is not None:
        return {"cameras": settings.cameras}
    return {"depth": settings.depth if looks else None}


def of_inputs(inputs: "PolicyInputs") -> str | None:
    """`cameras` as settings have it for what a policy sees; None where `depth` says it."""
    return cameras.text(inputs.pictures) if inputs.cameras else None


def check(settings: Any, encoder: str, field: str) -> tuple[int, str]:
    """Refuses pictures that an encoder cannot look at.

    Args:
        settings: with `depth` and `cameras`, as of `plain`
        encoder: its name
        field: where it was named

    Returns:
        The side in pixels of a depth picture that takes as much memory as all pictures, and the
        field that says so.

    Raises:
        UserError: one is too small, or the encoder looks at none.
    """
    if settings.cameras is None:
        check_depth(encoder, (settings.depth,) * 2)
        return settings.depth, "depth"
    if encoder == "state":
        raise UserError(f"cameras: {field}=state looks at no picture; nearest: {field}=resnet18")
    sizes: dict[str, Sides] = cameras.parse(settings.cameras)
    for name, sides in sizes.items():
        check_depth(encoder, sides, f"cameras: {name}")
    return math.isqrt(bytes_of(sizes) // _NUMBER), "cameras"
