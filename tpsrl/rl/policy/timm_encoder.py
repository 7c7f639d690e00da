"""Encoders from the package timm, pretrained or not: `encoder=timm:NAME`.

timm has some thousand image networks with weights of ImageNet, CLIP, DINO and others. Weights are
read from a local file, once, when a training begins; checkpoints contain them afterwards.
"""

import functools
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tpsrl.errors import UserError, unknown
from tpsrl.rl.policy.settings import TIMM


class TimmEncoder(nn.Module):
    """A timm network without its classification layer; `size` is the length of its vector.

    Normalisation layers use their stored statistics and dropout is off, since the vector of an
    image must not depend on other images or on chance.
    """

    def __init__(self, name: str, shape: Sequence[int]) -> None:
        """Creates the network with random weights.

        Args:
            name: name of the network in timm, without `TIMM`
            shape: (channels, height, width) of the images

        Raises:
            UserError: timm cannot be imported, or the network does not take such images.
        """
        super().__init__()
        self.name, self.shape = name, tuple(shape)
        self.body = _create(name, self.shape)
        self.size = _width(self.body, name, self.shape)
        self.eval()

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Images (n, channels, height, width), normalised -> (n, size)."""
        vector: torch.Tensor = self.body(pictures)
        return vector

    def train(self, mode: bool = True) -> "TimmEncoder":
        """Stays in evaluation mode."""
        return super().train(False)


def package() -> Any:
    """Imports timm.

    Raises:
        UserError: it is not installed, or cannot be imported.
    """
    try:
        import timm
    except ModuleNotFoundError as error:
        if error.name != "timm":
            raise
        raise UserError("encoder: timm is not installed; pip install tpsrl[timm]") from None
    except Exception as error:  # torchvision of another torch, for example
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"encoder: timm cannot be imported ({first})") from None
    return timm


@functools.cache
def check(name: str, field: str = "encoder") -> None:
    """Checks that timm has a network, named `timm:NAME`.

    Raises:
        UserError: timm is missing, or the name is unknown (names the nearest).
    """
    architecture = name.removeprefix(TIMM).partition(".")[0]
    known = package().list_models()
    if architecture not in known:
        raise unknown(field, name, [TIMM + each for each in known])


def load_weights(encoder: TimmEncoder, path: Path) -> None:
    """Loads pretrained weights into an encoder.

    The first convolution is adapted to the number of channels as timm does it: summed over colours
    for one channel, repeated for more than three.

    Args:
        encoder: the encoder
        path: a file of weights, .safetensors or one of torch

    Raises:
        UserError: the file cannot be read, or has the weights of another network.
    """
    weights = _read(path)
    try:
        made = package().create_model(
            encoder.name,
            pretrained=True,
            pretrained_cfg_overlay={"state_dict": weights},
            num_classes=0,
            in_chans=encoder.shape[0],
            **_size(encoder.name, encoder.shape),
        )
    except (RuntimeError, KeyError, ValueError) as error:
        first = " ".join(str(error).split())[:160]
        raise UserError(
            f"encoder_weights: {path} has no weights of {encoder.name} ({first})"
        ) from None
    encoder.body.load_state_dict(made.state_dict())


def statistics(encoder: TimmEncoder) -> tuple[list[float], list[float]]:
    """Returns mean and standard deviation of each colour (3,) in the network's pretraining."""
    about: Mapping[str, Any] = getattr(encoder.body, "pretrained_cfg", None) or {}
    mean, std = about.get("mean"), about.get("std")
    # Those of ImageNet, which timm's networks have by default.
    return list(mean or (0.485, 0.456, 0.406)), list(std or (0.229, 0.224, 0.225))


def _create(name: str, shape: Sequence[int]) -> Any:
    """Creates a network without classification layer for images (channels, height, width)."""
    timm = package()
    options = _size(name, shape)
    try:
        return timm.create_model(
            name, pretrained=False, num_classes=0, in_chans=shape[0], **options
        )
    except (RuntimeError, TypeError, ValueError, AssertionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        sides = f"{shape[1]} x {shape[2]}"
        raise UserError(f"encoder: {TIMM}{name} does not take {sides} images ({first})") from None


@functools.cache
def takes_size(name: str) -> bool:
    """Returns whether a network is made for one size of images, as transformers are."""
    with torch.device("meta"):
        try:
            package().create_model(name, pretrained=False, num_classes=0, img_size=(224, 224))
        except TypeError:
            return False
    return True


def _size(name: str, shape: Sequence[int]) -> dict[str, Any]:
    return {"img_size": tuple(shape[1:])} if takes_size(name) else {}


def _width(body: nn.Module, name: str, shape: Sequence[int]) -> int:
    """Returns the length of a network's output, which must be one vector an image."""
    device = next(body.parameters()).device
    try:
        with torch.no_grad():
            out = body.eval()(torch.zeros(1, *shape, device=device))
    except (RuntimeError, AssertionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        sides = f"{shape[1]} x {shape[2]}"
        raise UserError(f"encoder: {TIMM}{name} does not take {sides} images ({first})") from None
    if out.ndim != 2:
        raise UserError(f"encoder: {TIMM}{name} has no vector as output, but {tuple(out.shape)}")
    return int(out.shape[1])


def _read(path: Path) -> dict[str, torch.Tensor]:
    """Reads weights by name from a local file; no code in it is run."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise UserError(f"encoder_weights: cannot read {path} ({error.strerror})") from None
    except (SafetensorError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UserError(f"encoder_weights: {path} is not a file of weights ({first})") from None
    for inner in ("state_dict", "model"):
        if isinstance(found, dict) and isinstance(found.get(inner), dict):
            found = found[inner]
    tensors = isinstance(found, dict) and all(isinstance(t, torch.Tensor) for t in found.values())
    if not tensors or not found:
        raise UserError(f"encoder_weights: {path} holds no weights by name")
    return dict(found)
