"""Server of the viewer."""

import contextlib
import io
import time

import viser

from eval.viewing.page import Page
from eval.viewing.runs import recordings
from eval.viewing.settings import ScenarioView, SkillView

_LAST_STEP_S = 10.0  # wait for the end of an episode, which takes a step, or loads a policy


def show(settings: ScenarioView | SkillView) -> None:
    """Shows an episode until Ctrl-C.

    Raises:
        UserError: the episode or an agent does not exist.
    """
    found = recordings(settings)
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # viser's banner with the same address
            server = viser.ViserServer(host="127.0.0.1", port=settings.port, verbose=False)
        address = f"http://localhost:{server.get_port()}"
        print(f"showing {found[0].episode.id} at {address}; Ctrl-C ends it", flush=True)
        page = Page(server, found)
        with contextlib.suppress(KeyboardInterrupt):
            page.run()
        server.stop()
    finally:
        # A thread that is still in the engine or in torch would abort the process at its exit.
        for recording in found:
            recording.stopped.set()
        end = time.monotonic() + _LAST_STEP_S
        with contextlib.suppress(KeyboardInterrupt):
            for recording in found:
                recording.over.wait(max(0.0, end - time.monotonic()))
