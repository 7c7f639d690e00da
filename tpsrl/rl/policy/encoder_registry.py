"""Encoders by name: those in the box, and those that modules of a user's own register.

An encoder is registered by `register_encoder`, at the import of the module that defines it:
`encoder_modules=FILE_OR_MODULE` on the command line.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn

from tpsrl.errors import UserError, unknown
from tpsrl.rl.policy.bottleneck import ResNet50, SeResNeXt50, SeResNeXt101
from tpsrl.rl.policy.encoders import NatureCNN, ResNet18, SeResNet9
from tpsrl.rl.policy.habitat_resnet import HabitatResNet18
from tpsrl.rl.policy.settings import check_depth
from tpsrl.runtime.user_modules import UserModules

VARIABLE = "TPSRL_ENCODER_MODULES"

# In the box, by name; "state" looks at nothing but the vector of the observation.
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
    """Makes an encoder of one's own known, as `preset.policy.encoder=NAME`.

    Args:
        name: as it is called in settings and checkpoints: lower case, underscores
        kind: a class made by (`encoder_width`, (height, width) of the image in pixels,
            `visual_width`), whose forward takes depth (n, height, width) float32 in [0, 1] to
            (n, `visual_width`), each image by itself; for several pictures it is made by
            (channels, height, width) and takes (n, channels, height, width), normalised

    Raises:
        UserError: another encoder has the name, it is no name, or `kind` is no class of modules.
    """
    if not name.isidentifier() or name != name.lower():
        raise UserError(f"encoder: '{name}' is not a valid name; use lower case and underscores")
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise UserError(f"encoder {name}: {kind!r} is not a subclass of torch.nn.Module")
    _find()
    other = _registered.get(name)
    # A script that is run and a module that is imported may be the same file.
    again = other is not None and other.__qualname__ == kind.__qualname__
    if name in ENCODERS or (other is not None and not again):
        raise UserError(f"encoder: '{name}' is registered already")
    _registered[name] = kind


def unregister_encoder(name: str) -> None:
    """Forgets an encoder that is not in the box."""
    _registered.pop(name, None)


def encoder_names() -> tuple[str, ...]:
    """The names of all encoders: those in the box, then others by their names."""
    _find()
    return (*ENCODERS, *sorted(_registered))


def check_encoder(name: str, field: str = "encoder") -> None:
    """Refuses a name that no encoder has; `field` is where it was given.

    Raises:
        UserError: names the nearest, and how one's own is made known.
    """
    known = encoder_names()
    if name not in known:
        own = "encoder_modules=FILE_OR_MODULE makes one of your own known"
        raise UserError(f"{unknown(field, name, known)}; {own}")


def encoder_module(name: str) -> str | None:
    """What `encoder_modules` has to name for an encoder to be known; None for those in the box."""
    kind = _registered.get(name)
    if kind is None:
        return None
    module = kind.__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    # A module of a package is found by its name, any other by its file.
    return os.path.abspath(file) if file and "." not in module else module


def load_modules(names: str) -> str:
    """Imports modules that register encoders, here and in every worker process from now on.

    Args:
        names: as `tpsrl.runtime.user_modules.UserModules.load` takes them

    Returns:
        The same with whole paths, good from any directory.

    Raises:
        UserError: one cannot be imported, or registers no encoder.
    """
    _find()
    return _MODULES.load(names, _modules)


def make_encoder(
    name: str, width: int, shapes: dict[str, tuple[int, ...]], size: int
) -> nn.Module | None:
    """The encoder of "depth" (n, H, W) -> (n, size), or None for "state".

    `shapes` are the observation's, without batch axis; `width` is the number of channels of the
    first stage.

    Raises:
        UserError: no encoder has this name, or there is no depth image, or it is too small, or what
            a registered one makes of images is not what an encoder has to make.
    """
    check_encoder(name)
    kind = _registered.get(name) or ENCODERS[name]
    if kind is None:
        return None
    if "depth" not in shapes:
        raise UserError(f"encoder: '{name}' needs a depth image, and there is none; use 'state'")
    shape = shapes["depth"]
    check_depth(name, shape)
    made = kind(width, (shape[0], shape[1]), size)
    if name in _registered:
        _check_vectors(name, made, (shape[0], shape[1]), size)
    return made


def encode_channels(name: str, width: int, shape: tuple[int, int, int], size: int) -> nn.Module:
    """An encoder of pictures (n, channels, H, W) -> (n, size), any but "state".

    `shape` is (channels, height, width).

    Raises:
        UserError: see `make_encoder`; a registered encoder takes depth alone.
    """
    kind = _registered.get(name) or ENCODERS[name]
    assert kind is not None
    check_depth(name, shape[1:])
    if name not in _registered:
        return kind(width, shape, size)
    try:
        made = kind(width, shape, size)
        _check_vectors(name, made, shape, size)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"encoder {name}: cannot look at {shape[0]} channels ({type(error).__name__}); it is "
            "made by (width, (channels, height, width), size) for several pictures; nearest: "
            f"cameras=head_depth:{shape[1]}"
        ) from None
    return made


def _find() -> None:
    """Imports the modules that the process that started this one has loaded."""
    if not _state["found"]:
        _state["found"] = True  # what is imported comes here again
        try:
            _MODULES.load_passed_on()
        except BaseException:
            _state["found"] = False
            raise


def _modules() -> dict[str, str]:
    """The modules that the classes of registered encoders are from, by the encoders' names."""
    return {name: kind.__module__ for name, kind in _registered.items()}


def _check_vectors(name: str, encoder: nn.Module, shape: Sequence[int], size: int) -> None:
    """Tries an encoder on three images: what breaks the contract would show late, or never."""
    images = torch.rand(3, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        vectors, fewer = encoder(images), encoder(images[:2])
    if vectors.shape != (3, size):
        given = tuple(vectors.shape)
        raise UserError(f"encoder {name}: makes {given} of 3 images, must make {(3, size)}")
    if not torch.allclose(vectors[:2], fewer, rtol=1e-3, atol=1e-4, equal_nan=True):
        raise UserError(
            f"encoder {name}: makes another vector of an image when other images are beside it, or "
            "by chance; do without batch normalisation and dropout"
        )
