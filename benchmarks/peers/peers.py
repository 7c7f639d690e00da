"""The peers: packages to install for each, and how each is run."""

import dataclasses
from typing import Any


@dataclasses.dataclass(frozen=True, slots=True)
class Library:
    """A package and its dependencies, in a separate virtual environment.

    `packages` are installed with their dependencies, `bare` without; torch is installed before.
    """

    packages: tuple[str, ...]
    bare: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()  # packages with reported versions


@dataclasses.dataclass(frozen=True, slots=True)
class Peer:
    """One way to run a library: starts `module` with the options `extra`.

    Other settings of the libraries made no difference beyond noise: Sample Factory with and without
    binding workers to cores, VER with one and two inference workers.
    """

    library: str
    module: str
    extra: dict[str, Any]
    notes: tuple[str, ...]


LIBRARIES = {
    # tpsrl itself: `install.interpreter` returns the Python that runs the benchmark.
    "tpsrl": Library(packages=(), shown=("tpsrl", "torch", "numpy")),
    "sample_factory": Library(
        packages=("sample-factory==2.1.1", "numpy==1.26.4"),
        shown=("sample-factory", "torch", "numpy"),
    ),
    # Version 0.3.3 of habitat-baselines has its release date in its last number. It depends on
    # packages for a simulator, video and data sets, which a gym environment never uses.
    "habitat_baselines": Library(
        packages=(
            "attrs==26.1.0",
            "faster-fifo==1.5.2",
            "gym==0.23.0",
            "hydra-core==1.3.8",
            "ifcfg==0.24",
            "imageio==2.38.1",
            "numba==0.68.1",
            "numpy==1.26.4",
            "numpy-quaternion==2024.0.13",
            "omegaconf==2.3.1",
            "opencv-python-headless==4.11.0.86",
            "scipy==1.17.1",
            "tensorboard==2.21.0",
            "threadpoolctl==3.8.0",
            "tqdm==4.70.1",
        ),
        bare=("habitat-lab==0.3.320260507", "habitat-baselines==0.3.320260507"),
        shown=("habitat-baselines", "torch", "numpy"),
    ),
}

_SAMPLE_FACTORY = (
    "the network does not see the previous action: Sample Factory has no place for it",
    "one environment in each process, so no double buffering",
    "without normalisation of observations and returns, which is its default",
)
_HABITAT = (
    "a gym environment through habitat-lab's registry; stand-ins for its simulator",
    "saves and logs nothing but to its log",
)
_EARLY = (
    "ends rollouts early by its own reckoning (a rule for stragglers among machines) and fills them"
    " up with what it has learned from before, so more samples are counted than steps were made"
)

PEERS = {
    **{
        f"tpsrl_{collector}": Peer(
            "tpsrl", "benchmarks.peers.run_tpsrl", {"collector": collector}, ()
        )
        for collector in ("sync", "nover", "ver", "overlap")
    },
    "sample_factory_sync": Peer(
        "sample_factory",
        "benchmarks.peers.run_sample_factory",
        {"async_rl": False},
        _SAMPLE_FACTORY,
    ),
    "sample_factory_async": Peer(
        "sample_factory",
        "benchmarks.peers.run_sample_factory",
        {"async_rl": True},
        _SAMPLE_FACTORY,
    ),
    "habitat_baselines_ver": Peer(
        "habitat_baselines",
        "benchmarks.peers.run_habitat_baselines",
        {"trainer": "ver"},
        (
            *_HABITAT,
            _EARLY,
            "two inference workers, its default, of which one is the learner's process",
        ),
    ),
    "habitat_baselines_ver_overlap": Peer(
        "habitat_baselines",
        "benchmarks.peers.run_habitat_baselines",
        {
            "trainer": "ver",
            "rl.ver.overlap_rollouts_and_learn": True,
            "rl.ver.num_inference_workers": 1,
        },
        (
            *_HABITAT,
            _EARLY,
            "learns while it collects the next rollout, which is not its default",
        ),
    ),
    "habitat_baselines_ddppo": Peer(
        "habitat_baselines",
        "benchmarks.peers.run_habitat_baselines",
        {"trainer": "ddppo"},
        (*_HABITAT, "one process learns, so nothing is averaged over processes"),
    ),
}
