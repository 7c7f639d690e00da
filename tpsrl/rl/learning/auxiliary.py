"""Auxiliary losses: losses on a policy's features that are added to PPO's.

A loss is a module with its own parameters, which are needed for training but not for acting.
`register_auxiliary` registers a loss when the module that defines it is imported:
`auxiliary_modules=FILE_OR_MODULE` on the command line.
"""

import dataclasses
from collections.abc import Mapping

import torch
from torch import nn

from tpsrl.errors import UserError, unknown
from tpsrl.rl.learning.cpca import CPCA
from tpsrl.rl.learning.feature_batch import FeatureSizes
from tpsrl.rl.learning.state_head import StateHead
from tpsrl.runtime.user_modules import UserModules

VARIABLE = "TPSRL_AUXILIARY_MODULES"
LOSSES: Mapping[str, type[nn.Module]] = {"state": StateHead, "cpca": CPCA}  # built in
_COEFFICIENT = "coefficient"  # class attribute: default weight of the loss

_MODULES = UserModules("auxiliary_modules", VARIABLE, "auxiliary loss")
_registered: dict[str, type[nn.Module]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Auxiliary:
    """An auxiliary loss and its weight."""

    name: str
    loss: nn.Module
    coefficient: float

    @property
    def prefix(self) -> str:
        """Prefix of the names of the loss's parameters in checkpoints."""
        return f"{self.name}_head."

    def parameters(self) -> dict[str, nn.Parameter]:
        """Returns the loss's parameters by name, prefix included."""
        return {f"{self.prefix}{name}": p for name, p in self.loss.named_parameters()}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Returns the loss's parameters and buffers by name, prefix included."""
        return {f"{self.prefix}{name}": t for name, t in self.loss.state_dict().items()}

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restores the tensors of `state_dict`, by name without prefix."""
        self.loss.load_state_dict(tensors)


def register_auxiliary(name: str, kind: type[nn.Module]) -> None:
    """Registers a custom auxiliary loss, selected by `preset.ppo.auxiliary=NAME`.

    Args:
        name: name in settings: lower case, underscores
        kind: a class whose constructor takes (`FeatureSizes`) and whose forward takes a
            `FeatureBatch` (`tpsrl.rl.learning.feature_batch`) and returns a loss (); its attribute
            `coefficient` is the weight of the loss unless `auxiliary_coef` is given

    Raises:
        UserError: the name is taken or not valid, `kind` is not a subclass of `nn.Module`, or its
            `coefficient` is not a float above 0.
    """
    if not name.isidentifier() or name != name.lower():
        raise UserError(f"auxiliary: '{name}' is not a valid name; use lower case and underscores")
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise UserError(f"auxiliary {name}: {kind!r} is not a subclass of torch.nn.Module")
    coefficient = getattr(kind, _COEFFICIENT, None)
    if not isinstance(coefficient, float) or not coefficient > 0.0:
        raise UserError(
            f"auxiliary {name}: {kind.__name__}.{_COEFFICIENT} must be a float above 0, got "
            f"{coefficient!r}"
        )
    other = _registered.get(name)
    # One file may be both run as a script and imported as a module.
    again = other is not None and other.__qualname__ == kind.__qualname__
    if name in LOSSES or (other is not None and not again):
        raise UserError(f"auxiliary: '{name}' is registered already")
    _registered[name] = kind


def unregister_auxiliary(name: str) -> None:
    """Removes a custom loss from the registry."""
    _registered.pop(name, None)


def auxiliary_names() -> tuple[str, ...]:
    """Returns the names of all auxiliary losses: built-in ones, then custom ones, sorted."""
    return (*LOSSES, *sorted(_registered))


def check_auxiliary(name: str, field: str = "auxiliary") -> None:
    """Checks that an auxiliary loss is registered.

    Args:
        name: name of the loss
        field: setting in which the name was given, for the error

    Raises:
        UserError: the name is unknown; the message has the nearest name and how to register a loss.
    """
    known = auxiliary_names()
    if name not in known:
        own = "register your own losses with auxiliary_modules=FILE_OR_MODULE"
        raise UserError(f"{unknown(field, name, known)}; {own}")


def load_modules(names: str) -> str:
    """Imports modules that register auxiliary losses.

    Args:
        names: see `tpsrl.runtime.user_modules.UserModules.load`

    Returns:
        The names, with paths made absolute.

    Raises:
        UserError: a module cannot be imported or registers no auxiliary loss.
    """
    return _MODULES.load(names, lambda: {n: kind.__module__ for n, kind in _registered.items()})


def make_auxiliary(name: str, sizes: FeatureSizes, coefficient: float | None) -> Auxiliary:
    """Creates an auxiliary loss for a policy.

    Args:
        name: name of the loss
        sizes: sizes of the policy's features
        coefficient: weight of the loss; None: the default of its class

    Raises:
        UserError: the name is unknown, or the loss does not fit the policy.
    """
    check_auxiliary(name)
    kind = _registered.get(name) or LOSSES[name]
    usual: float = getattr(kind, _COEFFICIENT)
    return Auxiliary(name, kind(sizes), usual if coefficient is None else coefficient)
