"""Simulated scaling over GPUs in the settings of the DD-PPO and VER papers, with their results.

DD-PPO: Wijmans et al., ICLR 2020, section 5 and appendix D. VER: Wijmans et al., NeurIPS 2022,
table 1 and appendix D. Values that the papers do not give are assumed and marked as such.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.scaling.cluster import AllReduce, Cluster, Durations, Workload
from tpsrl.rl.bench.synthetic_env import replay
from tpsrl.rl.collection.preemption_settings import PreemptionSettings
from tpsrl.rl.envs.vec_env import Json
from tpsrl.rl.run.settings import TrainSettings

RULES = {
    "none": PreemptionSettings("none"),
    "80%": PreemptionSettings("share", 0.8),
    "60%": PreemptionSettings("share", 0.6),
    "optimal": PreemptionSettings("optimal"),
    "marginal": PreemptionSettings("marginal"),
}
_DRAWN = 4096  # steps of an environment before they repeat
_ROLLOUTS, _SKIPPED = 14, 2  # for ranks like those of this machine
_ALONE = 32  # single-rank clusters, whose mean rate is the reference

# Assumed: times of a half-width ResNet50 on one V100 for the actions of 4 environments, and for a
# mini-batch of 256 frames, derived from the VER paper's 150 ms for 1024 frames of a ResNet18.
_RESNET50_S, _RESNET50_256_S = 9e-3, 86e-3
# Assumed: a step in a Gibson scene takes 9 ms, with a standard deviation of 12%. With the times
# above that gives 160 steps per second and GPU; the paper's 2.5 billion in 2.75 days on 64 GPUs
# are 164.
_GIBSON_S, _GIBSON_SIGMA, _STEP_SIGMA = 9e-3, 0.12, 0.2
# Assumed: a step in Matterport3D takes twice as long, within a factor of 2.7 in 19 of 20 scenes.
# (There are 72 scenes of Gibson and 90 of Matterport3D; their files differ by a factor of 60.)
_MP3D_FACTOR, _MP3D_SIGMA, _MP3D_SHARE = 2.0, 0.5, 90 / 162
# 10 million parameters. The only fitted value here: 8 GPUs give 7.3 times the speed of one.
_DDPPO_LINK = AllReduce(
    latency_s=50e-6, gradient_bytes=40e6, bytes_per_s=1.25e9, network_bytes_per_s=1.25e9
)
_MINIBATCH_SIGMA = 0.05  # assumed

# Fitted to the three mean rates of table 1 on one GPU (174, 327, 428); the rates of more GPUs are
# predictions. Each home's step times have a factor that is drawn for each episode.
_HAB_S, _HAB_SIGMA, _HAB_RESET_S, _HAB_EPISODE = 9.6e-3, 0.5, 0.4, (100, 200)
_RESNET18_S, _RESNET18_EACH_S, _RESNET18_1024_S = 8e-3, 5e-4, 0.15
_VER_LINK = dataclasses.replace(_DDPPO_LINK, gradient_bytes=32e6)


@dataclasses.dataclass(frozen=True, slots=True)
class Sweep:
    """Clusters of growing size with one workload and one rule.

    Attributes:
        ranks: (k,) numbers of ranks
        alone: rate of one rank (steps per second)
        speedup: (k,) mean rate over that of one rank
        low, high: (k,) minimum and maximum of the speedup over seeds
    """

    ranks: list[int]
    alone: float
    speedup: list[float]
    low: list[float]
    high: list[float]


def sweep(
    work: Workload,
    rule: PreemptionSettings,
    ranks: Sequence[int],
    iterations: int = 10,
    skip: int = 5,
    seeds: int = 3,
) -> Sweep:
    """Simulates clusters, without counting the first `skip` iterations of each (appendix D)."""
    alone = float(
        np.mean(
            [
                Cluster(work, 1, RULES["none"], seed).run(iterations).rate(skip)
                for seed in range(_ALONE)
            ]
        )
    )
    rates = [
        [Cluster(work, n, rule, seed).run(iterations).rate(skip) / alone for seed in range(seeds)]
        for n in ranks
    ]
    return Sweep(
        list(ranks),
        alone,
        [float(np.mean(each)) for each in rates],
        [min(each) for each in rates],
        [max(each) for each in rates],
    )


def ddppo(heterogeneous: bool) -> Workload:
    """Returns the DD-PPO paper's benchmark.

    It has 4 environments in lock-step, 128 steps and 2 x 2 mini-batches. Each environment stays in
    one scene, of Gibson, or of Gibson and Matterport3D if `heterogeneous`.
    """

    def scene(rng: np.random.Generator) -> float:
        if heterogeneous and rng.random() < _MP3D_SHARE:
            return _MP3D_FACTOR * math.exp(_MP3D_SIGMA * rng.standard_normal())
        return math.exp(_GIBSON_SIGMA * rng.standard_normal())

    return Workload(
        drawn(4, _GIBSON_S, scene),
        collector="sync",
        num_envs=4,
        num_steps=128,
        inference_s=_RESNET50_S,
        inference_each_s=5e-4,
        minibatches=4,
        minibatch_s=_RESNET50_256_S,
        minibatch_sigma=_MINIBATCH_SIGMA,
        all_reduce=_DDPPO_LINK,
        refill=False,
    )


def ver(collector: str) -> Workload:
    """Returns the VER paper's table 1: 16 homes, 128 steps, 3 x 2 mini-batches of 1024 frames."""

    def home(rng: np.random.Generator) -> float:
        return math.exp(_HAB_SIGMA * rng.standard_normal())

    return Workload(
        drawn(16, _HAB_S, home, _HAB_EPISODE, _HAB_RESET_S),
        collector=collector,
        num_envs=16,
        num_steps=128,
        inference_s=_RESNET18_S,
        inference_each_s=_RESNET18_EACH_S,
        minibatches=6,
        minibatch_s=_RESNET18_1024_S,
        minibatch_sigma=_MINIBATCH_SIGMA,
        all_reduce=_VER_LINK,
        refill=collector != "sync",
    )


