"""Settings of the engine `habitat`: interpreter, data and rendering."""

import dataclasses
import os
import sys
from pathlib import Path

from tpsrl import config
from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class HabitatSettings:
    """Settings of the engine `habitat`.

    `python` is the interpreter that has habitat_sim ("": this one); `data` the folder that holds
    habitat-lab's `data/`; `gpu` the number of the GPU, -1 for software rendering; `depth` height
    and width of the head camera in pixels; `colour` whether textures are loaded, which colour
    pictures need; `timeout_s` the longest time in seconds until a process replies.
    """

    python: str = config.option("", "Python interpreter with habitat_sim (default: this one)")
    data: str = config.option(".", "folder that contains habitat-lab's data/")
    gpu: int = config.option(-1, "number of the GPU for rendering; -1: software", minimum=-1)
    depth: int = config.option(
        128, "height and width of the head camera in pixels", minimum=16, maximum=512
    )
    colour: bool = config.option(False, "load textures (needed for videos)")
    timeout_s: float = config.option(
        300.0, "seconds until a process without response is killed", minimum=1.0
    )

    def interpreter(self) -> str:
        """Returns the absolute path of the interpreter.

        Raises:
            UserError: the path is not an executable file.
        """
        path = os.path.abspath(os.path.expanduser(self.python or sys.executable))
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise UserError(
                f"habitat.python: '{path}' is not a program; name the interpreter with "
                "habitat_sim, such as ~/miniconda3/envs/habitat/bin/python"
            )
        return path
