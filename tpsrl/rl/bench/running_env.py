"""Ant and humanoid running on MuJoCo's C engine, as environments of one process.

All robots are stepped in one call of MuJoCo's own thread pool, with the models that gymnasium
ships.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
from mujoco import rollout as threaded

from tpsrl.errors import UserError
from tpsrl.rl.bench import running
from tpsrl.rl.bench.running import RUNNING_TASKS, RunnerLimits, RunnerPose
from tpsrl.rl.envs.vec_env import EnvSpec, EpisodeStats, Json, Observation, StepBatch

STEP_S, SUBSTEPS = 1.0 / 120.0, 2  # the paper's time step; a frame of 1/60 s is Roboschool's
FRAMES = 1000  # of an episode (section 4.1)
_NOISE = 0.1  # rad, rad/s: "perturbed slightly"; Roboschool's
_PUSH_FRAMES, _PUSH_N = (200, 300), (1.0, 5.0)  # "a few Newtons"
_WIDER = 1.05  # size of a touch sensor relative to its foot
_STATE = mujoco.mjtState.mjSTATE_FULLPHYSICS


@dataclasses.dataclass(frozen=True, slots=True)
class RunningVecEnvFactory:
    """Makes the environments of a task, which `threads` threads step."""

    task: str
    seed: int = 0
    threads: int = 1
    costs: str = "mean"

    def __call__(self, env_ids: Sequence[int]) -> "RunningVecEnv":
        return RunningVecEnv(self, env_ids)


class RunningVecEnv:
    """See `tpsrl.rl.envs.vec_env.VecEnv`. Environments differ only in their random generators."""

    def __init__(self, factory: RunningVecEnvFactory, env_ids: Sequence[int]) -> None:
        self.num_envs, self._names, self._factory = len(env_ids), list(env_ids), factory
        self._task = RUNNING_TASKS[factory.task]
        self.model = model_of(factory.task)
        self._data = [mujoco.MjData(self.model) for _ in range(factory.threads)]
        self._pool = threaded.Rollout(nthread=factory.threads if factory.threads > 1 else 0)
        size = mujoco.mj_stateSize(self.model, _STATE.value)
        nu = self.model.nu
        order = self.model.actuator_trnid[:, 0]
        self._joints = self.model.jnt_qposadr[order]
        self._speeds = self.model.jnt_dofadr[order]
        torque = self.model.actuator_gear[:, 0] * self.model.actuator_ctrlrange[:, 1]
        self.body = RunnerLimits(self.model.jnt_range[order], torque)
        self.spec = EnvSpec(
            {"state": (running.observation_size(nu, len(self._task.feet)),)}, (True,) * nu
        )
        self._physics = np.zeros((self.num_envs, size))
        self._touch = np.zeros((self.num_envs, len(self._task.feet)), bool)
        self._shown = np.zeros((self.num_envs, *self.spec.observations["state"]), np.float32)
        self._counts = np.zeros((self.num_envs, 3), np.int64)  # frame, frame of a push, episode
        self._sums = np.zeros((self.num_envs, len(running.TERMS)))
        self.reseed(0)

    @property
    def seconds(self) -> dict[str, float]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.seconds`."""
        return {}

    def reset(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reset`."""
        ids, nq = np.asarray(env_ids), self.model.nq
        for env in env_ids:
            rng = self._rngs[env]
            state = np.concatenate([[0.0], self.model.qpos0, np.zeros(self.model.nv)])
            state[1:][self._joints] += rng.uniform(-_NOISE, _NOISE, len(self._joints))
            state[1 + nq :] = rng.uniform(-_NOISE, _NOISE, self.model.nv)
            low, high = self.body.joint_range.T
            state[1:][self._joints] = np.clip(state[1:][self._joints], low, high)
            self._physics[env] = state
            self._counts[env, 0], self._counts[env, 1] = 0, rng.integers(*_PUSH_FRAMES)
            self._counts[env, 2] += 1
        self._touch[ids], self._sums[ids] = False, 0.0
        still = np.zeros((len(ids), self.model.nu))
        self._shown[ids] = running.observe(self.pose(ids), still, self.body)
        return self.observe(env_ids)

    def step(self, env_ids: Sequence[int], actions: np.ndarray) -> StepBatch:
        """See `tpsrl.rl.envs.vec_env.VecEnv.step`."""
        ids, actions = np.asarray(env_ids), np.asarray(actions, float)
        self._push(ids)
        limit = self.model.actuator_ctrlrange[:, 1]
        control = np.repeat((np.clip(actions, -1.0, 1.0) * limit)[:, None], SUBSTEPS, 1)
        states, sensed = self._pool.rollout(
            self.model, self._data, self._physics[ids], control, nstep=SUBSTEPS
        )
        self._physics[ids], self._touch[ids] = states[:, -1], sensed[:, -1] > 0.0
        self._counts[ids, 0] += 1
        pose = self.pose(ids)
        terms = running.reward_terms(pose, actions, self._task, self.body, self._factory.costs)
        terminated = running.fallen(pose, self._task)
        truncated = ~terminated & (self._counts[ids, 0] >= FRAMES)
        self._shown[ids] = running.observe(pose, actions, self.body)
        self._sums[ids] += np.stack([terms[name] for name in running.TERMS], 1)
        final = {"state": self._shown[ids[truncated]].copy()} if truncated.any() else None
        over = np.flatnonzero(terminated | truncated).tolist()
        episodes = [self._episode(env_ids[row], bool(terminated[row])) for row in over]
        if len(over):
            self.reset([env_ids[row] for row in over])
        reward = np.sum(list(terms.values()), axis=0).astype(np.float32)
        return StepBatch(self.observe(env_ids), reward, terminated, truncated, final, episodes)

    def observe(self, env_ids: Sequence[int]) -> Observation:
        """See `tpsrl.rl.envs.vec_env.VecEnv.observe`."""
        return {"state": self._shown[list(env_ids)]}

    def pose(self, ids: np.ndarray) -> RunnerPose:
        """Returns the current state of robots."""
        nq = self.model.nq
        places, speeds = self._physics[ids, 1 : 1 + nq], self._physics[ids, 1 + nq :]
        joints, rates = places[:, self._joints], speeds[:, self._speeds]
        root = places[:, 2], places[:, 3:7], speeds[:, :3], speeds[:, 3:6]
        return RunnerPose(*root, joints, rates, self._touch[ids])

    def start_index(self, env_id: int) -> int:
        """Returns the number of the episode."""
        return int(self._counts[env_id, 2])

    def reseed(self, restarts: int) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.reseed`."""
        seed = self._factory.seed
        self._rngs = [np.random.default_rng((seed, name, restarts)) for name in self._names]

    def avoid(self, starts: Sequence[int]) -> None:
        """Does nothing: starts are drawn at each reset."""

    def weigh(self, weights: np.ndarray) -> None:
        """Does nothing: starts have no groups."""

    def snapshot(self, env_id: int) -> tuple[dict[str, np.ndarray], Json]:
        """See `tpsrl.rl.envs.vec_env.VecEnv.snapshot`."""
        arrays = {name: array[env_id].copy() for name, array in self._arrays().items()}
        return arrays, {"rng": self._rngs[env_id].bit_generator.state}

    def restore(self, env_id: int, arrays: dict[str, np.ndarray], note: Json) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.restore`."""
        for name, own in self._arrays().items():
            if name not in arrays or arrays[name].shape != own[env_id].shape:
                raise UserError(f"{self._factory.task}: {name} of the snapshot does not fit")
            own[env_id] = arrays[name]
        self._rngs[env_id].bit_generator.state = note["rng"]

    def close(self) -> None:
        """See `tpsrl.rl.envs.vec_env.VecEnv.close`."""
        self._pool.close()

    def _arrays(self) -> dict[str, np.ndarray]:
        """Returns the environments' state except random generators; rows are environments."""
        return {
            "physics": self._physics,
            "touch": self._touch,
            "shown": self._shown,
            "counts": self._counts,
            "sums": self._sums,
        }

    def _push(self, ids: np.ndarray) -> None:
        """Pushes robots that are due for one frame: an impulse in a random horizontal direction."""
        mass = float(self.model.body_subtreemass[0])
        for env in ids[self._counts[ids, 0] == self._counts[ids, 1]]:
            rng = self._rngs[env]
            angle, force = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(*_PUSH_N)
            speed = force * STEP_S * SUBSTEPS / mass
            first = 1 + self.model.nq
            self._physics[env, first : first + 2] += speed * np.cos(angle), speed * np.sin(angle)
            self._counts[env, 1] += rng.integers(*_PUSH_FRAMES)

    def _episode(self, env: int, fell: bool) -> EpisodeStats:
        """Returns the record of a finished episode."""
        sums = dict(zip(running.TERMS, self._sums[env].tolist(), strict=True))
        count, frames = int(self._counts[env, 2]), int(self._counts[env, 0])
        ended = "fallen" if fell else "timeout"
        total = sum(sums.values())
        return EpisodeStats(self._names[env], count, frames, total, not fell, ended, sums)


def model_of(task: str) -> Any:
    """Loads gymnasium's model, with a touch sensor around each foot and the paper's time step."""
    import gymnasium

    folder = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
    spec = mujoco.MjSpec.from_file(str(folder / RUNNING_TASKS[task].model))
    spec.option.timestep = STEP_S
    # Stable at this time step; the Runge-Kutta method of the model files takes four times as long.
    spec.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    for name in RUNNING_TASKS[task].feet:
        geom = spec.geom(name)
        site = geom.parent.add_site(name=f"touch_{name}", type=geom.type, pos=geom.pos)
        site.fromto, site.size = geom.fromto, _WIDER * geom.size
        spec.add_sensor(
            name=f"touch_{name}",
            type=mujoco.mjtSensor.mjSENS_TOUCH,
            objtype=mujoco.mjtObj.mjOBJ_SITE,
            objname=site.name,
        )
    return spec.compile()
