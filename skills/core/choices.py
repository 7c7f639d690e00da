"""Choices of sensors (`skills.core.sensors`), without slow imports, so that help is fast."""

import typing
from typing import Literal

SensorChoice = Literal["habitat", "fetch", "full", "teacher", "mapping", "gaze"]
CHOICES: tuple[str, ...] = typing.get_args(SensorChoice)