def drawn(
    num_envs: int,
    step_s: float,
    scene: Callable[[np.random.Generator], float],
    episode: tuple[int, int] | None = None,
    reset_s: float = 0.0,
) -> Durations:
    """Returns step durations, log-normal around `step_s` times a scene's factor.

    Args:
        num_envs: environments per rank
        step_s: median duration for a factor of 1
        scene: draws a factor
        episode: minimum and maximum number of steps with the same factor; None: one factor for all
            steps
        reset_s: additional duration of an episode's last step, times the factor
    """

    def durations(rank: int, seed: int) -> np.ndarray:
        rng = np.random.default_rng((seed, rank))
        factor, last = np.empty((num_envs, _DRAWN)), np.zeros((num_envs, _DRAWN))
        for env in range(num_envs):
            begun = 0
            while begun < _DRAWN:
                length = int(rng.integers(*episode, endpoint=True)) if episode else _DRAWN
                factor[env, begun : begun + length] = scene(rng)
                begun += length
                if begun <= _DRAWN and episode:
                    last[env, begun - 1] = reset_s
        usual = np.exp(_STEP_SIGMA * rng.standard_normal((num_envs, _DRAWN)))
        return factor * (step_s * usual + last)

    return durations


def slow_ones(durations: Durations, factor: float, every: int) -> Durations:
    """Returns durations in which the last of every `every` ranks is `factor` times slower."""

    def slowed(rank: int, seed: int) -> np.ndarray:
        return durations(rank, seed) * (factor if rank % every == every - 1 else 1.0)

    return slowed


