"""Page of the viewer: scene, timeline and panel."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import viser

from eval.viewing import text, timeline
from eval.viewing.player import Player
from eval.viewing.recording import EpisodeRecording
from eval.viewing.scene import HomeScene, width

_FRAME_S = 1.0 / 30.0
_TEXT_S = 0.1
_SPEEDS = ("0.25x", "0.5x", "1x", "2x", "4x", "8x")
_PIXELS = 4
_NOWHERE = "choose a place"
_CAMERA_AWAY_M, _CAMERA_UP_M = 2.8, 2.3  # from the robot's start, towards the middle of the room
_CHEST = np.array([0.0, 0.0, 0.7])


class Page:
    """Shows recordings of one episode side by side, at the same time of the episode."""

    def __init__(self, server: viser.ViserServer, recordings: Sequence[EpisodeRecording]) -> None:
        self.player = Player(recordings)
        self._server, self._recordings = server, recordings
        apart = width(recordings)
        self.homes = [
            HomeScene(server, f"/{row}", recording, (row * apart, 0.0, 0.0))
            for row, recording in enumerate(recordings)
        ]
        self._shown, self._written, self._last_marks = -1, 0.0, -1
        self._place = self._robot()
        server.gui.configure_theme(control_width="large", show_logo=False)
        server.gui.main_panel.dock_right()
        server.scene.set_up_direction("+z")
        self._build()
        server.on_client_connect(self._place_camera)

    # -- construction ------------------------------------------------------------------------------

    def _build(self) -> None:
        gui, player = self._server.gui, self.player
        self._strip = gui.add_image(self._drawn(), format="png")
        self._timeline: Any = gui.add_slider("step", min=0, max=1, step=1, initial_value=0)
        self._buttons = gui.add_button_group("play", ("back", "play / pause", "forward"))
        self._speed = gui.add_dropdown("speed", _SPEEDS, initial_value="1x")
        self._jump = gui.add_dropdown("jump to", (_NOWHERE,))
        self._follow = gui.add_checkbox("follow the robot", True)
        walls = gui.add_checkbox("walls", True)
        self._timeline.on_update(self._seek)
        self._buttons.on_click(self._press)
        self._speed.on_update(lambda _: player.set_speed(float(self._speed.value.rstrip("x"))))
        self._jump.on_update(self._jump_to)
        walls.on_update(lambda _: self._show_walls(bool(walls.value)))
        tabs = gui.add_tab_group()
        self._panels = []
        for recording in self._recordings:
            with tabs.add_tab(recording.agent):
                self._panels.append(self._panel(recording))

    def _panel(self, recording: EpisodeRecording) -> dict[str, Any]:
        gui, moment = self._server.gui, recording.moments[0]
        panel: dict[str, Any] = {"title": gui.add_markdown(text.title(recording))}
        panel["status"] = gui.add_markdown(text.status(moment))
        with gui.add_folder("plan"):
            panel["plan"] = gui.add_markdown(text.plan(recording, moment))
        with gui.add_folder("conditions of success"):
            panel["conditions"] = gui.add_markdown(text.conditions(moment))
        rewards = gui.add_folder("reward of the step", visible=False)
        with rewards:
            panel["rewards"] = gui.add_markdown("")
        panel["rewards_folder"] = rewards
        with gui.add_folder("depth as policies see it"):
            panel["depth"] = gui.add_image(_large(moment.depth), format="png")
        return panel

    def _place_camera(self, client: viser.ClientHandle) -> None:
        """Puts the camera of a new client beside the robot."""
        robot = self._robot()
        inwards = self.homes[0].middle - robot
        inwards *= _CAMERA_AWAY_M / max(float(np.linalg.norm(inwards)), 1e-6)
        client.camera.up_direction = (0.0, 0.0, 1.0)
        client.camera.position = robot + inwards + [0.0, 0.0, _CAMERA_UP_M]
        client.camera.look_at = robot + _CHEST

    # -- user input --------------------------------------------------------------------------------

    def _seek(self, event: Any) -> None:
        if event.client is not None:  # None if `update` moved the slider
            self.player.play(False)
            self.player.seek(int(self._timeline.value))

    def _press(self, _: Any) -> None:
        pressed = self._buttons.value
        if pressed == "play / pause":
            self.player.play(not self.player.playing)
        else:
            self.player.step(1 if pressed == "forward" else -1)

    def _jump_to(self, event: Any) -> None:
        for mark, label in self._places():
            if event.client is not None and label == self._jump.value:
                self.player.play(False)
                self.player.seek(mark)

    def _places(self) -> list[tuple[int, str]]:
        """Returns index and label of each mark of all recordings."""
        several = len(self._recordings) > 1
        found = []
        for recording in self._recordings:
            for mark in list(recording.marks):
                who = f"{recording.agent}: " if several else ""
                found.append((mark.moment, f"{who}{mark.text} (step {mark.moment})"))
        return sorted(found)

    # -- updates -----------------------------------------------------------------------------------

    def run(self) -> None:
        """Updates the page in an endless loop."""
        then = time.perf_counter()
        while True:
            now = time.perf_counter()
            self.player.advance(now - then)
            then = now
            self.update()
            time.sleep(_FRAME_S)

    def update(self) -> None:
        """Shows the player's current moment."""
        index, now = self.player.index, time.monotonic()
        with self._server.atomic():
            if index != self._shown:
                for home, recording in zip(self.homes, self._recordings, strict=True):
                    home.show(self.player.moment(recording))
                self._move_cameras()
            if now - self._written >= _TEXT_S:
                self._write(index)
                self._written = now
        self._shown = index

    def _write(self, index: int) -> None:
        self._timeline.max = max(self.player.last, 1)
        self._timeline.value = index
        self._strip.image = self._drawn()
        places = self._places()
        if len(places) != self._last_marks:
            self._jump.options = (_NOWHERE, *(label for _, label in places))
            self._last_marks = len(places)
        for panel, recording in zip(self._panels, self._recordings, strict=True):
            moment = self.player.moment(recording)
            _set(panel["title"], text.title(recording))
            _set(panel["status"], text.status(moment))
            _set(panel["plan"], text.plan(recording, moment))
            _set(panel["conditions"], text.conditions(moment))
            if moment.rewards:
                panel["rewards_folder"].visible = True
                _set(panel["rewards"], text.rewards(moment))
            if index != self._shown or not self.player.playing:
                panel["depth"].image = _large(moment.depth)

    def _show_walls(self, visible: bool) -> None:
        for home in self.homes:
            home.show_walls(visible)

    def _drawn(self) -> np.ndarray:
        return timeline.picture(self._recordings, self.player.last, self.player.index)

    def _robot(self) -> np.ndarray:
        """Returns the floor position (3,) of the first robot."""
        x, y, _ = self.player.moment(self._recordings[0]).base
        return np.array([x, y, 0.0]) + self.homes[0].offset

    def _move_cameras(self) -> None:
        """Moves every camera with the robot, if that option is on."""
        place = self._robot()
        moved, self._place = place - self._place, place
        if not self._follow.value or not moved.any():
            return
        for client in self._server.get_clients().values():
            with client.atomic():
                client.camera.position = client.camera.position + moved
                client.camera.look_at = client.camera.look_at + moved


def _large(picture: np.ndarray) -> np.ndarray:
    """Returns a small image with every pixel enlarged to a square."""
    return picture.repeat(_PIXELS, axis=0).repeat(_PIXELS, axis=1)


def _set(handle: Any, content: str) -> None:
    if handle.content != content:
        handle.content = content
