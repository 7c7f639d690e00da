"""Evaluations in which sensors show the policy another run."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_policies import STATE, trained

from eval.running.blinding import Blinded, Seen, check
from skills.core.interface import SkillGoal
from skills.core.sensors import Readings
from tpsrl import cli
from tpsrl.errors import UserError


class Looking:
    """Policy that records its inputs."""

    depth_size, asks_engine, sees_laser = (1, 2), True, True

    def __init__(self) -> None:
        self.shown: list[tuple[Any, Any]] = []

    def begin(self, episode: Any, goal: Any, world: Any) -> None:
        self.shown.clear()

    def measure(self, simulator: Any, env_id: int) -> Readings:
        return Readings(laser=np.full((1, 2), 7.0), clearance=np.zeros((1, 1, 4)))

    def act(self, world: Any, depth: Any = None, measured: Any = None) -> np.ndarray:
        assert measured.clearance is not None
        self.shown.append((float(depth[0, 0]), float(measured.laser[0, 0])))
        return np.zeros(11)

    def diagnosis(self) -> dict[str, Any]:
        return {"looked": len(self.shown)}


def run(policy: Blinded, depths: list[float]) -> None:
    policy.begin(None, SkillGoal(), None)  # type: ignore[arg-type]
    for depth in depths:
        seen = np.full((1, 2), depth)
        policy.act(None, seen, policy.measure(None, 0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("depth",), [(0.1, 7.0), (0.2, 7.0), (0.2, 7.0)]),
        (("laser",), [(0.5, 3.0), (0.6, 4.0), (0.7, 4.0)]),
        (("depth", "laser"), [(0.1, 3.0), (0.2, 4.0), (0.2, 4.0)]),
    ],
)
def test_a_blinded_sensor_repeats_the_last_reading_after_the_donor_run(
    names: tuple[str, ...], expected: list[tuple[float, float]]
) -> None:
    donor = Seen(
        [np.full((1, 2), 0.1), np.full((1, 2), 0.2)], [np.full((1, 2), 3.0), np.full((1, 2), 4.0)]
    )
    looking = Looking()
    policy = Blinded(looking, donor, names)
    run(policy, [0.5, 0.6, 0.7])
    assert looking.shown == expected
    assert policy.depth_size == (1, 2) and policy.diagnosis() == {"looked": 3}


def test_only_the_blinded_camera_shows_the_donor_run() -> None:
    seen: list[Any] = []

    class Watching(Looking):
        pictures = ("head_rgb", "hand_depth")

        def measure(self, simulator: Any, env_id: int) -> Readings:
            shown = {name: np.full((1, 1), number) for number, name in enumerate(self.pictures)}
            return Readings(pictures=shown)

        def act(self, world: Any, depth: Any = None, measured: Any = None) -> np.ndarray:
            seen.append({name: float(one[0, 0]) for name, one in measured.pictures.items()})
            return np.zeros(11)

    donor = Seen([None], [None], [{"head_rgb": np.full((1, 1), 9.0)}])
    check(Watching(), ("head_rgb", "depth"))
    with pytest.raises(UserError, match="has no hand_rgb; it has depth, laser, head_rgb, hand_"):
        check(Watching(), ("hand_rgb",))
    run(Blinded(Watching(), donor, ("head_rgb",)), [0.5, 0.6])
    assert seen == [{"head_rgb": 9.0, "hand_depth": 1.0}] * 2


def test_without_a_donor_all_readings_are_shown_and_recorded() -> None:
    looking = Looking()
    policy = Blinded(looking)
    run(policy, [0.5, 0.6])
    assert looking.shown == [(0.5, 7.0), (0.6, 7.0)]
    run(policy, [0.25])  # another run
    assert [float(depth[0, 0]) for depth in policy.seen.depth if depth is not None] == [0.25]


def test_a_blinded_policy_acts_differently_and_the_report_states_it(tmp_path: Path) -> None:
    network = dataclasses.replace(STATE, encoder="nature_cnn", encoder_width=4, visual_width=8)
    agent = trained(tmp_path / "agent", "pick", "fetch", network=network, depth=(36, 36))
    found = {}
    for name, words in (("sees", []), ("blind", ["blind=depth"])):
        out = tmp_path / name
        line = ["eval", "pick", f"agent={agent}", "num_episodes=2", "num_objects=12"]
        limits = ["protocol.alone.pick.steps=12", "processes=1"]
        assert cli.main([*line, *limits, *words, f"out={out}"]) == 0
        found[name] = json.loads((out / "report.json").read_text())
        page = (out / "report.html").read_text()
        assert ("blind: depth replaced by those of another run" in page) == (name == "blind")
    assert "blind" not in found["sees"] and found["blind"]["blind"] == ["depth"]
    assert found["sees"]["dataset"] == found["blind"]["dataset"]
    assert found["sees"]["reward"] != found["blind"]["reward"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["blind=dept"], "blind: unknown value 'dept'; did you mean 'depth'?"),
        (["blind=depth,depth"], "blind: depth,depth contains a duplicate"),
        (["blind=depth"], "blind: the policy has no depth; it has none"),
        (["blind=laser", "agent=pretrained", "num_episodes=1"], "needs at least two runs"),
    ],
)
def test_an_invalid_blinding_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["eval", "pick", "num_episodes=2", *words, f"out={tmp_path / 'out'}"]
    assert cli.main(line) == 2
    assert message in capsys.readouterr().err