# Results of the papers by ranks: DD-PPO's speedup over one rank, VER's samples per second.
_DDPPO_PAPER = {8: 7.3, 128: 107.0, 256: 196.0}
_VER_PAPER = {  # table 1, means
    "sync": {1: 174, 2: 283, 4: 468, 8: 1066},
    "nover": {1: 327, 2: 592, 4: 1097, 8: 2216},
    "ver": {1: 428, 2: 716, 4: 1432, 8: 2861},
}


def of_papers(
    most: int = 256, seeds: int = 3, say: Callable[[str], None] = lambda line: None
) -> Json:
    """Simulates both papers' benchmarks on up to `most` GPUs, next to the papers' results.

    Returns:
        JSON types.
    """
    ranks = [n for n in (1, 2, 4, 8, 16, 32, 64, 128, 256) if n <= most]
    found: Json = {"ddppo": {}, "ver": {}}
    for name in ("homogeneous", "heterogeneous"):
        rows = {}
        for rule, settings in RULES.items():
            say(f"DD-PPO, {name}, {rule}")
            work = ddppo(name == "heterogeneous")
            rows[rule] = dataclasses.asdict(sweep(work, settings, ranks, seeds=seeds))
        found["ddppo"][name] = rows
    found["ddppo"]["paper"] = {str(n): speed for n, speed in _DDPPO_PAPER.items()}
    few = [n for n in ranks if n <= 8]
    for collector, paper in _VER_PAPER.items():
        say(f"VER's table 1, {collector}")
        # As in habitat-baselines, which gave the paper's numbers.
        settings = RULES["60%" if collector == "sync" else "optimal"]
        row = dataclasses.asdict(sweep(ver(collector), settings, few, seeds=seeds))
        row["paper"] = {str(n): rate for n, rate in paper.items()}
        found["ver"][collector] = row
    return found


def of_ranks(
    measured: Json,
    settings: TrainSettings,
    rules: dict[str, PreemptionSettings],
    seeds: int = 3,
    most: int = 256,
) -> Json:
    """Simulates the ranks measured by `benchmarks.scaling.ranks.measure`; returns JSON types.

    The environments have the same durations; learning and inference take the measured times.
    "rates" has the rate of the same ranks by rule, in steps per second; "growing" has sweeps over
    more ranks, with the same share of slow ones.
    """
    row = next(iter(measured["rules"].values()))
    minibatches = settings.ppo.epochs * settings.ppo.minibatches
    own_s = max(row["learning_s"] - minibatches * measured["all_reduce_s"], 0.0)
    size = settings.num_envs * settings.num_steps
    work = Workload(
        slow_ones(_synthetic(settings.num_envs), measured["slow"], measured["ranks"]),
        collector=settings.collector,
        num_envs=settings.num_envs,
        num_steps=settings.num_steps,
        inference_each_s=row["inference_s"] / size,
        minibatches=minibatches,
        minibatch_s=own_s / minibatches,
        # Over loopback, the time for the few bytes of a tiny network is latency.
        all_reduce=AllReduce(
            latency_s=measured["all_reduce_s"] / (2 * math.ceil(math.log2(measured["ranks"])))
        ),
        refill=settings.refill,
    )
    rates = {
        name: float(
            np.mean(
                [
                    Cluster(work, measured["ranks"], rule, seed).run(_ROLLOUTS).rate(_SKIPPED)
                    for seed in range(seeds)
                ]
            )
        )
        for name, rule in rules.items()
    }
    found: Json = {"rates": rates}
    if most:
        ranks = [n for n in (1, 5, 10, 20, 40, 80, 160, 320) if n <= most]
        found["growing"] = {
            name: dataclasses.asdict(sweep(work, rule, ranks, _ROLLOUTS, _SKIPPED, seeds))
            for name, rule in rules.items()
        }
    return found


def _synthetic(num_envs: int) -> Durations:
    """Returns the durations of steps and resets of the synthetic environments."""

    def durations(rank: int, seed: int) -> np.ndarray:
        envs = range(rank * num_envs, (rank + 1) * num_envs)
        return np.array([np.add(*replay(env, seed, _DRAWN)) for env in envs])

    return durations
