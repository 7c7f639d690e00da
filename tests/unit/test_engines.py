"""Capabilities of engines, and what is refused or left out where a capability is missing."""

import dataclasses
from collections.abc import Callable

import pytest
from full_report import full_report, rendered

from eval.running import analysis
from eval.running.bank import make_bank
from eval.settings import BankSettings, EvalSettings
from skills.envs.options import EnvOptions
from tpsrl import config, sim
from tpsrl.errors import UserError
from tpsrl.sim import engines
from tpsrl.sim.warp import checks
from tpsrl.world.cameras import PICTURES

Limit = Callable[..., None]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Returns a function that reduces the capabilities of the engine `mujoco`."""

    def change(**fewer: object) -> None:
        known = engines.info("mujoco")
        capabilities = dataclasses.replace(known.capabilities, **fewer)  # type: ignore[arg-type]
        changed = dataclasses.replace(known, capabilities=capabilities)
        monkeypatch.setitem(engines.ENGINES, "mujoco", changed)

    return change


def settings(**given: object) -> EvalSettings:
    return config.load(EvalSettings, {"scenario": "tidy_house", **given})


def test_an_unknown_engine_is_refused_with_the_nearest_name() -> None:
    for ask in (engines.info, sim.make, sim.stamp):
        with pytest.raises(UserError, match=r"engine: .*mujoko.*mujoco"):
            ask("mujoko")


def test_an_engine_without_its_packages_is_refused_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(checks, "missing", lambda: list(checks.PACKAGES))
    for ask in (sim.make, sim.make_batch, sim.versions):
        with pytest.raises(UserError) as caught:
            ask("warp")
        assert str(caught.value) == (
            "engine: 'warp' needs mujoco_warp and warp, not installed here; pip install tpsrl[warp]"
        )


def test_an_engine_without_exact_snapshots_makes_no_bank(limit: Limit) -> None:
    limit(exact_snapshots=False)
    with pytest.raises(UserError, match=r"^engine: a bank of exit states needs exact snapshots"):
        make_bank(config.load(BankSettings, {"scenario": "tidy_house"}))


def test_an_analysis_is_reported_as_left_out_only_if_the_engine_prevents_it(limit: Limit) -> None:
    assert analysis.left_out(settings()) == ""
    limit(exact_snapshots=False)
    assert analysis.left_out(settings()).startswith("left out, because engine 'mujoco' cannot")
    assert analysis.left_out(settings(replan=True)) == ""
    assert analysis.left_out(settings(analysis_episodes=0)) == ""


def test_a_page_states_the_reason_for_a_missing_analysis() -> None:
    report = full_report()
    for key in ("analysis", "handoff_matrix", "repairs", "repair_all", "blame", "propagation"):
        report[key] = None
    report["analysis_left_out"] = analysis.NO_SNAPSHOTS.format(engine="other")
    html = rendered(report)
    assert "Left out, because engine &#39;other&#39; cannot restore a home" in html


def test_a_sensor_that_the_engine_does_not_measure_is_refused(limit: Limit) -> None:
    limit(measures=frozenset({"motion"}))
    for given, refused in (
        ({"sensors": "teacher"}, "^sensors: engine 'mujoco' .* clearance, .*; nearest: fetch$"),
        ({"settings": {"near": 1.0}}, "^task.near: engine 'mujoco' .* neighbours; nearest: 0$"),
        ({"critic": True}, "^preset.policy.critic: engine 'mujoco' .* clearance, .*: false$"),
    ):
        options = EnvOptions.of("pick", **given, slots=12)
        with pytest.raises(UserError, match=refused):
            options.simulator(1)


def test_images_that_an_engine_lacks_are_refused_with_the_available_ones() -> None:
    engines.require_cameras("mujoco", PICTURES)
    engines.require_cameras("habitat", ["head_depth"])
    with pytest.raises(
        UserError, match=r"^cameras: engine 'habitat' has no hand_depth; it has head_depth$"
    ):
        engines.require_cameras("habitat", ["head_depth", "hand_depth"])
