"""Pool of environments in worker processes, with steps over shared memory.

A step of a worker costs one signal each way, whatever the number of its environments
(`shared.Signals`: at most a system call to send and one to sleep), and one copy of each
observation, from the environments into shared memory. The collector copies the observation into the
batch that the policy acts on, and from there into the rollout. Episodes that ended, commands and
their replies are sent over a pipe.

A worker that dies, hangs, or reports an error is replaced by another if `FaultTolerance` allows it.
"""

import time
from collections.abc import Callable, Mapping

import numpy as np

from tpsrl.rl.envs.pool import (
    CAUSES,
    NO_START,
    LostEnvs,
    PoolSnapshot,
    begun_anew,
    pack_snapshot,
    split_episodes,
    unpack_snapshot,
)
from tpsrl.rl.envs.step_buffers import IDLE, LAUNCHING, READY, STEPPING, episodes_to_json
from tpsrl.rl.envs.supervision import FaultTolerance, Supervisor
from tpsrl.rl.envs.vec_env import Json, Observation, StepBatch, VecEnvFactory
from tpsrl.rl.envs.worker import CHECK_EVERY_S, MAIN_CHANNEL
from tpsrl.rl.envs.worker_group import Limits, WorkerFailed, WorkerGroup

_LAUNCH_CHECK_S = 0.05  # a new worker cannot signal before it has the shared memory


