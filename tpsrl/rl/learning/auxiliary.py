"""Auxiliary losses: what a policy's features have to tell besides what to do.

A loss is a module with parameters of its own, which training needs and acting does not. It is
registered by `register_auxiliary`, at the import of the module that defines it:
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
LOSSES: Mapping[str, type[nn.Module]] = {"state": StateHead, "cpca": CPCA}  # in the box
_COEFFICIENT = "coefficient"  # attribute of a class: weight of the loss unless settings have one

_MODULES = UserModules("auxiliary_modules", VARIABLE, "auxiliary loss")
_registered: dict[str, type[nn.Module]] = {}


@dataclasses.dataclass(frozen=True, slots=True)
class Auxiliary:
    """A loss and its weight; `prefix` stands before the names of its parameters."""

    name: str
    loss: nn.Module
    coefficient: float

    @property
    def prefix(self) -> str:
        """See above."""
        return f"{self.name}_head."

    def parameters(self) -> dict[str, nn.Parameter]:
        """Those of the loss by name, prefix included."""
        return {f"{self.prefix}{name}": p for name, p in self.loss.named_parameters()}

    def state_dict(self) -> dict[str, torch.Tensor]:
        """What the loss goes on with by name, prefix included."""
        return {f"{self.prefix}{name}": t for name, t in self.loss.state_dict().items()}

    def load_state_dict(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Goes on from the tensors of `state_dict`, by name without prefix."""
        self.loss.load_state_dict(tensors)


def register_auxiliary(name: str, kind: type[nn.Module]) -> None:
    """Makes an auxiliary loss of one's own known, as `preset.ppo.auxiliary=NAME`.

    Args:
        name: as it is called in settings: lower case, underscores
        kind: a class made by (`FeatureSizes`), whose forward takes a `FeatureBatch`
            (`tpsrl.rl.learning.feature_batch`) to a loss (); its attribute `coefficient` is the
            weight of the loss unless `auxiliary_coef` is given

    Raises:
        UserError: another loss has the name, the name is not valid, or `kind` is not such a class.
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
    # A script that is run and a module that is imported may be the same file.
    again = other is not None and other.__qualname__ == kind.__qualname__
    if name in LOSSES or (other is not None and not again):
        raise UserError(f"auxiliary: '{name}' is registered already")
    _registered[name] = kind


def unregister_auxiliary(name: str) -> None:
    """Forgets a loss that is not in the box."""
    _registered.pop(name, None)


def auxiliary_names() -> tuple[str, ...]:
    """The names of all auxiliary losses: those in the box, then others by their names."""
    return (*LOSSES, *sorted(_registered))


def check_auxiliary(name: str, field: str = "auxiliary") -> None:
    """Refuses a name that no auxiliary loss has; `field` is where it was given.

    Raises:
        UserError: names the nearest, and how one's own is made known.
    """
    known = auxiliary_names()
    if name not in known:
        own = "auxiliary_modules=FILE_OR_MODULE makes one of your own known"
        raise UserError(f"{unknown(field, name, known)}; {own}")


def load_modules(names: str) -> str:
    """Imports modules that register auxiliary losses.

    Args:
        names: as `tpsrl.runtime.user_modules.UserModules.load` takes them

    Returns:
        The same with whole paths, good from any directory.

    Raises:
        UserError: one cannot be imported, or registers no auxiliary loss.
    """
    return _MODULES.load(names, lambda: {n: kind.__module__ for n, kind in _registered.items()})


def make_auxiliary(name: str, sizes: FeatureSizes, coefficient: float | None) -> Auxiliary:
    """A new loss with this name, for a policy of these sizes.

    `coefficient` is its weight; None: that of its class.

    Raises:
        UserError: no loss has this name, or it does not fit the policy.
    """
    check_auxiliary(name)
    kind = _registered.get(name) or LOSSES[name]
    usual: float = getattr(kind, _COEFFICIENT)
    return Auxiliary(name, kind(sizes), usual if coefficient is None else coefficient)
