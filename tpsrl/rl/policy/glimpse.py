"""Glimpse: a cut-out of the head's depth image around one point, at full resolution.

The whole image is seen at half its resolution, as by an eye outside its fovea. Depth in the cut-out
is relative to the point's, so that objects beside the point and the surface behind it stand out.
The point is the sensor of `skills.core.sensors.GAZES` that the policy observes.
"""

import torch
from torch.nn import functional

from tpsrl.errors import UserError
from tpsrl.rl.envs.pictures import DEPTH, pictures_of
from tpsrl.rl.envs.vec_env import EnvSpec

SIZE = 64  # of the encoded cut-out
_RANGE_M = 0.25  # from the point, at which relative depth is 1 or -1


def check(spec: EnvSpec, side: int) -> None:
    """Checks that a policy can have a glimpse of `side` pixels.

    Raises:
        UserError: the state lacks the point's place in the image, there is no head depth, or its
            sides are odd or shorter than the glimpse.
    """
    first, behind = spec.gaze
    if behind - first != 3:
        raise UserError("glimpse: the sensors lack a point in the image; use sensors=gaze")
    if pictures_of(spec.observations) != (DEPTH,):
        raise UserError("glimpse: needs head depth and no other picture; nearest: 0")
    shape = spec.observations[DEPTH]
    if min(shape) < side or any(n % 2 for n in shape):
        sides = " x ".join(map(str, shape))
        raise UserError(
            f"glimpse: {side} needs even sides of at least {side} of depth, got {sides}"
        )


def whole(depth: torch.Tensor) -> torch.Tensor:
    """Halves the resolution of images (n, H, W) by averaging."""
    return functional.avg_pool2d(depth.unsqueeze(1), 2).squeeze(1)


def cut_out(depth: torch.Tensor, gaze: torch.Tensor, side: int, far: float) -> torch.Tensor:
    """Cuts out the surroundings of a point, within the image.

    Args:
        depth: (n, H, W) in [0, 1]
        gaze: (n, 3) the point's place: right and down, in [-1, 1] between the image's edges; its
            distance along the camera's axis in metres
        side: of the cut-out, pixels
        far: distance in metres at which depth is 1

    Returns:
        (n, 1, side, side) in [-1, 1], depth relative to the point's.
    """
    count, height, width = depth.shape
    places = torch.arange(side, device=depth.device)
    rows = _first(gaze[:, 1], height, side)[:, None] + places
    columns = _first(gaze[:, 0], width, side)[:, None] + places
    lines = torch.arange(count, device=depth.device)[:, None, None]
    cut = depth[lines, rows[:, :, None], columns[:, None, :]]
    beyond = cut * far - gaze[:, 2, None, None]
    return (beyond / _RANGE_M).clamp(-1.0, 1.0).unsqueeze(1)


def _first(place: torch.Tensor, pixels: int, side: int) -> torch.Tensor:
    """Returns the first row or column (n,) of cut-outs around places (n,) in [-1, 1]."""
    first = ((place + 1.0) * (0.5 * pixels) - 0.5 * side).round().long()
    return first.clamp(0, pixels - side)
