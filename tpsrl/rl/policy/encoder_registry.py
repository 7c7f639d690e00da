"""Registry of encoders: built-in ones, and custom ones from the user's modules.

`register_encoder` registers an encoder when the module that defines it is imported:
`encoder_modules=FILE_OR_MODULE` on the command line.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from tpsrl.errors import UserError, unknown
from tpsrl.rl.policy import timm_encoder
from tpsrl.rl.policy.bottleneck import ResNet50, SeResNeXt50, SeResNeXt101
from tpsrl.rl.policy.encoders import NatureCNN, ResNet18, SeResNet9
from tpsrl.rl.policy.habitat_resnet import HabitatResNet18
from tpsrl.rl.policy.settings import TIMM, check_depth
from tpsrl.runtime.user_modules import UserModules

VARIABLE = "TPSRL_ENCODER_MODULES"

# Built-in encoders by name; "state" uses no images.
ENCODERS: Mapping[str, Callable[[int, Sequence[int], int], nn.Module] | None] = {
    "resnet18": ResNet18,
    "se_resnet9": SeResNet9,
    "nature_cnn": NatureCNN,
    "resnet50": ResNet50,
    "se_resnext50": SeResNeXt50,
    "se_resnext101": SeResNeXt101,
    "habitat_resnet18": HabitatResNet18,
    "state": None,
}

_MODULES = UserModules("encoder_modules", VARIABLE, "encoder")
_registered: dict[str, type[nn.Module]] = {}
_state = {"found": False}


def register_encoder(name: str, kind: type[nn.Module]) -> None:
    """Registers a custom encoder, selected by `preset.policy.encoder=NAME`.

    Args:
        name: name in settings and checkpoints: lower case, underscores
        kind: a class whose constructor takes (`encoder_width`, (height, width) of the image in
            pixels, `visual_width`) and whose forward takes depth (n, height, width) float32 in [0,
            1] to (n, `visual_width`), each image independently of the others; for several images,
            the constructor gets (channels, height, width) and forward takes normalised (n,
            channels, height, width)

    Raises:
        UserError: the name is taken or not valid, or `kind` is not a subclass of `nn.Module`.
    """
    if not name.isidentifier() or name != name.lower():
        raise UserError(f"encoder: '{name}' is not a valid name; use lower case and underscores")
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise UserError(f"encoder {name}: {kind!r} is not a subclass of torch.nn.Module")
    _find()
    other = _registered.get(name)
    # One file may be both run as a script and imported as a module.
    again = other is not None and other.__qualname__ == kind.__qualname__
    if name in ENCODERS or (other is not None and not again):
        raise UserError(f"encoder: '{name}' is registered already")
    _registered[name] = kind


def unregister_encoder(name: str) -> None:
    """Removes a custom encoder from the registry."""
    _registered.pop(name, None)


def encoder_names() -> tuple[str, ...]:
    """Returns the names of all encoders: built-in ones, then custom ones, sorted."""
    _find()
    return (*ENCODERS, *sorted(_registered))


def check_encoder(name: str, field: str = "encoder") -> None:
    """Checks that an encoder is registered.

    Args:
        name: name of the encoder
        field: setting in which the name was given, for the error

    Raises:
        UserError: the name is unknown; the message has the nearest name and how to register one.
            `timm:NAME` needs timm.
    """
    if name.startswith(TIMM):
        timm_encoder.check(name, field)
        return
    known = encoder_names()
    if name not in known:
        own = "register your own encoders with encoder_modules=FILE_OR_MODULE"
        raise UserError(f"{unknown(field, name, known)}; {own}")


def encoder_module(name: str) -> str | None:
    """Returns the entry of `encoder_modules` that registers an encoder; None for built-in ones."""
    kind = _registered.get(name)
    if kind is None:
        return None
    module = kind.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    # A module of a package is imported by name, any other by its file.
    return os.path.abspath(file) if file and "." not in module else module


def load_modules(names: str) -> str:
    """Imports modules that register encoders, here and in all worker processes started later.

    Args:
        names: see `tpsrl.runtime.user_modules.UserModules.load`

    Returns:
        The names, with paths made absolute.

    Raises:
        UserError: a module cannot be imported or registers no encoder.
    """
    _find()
    return _MODULES.load(names, _modules)


def make_encoder(
    name: str, width: int, shapes: dict[str, tuple[int, ...]], size: int
) -> nn.Module | None:
    """Creates an encoder of "depth" (n, H, W) -> (n, size); returns None for "state".

    Args:
        name: name of the encoder
        width: number of channels of the first stage
        shapes: shapes of the observations by name, without batch axis
        size: size of the output vector

    Raises:
        UserError: the name is unknown, there is no depth image or it is too small, or the outputs
            of a custom encoder violate its contract.
    """
    check_encoder(name)
    if name == "state":
        return None
    if "depth" not in shapes:
        raise UserError(f"encoder: '{name}' needs a depth image, and there is none; use 'state'")
    kind = _registered.get(name) or ENCODERS[name]
    assert kind is not None
    shape = shapes["depth"]
    check_depth(name, shape)
    made = kind(width, (shape[0], shape[1]), size)
    if name in _registered:
        _check_vectors(name, made, (shape[0], shape[1]), size)
    return made


def encode_channels(name: str, width: int, shape: tuple[int, int, int], size: int) -> nn.Module:
    """Creates an encoder of images (n, channels, H, W) -> (n, size), any but "state".

    A network of timm has a vector of its own `size` instead.

    Args:
        name: name of the encoder
        width: number of channels of the first stage
        shape: (channels, height, width)
        size: size of the output vector

    Raises:
        UserError: see `make_encoder`; also if a custom encoder accepts depth only.
    """
    check_depth(name, shape[1:])
    if name.startswith(TIMM):
        return timm_encoder.TimmEncoder(name.removeprefix(TIMM), shape)
    kind = _registered.get(name) or ENCODERS[name]
    assert kind is not None
    if name not in _registered:
        return kind(width, shape, size)
    try:
        made = kind(width, shape, size)
        _check_vectors(name, made, shape, size)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"encoder {name}: cannot process {shape[0]} channels ({type(error).__name__}); for "
            "several images its constructor must accept (width, (channels, height, width), size); "
            f"nearest: cameras=head_depth:{shape[1]}"
        ) from None
    return made


def _find() -> None:
    """Imports the encoder modules that the parent process has loaded."""
    if not _state["found"]:
        _state["found"] = True  # imported modules call this function again
        try:
            _MODULES.load_passed_on()
        except BaseException:
            _state["found"] = False
            raise


def _modules() -> dict[str, str]:
    """Returns the module name of each custom encoder's class, by name of the encoder."""
    return {name: kind.__module__ for name, kind in _registered.items()}


def _check_vectors(name: str, encoder: nn.Module, shape: Sequence[int], size: int) -> None:
    """Checks an encoder on three images, since a violated contract would show late or never."""
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        vectors, fewer = encoder(images), encoder(images[:2])
    if vectors.shape != (3, size):
        given = tuple(vectors.shape)
        raise UserError(f"encoder {name}: returns {given} for 3 images, must return {(3, size)}")
    if not torch.allclose(vectors[:2], fewer, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise UserError(
            f"encoder {name}: the vector of an image depends on the other images of the batch, or "
            "on chance; do not use batch normalisation or dropout"
        )
