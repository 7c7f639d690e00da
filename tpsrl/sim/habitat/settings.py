"""Where Habitat is and how its processes are run."""

import dataclasses
import os
import sys
from pathlib import Path

from tpsrl import config
from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class HabitatSettings:
    """What the engine `habitat` is told.

    `python` is the interpreter that has habitat_sim ("": this one); `data` the folder that holds
    habitat-lab's `data/`; `gpu` the number of the GPU, -1 for software rendering; `depth` height
    and width of the head camera in pixels; `colour` whether textures are loaded, without which
    there are no pictures; `timeout_s` how long a process may be silent.
    """

    python: str = config.option("", "Python that has habitat_sim (default: this one)")
    data: str = config.option(".", "folder that holds habitat-lab's data/")
    gpu: int = config.option(-1, "number of the GPU that renders; -1: software", minimum=-1)
    depth: int = config.option(
        128, "height and width of the head camera in pixels", minimum=16, maximum=512
    )
    colour: bool = config.option(False, "load textures, which videos need")
    timeout_s: float = config.option(300.0, "seconds that a process may be silent", minimum=1.0)

    def interpreter(self) -> str:
        """The interpreter's path, absolute.

        Raises:
            UserError: there is no such program.
        """
        path = os.path.abspath(os.path.expanduser(self.python or sys.executable))
        if not os.access(path, os.X_OK) or Path(path).is_dir():
            raise UserError(
                f"habitat.python: '{path}' is not a program; give the python of the environment "
                "that has habitat_sim, such as ~/miniconda3/envs/habitat/bin/python"
            )
        return path
