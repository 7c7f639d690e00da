"""The engine `habitat`: one process of the user's Habitat interpreter per home."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np

from tpsrl.errors import UserError
from tpsrl.render.cameras import Sphere
from tpsrl.render.shapes import Shape
from tpsrl.sim import engines
from tpsrl.sim.base import Capabilities, HomeLost, Snapshot
from tpsrl.sim.habitat import states
from tpsrl.sim.habitat.connection import Connection, data_folder
from tpsrl.sim.habitat.episodes import to_habitat
from tpsrl.sim.habitat.pictures import HabitatCamera, draw_markers
from tpsrl.sim.habitat.settings import HabitatSettings
from tpsrl.sim.habitat.states import HomeArrays
from tpsrl.world import action as act
from tpsrl.world import cameras
from tpsrl.world.episode import Episode
from tpsrl.world.fetch import LASER_POS, LASER_RANGE_M, LASER_RAYS, REST_ARM, laser_angles
from tpsrl.world.habitat import FRAMES, TO_OURS
from tpsrl.world.state import WorldState

T = TypeVar("T")

_LIKE_M = 0.01  # object sizes that differ by less count as equal


class HabitatSimulator:
    """`tpsrl.sim.base.Simulator` on habitat-lab's RearrangeSim.

    Habitat always keeps the base on its navigation mesh, so `filter_base` must be true.

    Raises:
        UserError: Habitat is not available (names what to install or download), or an argument is
            out of range.
    """

    def __init__(
        self,
        num_envs: int = 1,
        slots: int = 30,
        filter_base: bool = True,
        settings: HabitatSettings | None = None,
    ) -> None:
        if num_envs < 1:
            raise UserError(f"num_envs: must be at least 1, got {num_envs}")
        if not filter_base:
            raise UserError("filter_base: Habitat keeps the base on its navigation mesh; use true")
        self.settings = HabitatSettings() if settings is None else settings
        self._slots, self._frames = slots, ["z up"] * num_envs
        self._episodes: list[Episode | None] = [None] * num_envs
        self._homes: list[HomeArrays] = [{} for _ in range(num_envs)]
        self._cameras = [HabitatCamera() for _ in range(num_envs)]
        self._links: list[Connection | None] = [None] * num_envs
        try:
            self._together(self._open, range(num_envs))
        except BaseException:
            self.close()
            raise

    def _open(self, env: int) -> Connection:
        """Starts a process for a home."""
        link = Connection(self.settings)
        self._links[env] = link
        options = {
            "data": str(data_folder(self.settings)),
            "gpu": self.settings.gpu,
            "height": self.settings.depth,
            "width": self.settings.depth,
            "seed": env,
            "colour": self.settings.colour,
            "rest": list(REST_ARM),
        }
        try:
            link.ask({"ask": "open", "settings": options})
        except UserError as error:
            raise UserError(f"habitat.data: {error}") from None
        return link

    @property
    def num_envs(self) -> int:
        """Number of homes."""
        return len(self._homes)

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the engine `habitat`; colour only if `habitat.colour` is true."""
        able = engines.info("habitat").capabilities
        return dataclasses.replace(able, colour=self.settings.colour)

    @property
    def instances(self) -> tuple[str, ...]:
        """None: there are no instance pictures."""
        return ()

    def reset(self, env_ids: Sequence[int], episodes: Sequence[Episode]) -> None:
        """See `tpsrl.sim.base.Simulator.reset`. A home that was lost gets a new process."""
        for env, episode in zip(env_ids, episodes, strict=True):
            if len(episode.objects) > self._slots:
                raise UserError(
                    f"episode {episode.id}: objects: {len(episode.objects)} given, this home has "
                    f"room for {self._slots}"
                )
            self._episodes[env] = episode
        self._together(self._begin, env_ids)

    def _together(self, do: Callable[[int], object], envs: Sequence[int]) -> None:
        """Calls `do` for homes in parallel, since starting a home or loading a scene is slow."""
        if len(envs) == 1:
            do(envs[0])
            return
        with ThreadPoolExecutor(self.num_envs) as threads:
            try:
                list(threads.map(do, envs))
            except Exception:
                raise
            except BaseException:  # a signal; killed processes end the threads
                for link in self._links:
                    if link is not None:
                        link.kill()
                raise

    def _begin(self, env: int) -> None:
        """Resets a home, in the frame of object transforms that fits the data's bounding boxes."""
        episode, frame = self._episodes[env], self._frames[env]
        assert episode is not None
        home = self._put(env, episode, frame)
        for other in FRAMES:
            if states.mismatch(home, episode, frame) <= _LIKE_M:
                break
            if states.mismatch(home, episode, other) < states.mismatch(home, episode, frame):
                self._frames[env] = frame = other
                home = self._put(env, episode, frame)
        self._homes[env], self._cameras[env] = home, HabitatCamera()

    def _put(self, env: int, episode: Episode, frame: str) -> HomeArrays:
        header = {"ask": "reset", "episode": to_habitat(episode, frame)}
        link = self._links[env] or self._guarded(env, lambda: self._open(env))
        try:
            return self._guarded(env, lambda: link.ask(header))[1]
        except UserError as error:
            raise UserError(f"habitat.data: episode {episode.id}: {error}") from None

    def _guarded(self, env: int, call: Callable[[], T]) -> T:
        """Calls a function on a home; if the home is lost, ends its process."""
        try:
            return call()
        except HomeLost as error:
            self._drop(env)
            episode = self._episodes[env]
            where = "" if episode is None else f"episode {episode.id}: "
            raise HomeLost(f"{where}{error}") from None

    def _drop(self, env: int) -> None:
        link, self._links[env] = self._links[env], None
        self._homes[env] = {}
        if link is not None:
            link.close()

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> None:
        """See `tpsrl.sim.base.Simulator.step`.

        Raises:
            HomeLost: a process has ended; its home must be reset, the others have stepped.
        """
        actions = np.ascontiguousarray(actions, dtype=np.float64)
        if actions.shape != (len(env_ids), act.SIZE):
            shape = actions.shape
            raise UserError(f"actions: shape is {shape}, expected ({len(env_ids)}, {act.SIZE})")
        if not np.isfinite(actions).all():
            raise UserError("actions: not finite")
        clipped = [{"action": action} for action in np.clip(actions, -1.0, 1.0)]
        found, lost = self._ask_all(env_ids, "step", clipped)
        for env, arrays in found.items():
            self._homes[env] = arrays
        if lost is not None:
            raise lost

    def _ask_all(
        self, env_ids: Sequence[int], ask: str, arrays: Sequence[HomeArrays]
    ) -> tuple[dict[int, HomeArrays], HomeLost | None]:
        """Sends a request to homes at once.

        Returns:
            The replies by home, and the error of the last home that was lost, or None.
        """
        links = [self._link(env) for env in env_ids]
        lost: HomeLost | None = None
        found, pending = {}, []
        for env, link, given in zip(env_ids, links, arrays, strict=True):
            try:
                link.say({"ask": ask}, given)
                pending.append((env, link))
            except HomeLost as error:
                self._drop(env)
                lost = error
        for env, link in pending:
            try:
                found[env] = self._guarded(env, link.answer)[1]
            except HomeLost as error:
                lost = error
        return found, lost

    def _link(self, env: int) -> Connection:
        link = self._links[env]
        if link is None or not self._homes[env]:
            raise UserError(f"home {env}: has not been reset")
        return link

    def state(self, env_ids: Sequence[int]) -> WorldState:
        """See `tpsrl.sim.base.Simulator.state`."""
        rows = []
        for env in env_ids:
            self._link(env)
            episode = self._episodes[env]
            assert episode is not None
            rows.append(states.row(self._homes[env], episode, self._slots, self._frames[env]))
        return WorldState(**{name: np.stack([row[name] for row in rows]) for name in rows[0]})

    def depth(self, env_ids: Sequence[int], height: int = 64, width: int = 64) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.depth`; takes every k-th of `habitat.depth` pixels a side.

        Raises:
            UserError: `habitat.depth` is not a multiple of height and width.
        """
        whole = self.settings.depth
        if whole % height or whole % width:
            raise UserError(
                f"habitat.depth: {whole} pixels are not a multiple of the requested {height} x "
                f"{width}; use habitat.depth={max(height, width)}"
            )
        out = np.empty((len(env_ids), height, width), dtype=np.float32)
        found, lost = self._ask_all(env_ids, "depth", [{}] * len(env_ids))
        if lost is not None:
            raise lost
        down, across = whole // height, whole // width
        for row, env in enumerate(env_ids):
            out[row] = found[env]["depth"][down // 2 :: down, across // 2 :: across]
        return out

    def look(
        self, env_ids: Sequence[int], sizes: Mapping[str, cameras.Sides]
    ) -> dict[str, np.ndarray]:
        """See `tpsrl.sim.base.Simulator.look`; head depth only.

        Raises:
            UserError: another picture is requested.
        """
        engines.require_cameras("habitat", sizes)
        return {name: self.depth(env_ids, *sides) for name, sides in sizes.items()}

    def object_velocity(self, env_ids: Sequence[int], objects: np.ndarray) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.object_velocity`."""
        out = np.zeros((len(env_ids), 6), dtype=np.float32)
        for row, (env, index) in enumerate(zip(env_ids, objects.tolist(), strict=True)):
            if index >= 0:
                motion = self._homes[env]["motion"][index]
                out[row, :3], out[row, 3:] = TO_OURS @ motion[:3], TO_OURS @ motion[3:]
        return out

    def laser(self, env_ids: Sequence[int]) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.laser`."""
        rays = []
        for env in env_ids:
            self._link(env)
            x, z, yaw = self._homes[env]["base"]
            cos, sin = np.cos(yaw), np.sin(yaw)
            start = (x + cos * LASER_POS[0], LASER_POS[2], z - sin * LASER_POS[0])
            angles = yaw + np.array(laser_angles())
            way = np.stack([np.cos(angles), np.zeros(LASER_RAYS), -np.sin(angles)], axis=1)
            rays.append({"from": np.array(start), "along": LASER_RANGE_M * way})
        found, lost = self._ask_all(env_ids, "rays", rays)
        if lost is not None:
            raise lost
        shares = np.array([found[env]["shares"] for env in env_ids])
        return (LASER_RANGE_M * shares).astype(np.float32)

    def clearance(self, env_ids: Sequence[int], targets: np.ndarray) -> np.ndarray:
        """Not supported.

        Raises:
            UserError: always.
        """
        raise _unable("clearance")

    def neighbours(
        self, env_ids: Sequence[int], targets: np.ndarray, points: np.ndarray
    ) -> np.ndarray:
        """Not supported.

        Raises:
            UserError: always.
        """
        raise _unable("neighbours")

    def snapshot(self, env_id: int) -> Snapshot:
        """Not supported.

        Raises:
            UserError: always.
        """
        raise _unable("exact snapshots")

    def restore(self, env_id: int, snapshot: Snapshot) -> None:
        """Not supported.

        Raises:
            UserError: always.
        """
        raise _unable("exact snapshots")

    def render(
        self,
        env_id: int,
        camera: str = "third_person",
        height: int = 360,
        width: int = 480,
        markers: Sequence[Sphere] = (),
    ) -> np.ndarray:
        """See `tpsrl.sim.base.Simulator.render`; markers are drawn even where the scene hides them.

        Raises:
            UserError: `habitat.colour` is false, or the camera is unknown.
        """
        link = self._link(env_id)
        now = self.state([env_id])
        request = self._cameras[env_id].ask(
            camera, now.base[0], now.ee_pos[0], int(now.step[0]), height, width
        )
        try:
            answer = self._guarded(env_id, lambda: link.ask({"ask": "picture", "camera": request}))
        except UserError as error:
            raise UserError(f"habitat.{error}") from None
        arrays = answer[1]
        draw_markers(arrays["picture"], arrays["pose"], request["fov"], markers)
        return arrays["picture"]

    def shapes(self, env_id: int) -> list[Shape]:
        """Not supported.

        Raises:
            UserError: always.
        """
        raise _unable("shapes for the viewer")

    def body_poses(self, env_id: int) -> np.ndarray:
        """Not supported.

        Raises:
            UserError: always.
        """
        raise _unable("shapes for the viewer")

    def close(self) -> None:
        """See `tpsrl.sim.base.Simulator.close`."""
        for env in range(self.num_envs):
            self._drop(env)


def _unable(what: str) -> UserError:
    return UserError(f"engine: 'habitat' has no {what}")
