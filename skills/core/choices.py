"""The choices of sensors (`skills.core.sensors`); imports nothing, so that help comes at once."""

import typing
from typing import Literal

SensorChoice = Literal["habitat", "fetch", "full", "teacher", "mapping"]
CHOICES: tuple[str, ...] = typing.get_args(SensorChoice)
