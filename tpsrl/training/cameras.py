"""Camera images of a training, cloning or recording, set by `depth=` or `cameras=`."""

import dataclasses
import math
from typing import TYPE_CHECKING, Any, TypeVar, cast

from skills.core import cameras
from tpsrl.errors import UserError
from tpsrl.rl.policy.settings import check_depth
from tpsrl.world.cameras import COLOUR, HEAD_DEPTH, PICTURES, Sides, bytes_of, split

if TYPE_CHECKING:
    from skills.core.inputs import PolicyInputs
    from tpsrl.rl.envs.colours import ColourChanges

HELP = (
    "images and their sizes, instead of depth: any of depth, rgb, semantic, instance and category "
    "of head and hand, such as head_depth:64,hand_rgb:32"
)
RANDOM_COLOURS = ("colour_jitter", "colour_noise")  # settings, 0 for none
_NUMBER = 4  # bytes of a float32
_SIDE = 64  # usual side of an image, pixels

CameraSettings = TypeVar("CameraSettings")  # settings with `depth` and `cameras`


def plain(settings: CameraSettings) -> CameraSettings:
    """Returns the settings with `cameras` normalised, or None where `depth` is equivalent.

    Raises:
        UserError: see `skills.core.cameras.parse`.
    """
    given: Any = settings
    if given.cameras is None:
        return settings
    sizes = cameras.parse(given.cameras)
    changed: Any = dataclasses.replace(given, cameras=cameras.text(sizes))
    if list(sizes) == [HEAD_DEPTH] and len(set(sizes[HEAD_DEPTH])) == 1:
        changed = dataclasses.replace(given, cameras=None, depth=sizes[HEAD_DEPTH][0])
    return cast(CameraSettings, changed)


def as_options(settings: Any, looks: bool) -> dict[str, Any]:
    """Returns `depth` or `cameras` for `skills.envs.options.EnvKeywords`.

    `depth` is None if `looks` is false, that is, if the policy has no camera.
    """
    if settings.cameras is not None:
        return {"cameras": settings.cameras}
    return {"depth": settings.depth if looks else None}


def of_network(settings: Any, sensors: str | None, encoder: str) -> dict[str, Any]:
    """Returns the pictures of a policy, as `as_options` does.

    A network without images (`state`) has pictures if a map that its sensors need is built from
    them, and no sensor is privileged.

    Args:
        settings: settings with `skill`, `depth` and `cameras`
        sensors: choice of sensors
        encoder: name of the encoder
    """
    looks = encoder != "state" or bool(_mapped(settings, sensors))
    return as_options(settings, looks)


def _mapped(settings: Any, sensors: str | None) -> frozenset[str]:
    """Returns the pictures that a network without images needs for its sensors."""
    from skills.core.inputs import PolicyInputs

    inputs = PolicyInputs.of(settings.skill, sensors, **as_options(settings, True))
    # Runs for `sensors=teacher` are recorded, and labelled, without pictures.
    return frozenset() if inputs.privileged else inputs.mapped


def of_inputs(inputs: "PolicyInputs") -> str | None:
    """Returns the setting `cameras` for a policy's inputs; None if `depth` is sufficient."""
    return cameras.text(inputs.pictures) if inputs.cameras else None


def colour_changes(settings: Any) -> "ColourChanges":
    """Returns the random changes of colour pictures during training.

    Raises:
        UserError: changes are set, but no camera is in colour.
    """
    from tpsrl.rl.envs.colours import ColourChanges

    sizes = cameras.parse(settings.cameras) if settings.cameras else {}
    coloured = any(split(name)[1] == COLOUR for name in sizes)
    for key in RANDOM_COLOURS:
        if getattr(settings, key) > 0.0 and not coloured:
            raise UserError(f"{key}: no effect without a colour camera; try cameras=head_rgb:64")
    return ColourChanges(settings.colour_jitter, settings.colour_noise)


def check(settings: Any, sensors: str | None, encoder: str, field: str) -> tuple[int, str]:
    """Refuses images that an encoder cannot process.

    Args:
        settings: settings with `skill`, `depth` and `cameras`, as returned by `plain`
        sensors: choice of sensors
        encoder: name of the encoder
        field: field that names the encoder

    Returns:
        The side in pixels of a depth image that takes as much memory as all images, and the field
        that sets the images.

    Raises:
        UserError: an image is too small, or the encoder `state` is used with other cameras than
            those that the map of its sensors needs.
    """
    if settings.cameras is None:
        check_depth(encoder, (settings.depth,) * 2)
        return settings.depth, "depth"
    sizes: dict[str, Sides] = cameras.parse(settings.cameras)
    if encoder == "state":
        mapped = _mapped(settings, sensors)
        if not mapped:
            raise UserError(f"cameras: {field}=state uses no images; nearest: {field}=resnet18")
        if mapped != set(sizes):
            nearest = ",".join(f"{name}:{_SIDE}" for name in PICTURES if name in mapped)
            raise UserError(
                f"cameras: {field}=state uses images for the map of its sensors alone; "
                f"nearest: cameras={nearest}"
            )
    for name, sides in sizes.items():
        check_depth(encoder, sides, f"cameras: {name}")
    return math.isqrt(bytes_of(sizes) // _NUMBER), "cameras"
