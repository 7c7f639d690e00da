"""Mixtures of start states, parsed from text such as `own:0.5,bank:DIR/navigate:0.5`.

Parts are separated by commas:

- `own`: the skill's own distribution
- `rearranged`: the same in training apartments with fridge and furniture in other places
  (`tpsrl.world.rearranging`)
- `near:METRES`: the skill's own distribution with the robot anywhere within this distance
- `bank:DIR/SKILL`: the exit states of another skill in a bank; `bank:DIR/SKILL:succeeded` and
  `:failed` are those of its successful and failed runs
- `along:DIR`: states within recorded runs of the skill itself (`tpsrl demos SKILL states=N`), also
  with `:succeeded` or `:failed`

A number after a last colon is the weight of the part.

`PART@RECEPTACLE`, such as `own@fridge`, selects the start states of a part in which the object lies
in that receptacle or has to be put there.
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
    """Part of a mixture, with its weight, 1 if none was given.

    `folder` has the exit states of another skill, or with `along` the recorded runs of the skill
    itself; None stands for the skill's own distribution. `only` selects successful or failed runs.
    `within` is the maximum distance of the robot in metres in the skill's own distribution, None
    for the skill's default. `rearranged` is whether that distribution is in rearranged apartments.
    `receptacle` selects start states by receptacle, "" for any.
    """

    folder: Path | None = None
    along: bool = False
    only: Only = "all"
    within: float | None = None
    rearranged: bool = False
    weight: float = 1.0
    receptacle: str = ""


def is_mixture(starts: Any) -> bool:
    """Returns whether an option `starts` is the text of a mixture of one or more parts."""
    # `exists` is False for strings that are not valid paths.
    if not isinstance(starts, str) or os.path.exists(starts):
        return False
    return starts in (OWN, REARRANGED) or bool(set(":,@") & set(starts))


def parse(text: str) -> list[StartShare]:
    """Parses a mixture.

    Raises:
        UserError: a part has another form or is repeated, a weight is out of range, or only some
            parts have weights.
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
    """Returns the share of start states of each part; the shares sum to 1."""
    total = math.fsum(share.weight for share in shares)
    return [share.weight / total for share in shares]


def whole_paths(text: str) -> str:
    """Returns a mixture with absolute paths, which is valid in any directory.

    Raises:
        UserError: see `parse`; or a path has a comma, colon or @, which could not be parsed.
    """
    return ",".join(map(text_of, parse(text)))


def split(count: int, proportions: Sequence[float]) -> list[int]:
    """Splits `count` in proportion, by the largest remainder method."""
    exact = [count * proportion for proportion in proportions]
    numbers = [math.floor(share) for share in exact]
    left = sorted(range(len(exact)), key=lambda part: numbers[part] - exact[part])
    for part in left[: count - sum(numbers)]:
        numbers[part] += 1
    return numbers


def label(share: StartShare) -> str:
    """Formats a part as `parse` accepts it, without its weight."""
    return text_of(share).rpartition(":")[0]


def text_of(share: StartShare) -> str:
    """Formats a part as `parse` accepts it, with absolute path and weight.

    Raises:
        UserError: the path has a comma, colon or @.
    """
    about = f"@{share.receptacle}" if share.receptacle else ""
    if share.within is not None:
        return f"{NEAR}:{share.within!r}{about}:{share.weight!r}"
    if share.folder is None:
        return f"{REARRANGED if share.rearranged else OWN}{about}:{share.weight!r}"
    folder = os.path.abspath(files.user_path(share.folder, "starts"))
    if set(",:@") & set(folder):
        raise UserError(f"starts: the path {folder} contains one of , : @; move the folder")
    return f"{ALONG if share.along else BANK}:{folder}:{share.only}{about}:{share.weight!r}"


def _part(text: str) -> tuple[StartShare, float | None]:
    """Parses a part, from its end: weight, then `only`, then folder.

    Returns:
        The part, and its weight or None.
    """
    about, receptacle = text, ""
    if "@" in text:
        about, _, end = text.partition("@")
        receptacle, colon, weight_of = (word.strip() for word in end.partition(":"))
        if not receptacle:
            raise UserError(f"starts: '{text}': the receptacle is missing, as in {OWN}@fridge")
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
        raise UserError(f"starts: '{text}': the folder is missing, as in {such}")
    return StartShare(Path(folder), kind == ALONG, only, receptacle=receptacle), weight


def _metres(text: str, words: list[str]) -> float:
    """Removes the first word and returns it as a distance in metres."""
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