class WorkerEnvPool:
    """`tpsrl.rl.envs.pool.EnvPool` in worker processes, each with a block of the environments.

    A worker steps together all environments that were sent an action since it last looked.

    Args:
        factory: makes the environments
        num_envs: number of environments
        processes: number of workers
        tolerance: handling of worker failures; None: a failure is raised, and a worker that hangs
            is waited for
        say: receives messages about failures and slow workers

    Raises:
        UserError: `processes` is out of range, or the factory raised this error.
        RunError: a worker failed or died; gives the cause.
    """

    def __init__(
        self,
        factory: VecEnvFactory,
        num_envs: int,
        processes: int,
        tolerance: FaultTolerance | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        limits = Limits()
        if tolerance is not None:
            limits = Limits(tolerance.launch_s, tolerance.hang_s, tolerance.max_failures)
        self.group = WorkerGroup(factory, num_envs, processes, limits, say)
        self._supervisor = Supervisor(self.group, tolerance, say)
        self.num_envs, self.spec = num_envs, self.group.spec
        self.observation: Observation = self.group.buffers.observation
        self._woken = False

    # -- steps ---------------------------------------------------------------------------------

    def idle(self) -> np.ndarray:
        """See `tpsrl.rl.envs.pool.EnvPool.idle`."""
        return self.group.buffers.idle()

    def send(self, envs: np.ndarray, actions: np.ndarray) -> None:
        """See `tpsrl.rl.envs.pool.EnvPool.send`."""
        buffers = self.group.buffers
        buffers.actions[envs] = actions
        self._supervisor.sent_at[envs] = time.monotonic()
        buffers.state[envs] = STEPPING
        for number in dict.fromkeys(self.group.owner[envs].tolist()):
            self.group.signals.send(number + 1)

    def wake(self) -> None:
        """See `tpsrl.rl.envs.pool.EnvPool.wake`."""
        self._woken = True
        if self.group.is_open:
            self.group.signals.send(MAIN_CHANNEL)

    def poll(self, at_least: int = 0, held: int = 0) -> np.ndarray:
        """See `tpsrl.rl.envs.pool.EnvPool.poll`."""
        buffers, signals, supervisor = self.group.buffers, self.group.signals, self._supervisor
        while True:
            # Events signalled so far are seen below; without this the counter would grow.
            signals.drain(MAIN_CHANNEL)
            supervisor.supervise()
            count = np.bincount(buffers.state, minlength=LAUNCHING + 1)
            back = count[LAUNCHING] < supervisor.launching
            supervisor.launching = int(count[LAUNCHING])
            expected = count[STEPPING] + count[LAUNCHING] + held
            ended = not expected or back or supervisor.lost or self._woken
            if count[READY] >= at_least or ended:
                self._woken = False
                return buffers.ready()
            signals.receive(
                MAIN_CHANNEL, _LAUNCH_CHECK_S if supervisor.launching else CHECK_EVERY_S
            )

    def recv(self, envs: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.pool.EnvPool.recv`."""
        group = self.group
        done = group.buffers.take(envs)
        group.buffers.state[envs] = IDLE
        over = envs[done.terminated | done.truncated]
        if len(over):
            self._supervisor.failures += group.fetch_episodes(over)
            done.episodes, group.episodes = split_episodes(group.episodes, over)
        return done

    def took_s(self, envs: np.ndarray) -> np.ndarray:
        """See `tpsrl.rl.envs.pool.EnvPool.took_s`."""
        return self.group.buffers.took_s[envs]

    def ready_at(self, envs: np.ndarray) -> np.ndarray:
        """See `tpsrl.rl.envs.pool.EnvPool.ready_at`."""
        return self.group.buffers.ready_at[envs]

    def lost(self) -> list[LostEnvs]:
        """See `tpsrl.rl.envs.pool.EnvPool.lost`."""
        found, self._supervisor.lost = self._supervisor.lost, []
        return found

    def weigh(self, weights: np.ndarray) -> None:
        """See `tpsrl.rl.envs.pool.EnvPool.weigh`."""
        self.group.array("start_weights")[1:] = weights
        self.group.array("start_weights")[0] += 1.0

    # -- everything else -----------------------------------------------------------------------

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.pool.EnvPool.seconds`."""
        return dict(zip(CAUSES, self.group.array("seconds").mean(axis=0).tolist(), strict=True))

    def reset(self) -> None:
        """See `tpsrl.rl.envs.pool.EnvPool.reset`."""
        _, failures = self.group.command("reset")
        self._fail(failures)  # Replacements begin without a command.

    def snapshot(self) -> PoolSnapshot:
        """See `tpsrl.rl.envs.pool.EnvPool.snapshot`."""
        group, supervisor = self.group, self._supervisor
        while True:
            self._settle()
            replies, failures = group.command("snapshot")
            failures = failures or group.fetch_episodes(np.arange(self.num_envs))
            if not failures:
                break
            self._fail(failures)
        environments = [frozen for reply in replies for frozen in reply]
        arrays, notes = pack_snapshot(group.buffers.to_arrays(), environments)
        note = {
            "environments": notes,
            "episodes": episodes_to_json(group.episodes),
            "lost": [
                [lost.envs.tolist(), list(lost.starts), lost.cause] for lost in supervisor.lost
            ],
            "starts": group.array("start_index").tolist(),
            **supervisor.to_json(),
        }
        return arrays, note

    def restore(self, arrays: Mapping[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.pool.EnvPool.restore`."""
        group, supervisor = self.group, self._supervisor
        saved, environments, episodes = unpack_snapshot(arrays, note, self.num_envs)
        self._settle()
        supervisor.load(note)
        group.array("start_index")[:] = note.get("starts", NO_START)
        _, failures = group.command(
            "restore", [[environments[e] for e in w.envs] for w in group.workers]
        )
        if "state" in saved:
            # Steps under way were saved with their results. A worker must never see them as sent,
            # since it would take the step again.
            state = saved["state"]
            saved["state"] = np.where(state == STEPPING, READY, state)
        buffers = group.buffers
        buffers.load(saved)
        # All steps that become ready after this must count as younger.
        buffers.ready_at -= buffers.ready_at.max()
        anew = begun_anew(environments)
        for lost in anew:
            buffers.state[lost.envs] = IDLE
        group.episodes = [e for e in episodes if not any(e.env in lost.envs for lost in anew)]
        supervisor.lost = anew + [
            LostEnvs(np.array(envs), tuple(starts), cause)
            for envs, starts, cause in note.get("lost", [])
        ]
        self._fail(failures)

    def close(self) -> None:
        """See `tpsrl.rl.envs.pool.EnvPool.close`."""
        self.observation = {}
        self.group.close()

    def _fail(self, failures: list[WorkerFailed]) -> None:
        for failure in failures:
            self._supervisor.fail(failure)

    def _settle(self) -> None:
        """Waits until no environment is stepping or without a process."""
        supervisor = self._supervisor
        lost: list[LostEnvs] = []
        while np.isin(self.group.buffers.state, (STEPPING, LAUNCHING)).any():
            lost += self.lost()  # `poll` would return at once while there are any
            self.poll(self.num_envs)
        supervisor.lost = lost + supervisor.lost
