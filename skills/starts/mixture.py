"""Mixtures of start states, as they are asked for: `own:0.5,bank:DIR/navigate:0.5`.

Parts are separated by commas. A part is `own`, the skill's own distribution, or `rearranged`, the
same in training apartments with fridge and furniture elsewhere (`tpsrl.world.rearranging`), or
`near:METRES`, the skill's own with the robot anywhere within that distance, or `bank:DIR/SKILL`,
the exit states that a bank has of another skill, or with `bank:DIR/SKILL:succeeded` or `:failed`
those in which that one had succeeded or failed, or `along:DIR`, states within recorded runs of the
skill itself (`tpsrl demos SKILL states=N`), likewise of all runs or of those that had succeeded or
failed. A number after another colon is the part's weight.

`PART@RECEPTACLE`, such as `own@fridge`, is what of a part is about that receptacle: the one where
the object lies, or the one that it is to be put on or into.
"""

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from skills.starts.bank import ONLY, Only
from tpsrl.errors import UserError, unknown
from tpsrl.runtime import files

OWN, REARRANGED, NEAR, BANK, ALONG = "own", "rearranged", "near", "bank", "along"

_FORMS = (OWN, REARRANGED, f"{NEAR}:METRES", f"{BANK}:DIR/SKILL", f"{ALONG}:DIR")
_FARTHEST_M = 50.0
_HEAVIEST = 1e9


@dataclasses.dataclass(frozen=True, slots=True)
class StartShare:
    """A part of a mixture, and its weight, as it was given; 1 where none was.

    `folder` is that of the exit states of a skill, or with `along` that of recorded runs of the
    skill itself; None: the skill's own distribution, of which
    `within` is how many metres away the robot is at most; None: what the skill has itself.
    `rearranged` is that distribution in rearranged apartments. `receptacle` is the one that starts
    are about, "": any.
    """

    folder: Path | None = None
    along: bool = False
    only: Only = "all"
    within: float | None = None
    rearranged: bool = False
    weight: float = 1.0
    receptacle: str = ""


def is_mixture(starts: Any) -> bool:
    """Whether an option `starts` is meant as a mixture, which has one part or several."""
    if not isinstance(starts, str) or os.path.exists(starts):  # false for what cannot be a path
        return False
    return starts in (OWN, REARRANGED) or bool(set(":,@") & set(starts))


def parse(text: str) -> list[StartShare]:
    """The parts of a mixture.

    Raises:
        UserError: it does not read so, or the weights are not positive numbers of all parts.
    """
    read = [_part(part.strip()) for part in text.split(",")]
    weights = [weight for _, weight in read]
    given = [weight for weight in weights if weight is not None]
    if given and len(given) < len(read):
        raise UserError(f"starts: '{text}': give each part a weight (PART:0.5), or none")
    parts = [part for part, _ in read]
    if len(set(parts)) < len(parts):
        raise UserError(f"starts: '{text}': a part is repeated; add up its weights")
    return [
        dataclasses.replace(part, weight=1.0 if weight is None else weight) for part, weight in read
    ]


def proportions(shares: Sequence[StartShare]) -> list[float]:
    """How much of the starts each part has; they sum to 1."""
    total = math.fsum(share.weight for share in shares)
    return [share.weight / total for share in shares]


def whole_paths(text: str) -> str:
    """A mixture whose folders have their whole paths, so that it holds wherever it is read.

    Raises:
        UserError: see `parse`; or a path has a comma or a colon, which would not read.
    """
    return ",".join(map(text_of, parse(text)))


def split(count: int, proportions: Sequence[float]) -> list[int]:
    """So many things shared out in proportion: the largest remainders are rounded up."""
    exact = [count * proportion for proportion in proportions]
    numbers = [math.floor(share) for share in exact]
    left = sorted(range(len(exact)), key=lambda part: numbers[part] - exact[part])
    for part in left[: count - sum(numbers)]:
        numbers[part] += 1
    return numbers


def label(share: StartShare) -> str:
    """A part as it is asked for, without its weight."""
    return text_of(share).rpartition(":")[0]


def text_of(share: StartShare) -> str:
    """A part as it is asked for, with its whole path."""
    about = f"@{share.receptacle}" if share.receptacle else ""
    if share.within is not None:
        return f"{NEAR}:{share.within!r}{about}:{share.weight!r}"
    if share.folder is None:
        return f"{REARRANGED if share.rearranged else OWN}{about}:{share.weight!r}"
    folder = os.path.abspath(files.user_path(share.folder, "starts"))
    if set(",:@") & set(folder):
        raise UserError(f"starts: the path {folder} has one of , : @; move the folder")
    return f"{ALONG if share.along else BANK}:{folder}:{share.only}{about}:{share.weight!r}"


def _part(text: str) -> tuple[StartShare, float | None]:
    """A part and its weight, if it has one; words are taken off its end while they are such."""
    about, receptacle = text, ""
    if "@" in text:
        about, _, end = text.partition("@")
        receptacle, colon, weight_of = (word.strip() for word in end.partition(":"))
        if not receptacle:
            raise UserError(f"starts: '{text}': no receptacle is named; such as {OWN}@fridge")
        about += colon + weight_of
    words = [word.strip() for word in about.split(":")]
    kind, rest = words[0], words[1:]
    if kind not in (OWN, REARRANGED, NEAR, BANK, ALONG):
        raise unknown("starts", text, _FORMS)
    within = _metres(text, rest) if kind == NEAR else None
    weight: float | None = None
    if rest and _is_number(rest[-1]):
        weight = float(rest.pop())
        if not 0.0 < weight <= _HEAVIEST:
            raise UserError(
                f"starts: '{text}': the weight must be above 0 and at most {_HEAVIEST:g}"
            )
    if kind not in (BANK, ALONG):
        if rest:
            raise UserError(
                f"starts: '{text}': '{rest[0]}' is not a weight; try {OWN}:0.5, {NEAR}:4:0.5"
            )
        rearranged = kind == REARRANGED
        return StartShare(within=within, rearranged=rearranged, receptacle=receptacle), weight
    only: Only = "all"
    if len(rest) > 1:
        word = rest.pop()
        if word not in ONLY:
            raise unknown(f"starts: '{text}'", word, (*ONLY, "0.5"))
        only = next(known for known in ONLY if known == word)
    folder = ":".join(rest)
    if not folder:
        such = f"{ALONG}:DIR" if kind == ALONG else f"{BANK}:DIR/SKILL"
        raise UserError(f"starts: '{text}': no folder is named; such as {such}")
    return StartShare(Path(folder), kind == ALONG, only, receptacle=receptacle), weight


def _metres(text: str, words: list[str]) -> float:
    """The distance that stands first, which is taken away."""
    metres = float(words.pop(0)) if words and _is_number(words[0]) else math.nan
    if not 0.0 < metres <= _FARTHEST_M:
        raise UserError(
            f"starts: '{text}': metres must be above 0 and at most {_FARTHEST_M:g}, "
            f"such as {NEAR}:4"
        )
    return metres


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
