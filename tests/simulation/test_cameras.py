"""Cameras by name: requested pictures, observations of environments, inputs of policies."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from homes import IDLE, box_in_front
from tiny_policies import STATE, trained

from skills.core import cameras
from skills.core.inputs import PolicyInputs
from skills.core.interface import SkillGoal, sensed
from skills.demos import selecting, store
from skills.demos.recording import Actors, Recorder, RecorderFactory, RecordJob
from skills.demos.store import DemosNote, DemosWriter
from skills.envs.environment import SkillEnv
from skills.envs.options import EnvOptions
from skills.envs.training import TrainingVecEnv, TrainingVecEnvFactory
from skills.envs.vector import SkillVectorEnv
from skills.policies.learned import LearnedPolicy, load
from skills.policies.observing import ObservationPolicy
from skills.starts.start import Start
from tpsrl import config
from tpsrl.cli import main
from tpsrl.errors import UserError
from tpsrl.rl.envs.colours import ColouredVecEnv
from tpsrl.rl.envs.delay import DelayedVecEnvFactory
from tpsrl.rl.envs.serial_pool import SerialEnvPool
from tpsrl.training import loading, task
from tpsrl.training.task import env_options

NAMED = "head_rgb:20x24,hand_semantic:16,hand_instance:16,head_depth:20x24"
NETWORK = dataclasses.replace(STATE, encoder="nature_cnn", encoder_width=4, visual_width=8)
SEEN = "head_depth:36,head_rgb:36,hand_semantic:40"


def starts() -> list[Start]:
    return [Start(box_in_front(), SkillGoal(0))]


def test_pictures_have_a_fixed_order() -> None:
    found = cameras.parse(NAMED)
    assert list(found.items()) == [
        ("head_depth", (20, 24)),
        ("head_rgb", (20, 24)),
        ("hand_semantic", (16, 16)),
        ("hand_instance", (16, 16)),
    ]
    assert cameras.parse(cameras.text(found)) == cameras.parse(found) == found
    inputs = PolicyInputs.of("pick", cameras=NAMED)
    assert inputs.depth == (20, 24) and inputs.pictures == found
    assert inputs.sensors == PolicyInputs.of("pick", depth=64).sensors


def test_gaze_is_the_place_of_the_object_in_the_picture() -> None:
    episode, places = box_in_front(ahead=1.4), []
    (x, y, z), box = episode.objects[0].pos, episode.objects[0]
    for across in (-0.3, 0.25, 0.4):
        moved = dataclasses.replace(box, pos=(x, y + across, z))
        places.append(Start(dataclasses.replace(episode, objects=(moved,)), SkillGoal(0)))
    seen = SkillEnv(
        "pick", starts=places, num_objects=1, cameras="head_instance:99,head_depth:99",
        sensors="gaze",
    )  # fmt: skip
    for number in range(len(places)):
        found, _ = seen.reset(options={"start": number})
        right, down, distance = found["state"][seen.inputs.layout()["start_gaze"]]
        row, column = (int(99 * (place + 1.0) / 2.0) for place in (down, right))
        assert seen.batch.simulator.instances[found["head_instance"][row, column]] == "object_0"
        # The surface is before the centre of the box.
        assert 0.0 < distance - 10.0 * found["depth"][row, column] < 0.15


def test_depth_is_short_for_head_depth_among_cameras() -> None:
    assert PolicyInputs.of("pick", depth=64) == PolicyInputs.of("pick", cameras="head_depth:64")
    settings = loading.training({"skill": "pick", "cameras": "head_depth:48"})
    assert (settings.depth, settings.cameras) == (48, None)
    assert env_options(settings) == env_options(loading.training({"skill": "pick", "depth": 48}))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("head_dept:64", r"^cameras: unknown value 'head_dept'; did you mean 'head_depth'"),
        ("hand_rgb:0", r"^cameras: hand_rgb: 0 is not an integer >= 1"),
        ("hand_rgb:4x5x6", r"^cameras: hand_rgb: \(4, 5, 6\) is not an integer >= 1 or a \(height"),
        ("hand_rgb:ten", r"^cameras: hand_rgb: 'ten' is not an integer"),
        ("hand_rgb", r"^cameras: hand_rgb has no size; nearest: hand_rgb:64$"),
        ("head_rgb:64,head_rgb:32", r"^cameras: head_rgb is named twice$"),
        (f"head_rgb:{config.MOST_PIXELS + 1}", r"^cameras: head_rgb: \d+ is out of range"),
        ("", r"^cameras: name at least one; nearest: head_depth:64$"),
    ],
)
def test_an_invalid_camera_is_refused_with_the_nearest_one(given: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        EnvOptions.of("pick", cameras=given)


def test_a_network_without_images_has_pictures_for_the_maps_of_its_sensors() -> None:
    state = {"preset": "cpu_state", "depth": 48}
    for skill, sensors, expected in (
        ("pick", "full", None),
        ("objectnav", "full", None),
        ("objectnav", "mapping", (48, 48)),
        ("navigate", "mapping", (48, 48)),
        ("navigate", "fetch", None),
    ):
        settings = loading.training({**state, "skill": skill, "sensors": sensors})
        assert env_options(settings).inputs.depth == expected
    seeing = {"preset": "cpu_state", "skill": "objectnav", "sensors": "mapping"}
    pictures = {"cameras": "head_depth:32,head_category:32"}
    inputs = env_options(loading.training(seeing | pictures)).inputs
    assert inputs.pictures == {"head_depth": (32, 32), "head_category": (32, 32)}


def test_depth_and_cameras_together_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"^depth: contradicts cameras"):
        EnvOptions.of("pick", depth=64, cameras="head_rgb:64")
    for command in ("train", "distill", "clone", "demos"):
        assert main([command, "pick", "depth=64", "cameras=head_rgb:64"]) == 2
        error = capsys.readouterr().err
        assert "depth: replaced by cameras=head_rgb:64; leave depth out" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cameras=head_rgb:16"], "cameras: head_rgb: 16 x 16 is too small, must be at least 32"),
        (
            ["cameras=head_rgb:64", "preset.policy.encoder=state"],
            "cameras: preset.policy.encoder=state uses no images",
        ),
        (
            ["cameras=hand_rgb:64", "preset.policy.encoder=state", "sensors=mapping"],
            "=state uses images for the map of its sensors alone; nearest: cameras=head_depth:64",
        ),
        (["cameras=hand_rgb:64", "height_map=true"], "height_map: needs a depth camera"),
        (["colour_jitter=0.2"], "colour_jitter: no effect without a colour camera; try cameras="),
        (["cameras=hand_depth:64", "colour_noise=0.1"], "colour_noise: no effect without a colour"),
        (["cameras=hand_rgb:64", "engine=habitat"], "engine 'habitat' has no hand_rgb; it has"),
    ],
)
def test_trainings_refuse_settings_that_do_not_fit_their_cameras(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", "pick", "preset=cpu_small", *words, f"out={tmp_path / 'out'}", "processes=0"]
    assert main(line) == 2
    assert message in capsys.readouterr().err


def test_an_environment_shows_pictures_within_its_space() -> None:
    env = SkillEnv("pick", starts=starts(), num_objects=1, cameras=NAMED)
    space = env.observation_space
    assert list(space) == ["depth", "hand_instance", "hand_semantic", "head_rgb", "state"]
    assert (space["head_rgb"].shape, space["head_rgb"].dtype) == ((20, 24, 3), np.uint8)
    assert (space["hand_semantic"].shape, space["hand_semantic"].high.max()) == ((16, 16), 6)
    assert (space["hand_instance"].shape, space["hand_instance"].high.max()) == ((16, 16), 255)
    check_env(env, skip_render_check=True)
    shown, _ = env.reset(options={"start": 0})
    assert shown in space
    alone = SkillEnv("pick", starts=starts(), num_objects=1, depth=(20, 24))
    assert np.array_equal(alone.reset(options={"start": 0})[0]["depth"], shown["depth"])
    after, *_ = env.step(IDLE)
    assert after in space
    taken = env.batch.simulator.look([0], {"head_rgb": (20, 24)})["head_rgb"][0]
    assert np.array_equal(after["head_rgb"], taken)


def test_vector_environments_show_the_pictures_of_single_environments() -> None:
    several = SkillVectorEnv("pick", num_envs=2, starts=starts(), num_objects=1, cameras=NAMED)
    shown, _ = several.reset(seed=0, options={"start": 0})
    assert shown in several.observation_space
    one, _ = SkillEnv("pick", starts=starts(), num_objects=1, cameras=NAMED).reset(
        options={"start": 0}
    )
    for name, values in one.items():
        assert np.array_equal(shown[name], np.stack([values, values]))


def test_trainings_keep_pictures_as_bytes_and_a_delay_shows_the_previous_ones() -> None:
    options = EnvOptions.of("pick", starts=starts(), num_objects=1, cameras=NAMED)
    factory = TrainingVecEnvFactory(options, seed=0)
    plain, late = factory([0]), DelayedVecEnvFactory(factory)([0])
    assert plain.spec.classes == 7
    first = plain.reset([0])
    assert first["head_rgb"].dtype == np.uint8 and late.reset([0])["head_rgb"].dtype == np.uint8
    drive = np.ones((1, len(IDLE)), np.float32)
    now, before = plain.step([0], drive), late.step([0], drive)
    assert np.array_equal(before.observation["head_rgb"], first["head_rgb"])
    assert not np.array_equal(now.observation["head_rgb"], first["head_rgb"])


def test_a_training_with_changed_colours_shows_them_in_its_environments_alone() -> None:
    given = {"skill": "pick", "cameras": NAMED, "colour_jitter": 0.4, "colour_noise": 0.1}
    few = {"num_objects": 1, "num_episodes": 1, "validation_episodes": 1, "processes": 0}
    made, _, _ = task.make(loading.training(given | few))
    changed = made.factory([0])
    assert isinstance(changed, ColouredVecEnv)
    shown = changed.reset([0])["head_rgb"]
    assert not np.array_equal(shown, changed.vec_env.observe([0])["head_rgb"])
    assert made.validation is not None
    pool = made.validation([0])
    assert isinstance(pool, SerialEnvPool) and isinstance(pool._vec_env, TrainingVecEnv)
    pool.close()
    changed.close()


def test_a_policy_in_a_plan_receives_the_observations_of_its_training(tmp_path: Path) -> None:
    folder = trained(tmp_path / "one", "pick", network=NETWORK, cameras=SEEN)
    env = SkillEnv("pick", starts=starts(), num_objects=1, cameras=SEEN)
    shown, _ = env.reset(options={"start": 0})
    policy = LearnedPolicy("pick", folder, sample=False)
    assert policy.asks_engine and policy.pictures == ("head_rgb", "hand_semantic")
    policy.begin(env.episode, env.goal, env.world)
    depth, measured = sensed(policy, env.batch.simulator, 0)
    seen = policy._perception.observe(env.world, depth, measured)
    assert seen.keys() == shown.keys()
    assert all(np.array_equal(seen[name][0], shown[name]) for name in shown)
    observing = ObservationPolicy("pick", folder, sample=False)
    assert observing.keywords["cameras"] == cameras.parse(SEEN)
    acted = policy.act(env.world, *sensed(policy, env.batch.simulator, 0))
    np.testing.assert_allclose(observing.act(shown)[:10], acted[:10], atol=1e-6)
    assert load("pick", folder).deploy["cameras"] == {
        "head_rgb": (36, 36),
        "hand_semantic": (40, 40),
    }


def test_demonstrations_keep_every_picture(tmp_path: Path) -> None:
    options = EnvOptions.of("pick", starts=starts(), num_objects=1, horizon=4, cameras=NAMED)
    recorder = Recorder(RecorderFactory(options, 1, agent="scripted"))
    (recording,) = recorder.record(RecordJob((0,), Actors(disturbed=0.0), 0))
    writer = DemosWriter(tmp_path / "demos", DemosNote.of(recorder.inputs, {}))
    (tmp_path / "demos").mkdir()
    writer.add([recording])
    writer.finish()
    (found,) = store.read(tmp_path / "demos")
    kept, expected = found.demonstration.observation, recording.demonstration.observation
    assert kept.keys() == expected.keys() == {
        "state", "depth", "head_rgb", "hand_semantic", "hand_instance",
    }  # fmt: skip
    for name, values in expected.items():
        assert np.array_equal(kept[name], values) and kept[name].dtype == values.dtype
    wanted = PolicyInputs.of("pick", cameras="head_rgb:20x24")
    (chosen,) = selecting.load([str(tmp_path / "demos")], wanted)
    assert set(chosen.observation) == {"state", "head_rgb"}
    with pytest.raises(UserError, match=r"^cameras: .* has no hand_rgb of \(8, 8\); it has head_d"):
        selecting.load([str(tmp_path / "demos")], PolicyInputs.of("pick", cameras="hand_rgb:8"))


def test_a_training_initialised_from_a_checkpoint_uses_its_cameras(tmp_path: Path) -> None:
    folder = trained(tmp_path / "one", "pick", network=NETWORK, cameras=SEEN)
    plain = trained(tmp_path / "plain", "pick", network=NETWORK, depth=(36, 36))
    for key in ("init", "encoder"):
        settings = loading.training({"skill": "pick", key: str(folder)})
        assert settings.cameras == SEEN
        for given, message in (
            ({"depth": 36}, rf"^{key}: .* made with cameras={SEEN}; leave depth out$"),
            ({"cameras": "head_rgb:36"}, rf"head_rgb:36.*{SEEN}|{SEEN}.*head_rgb:36"),
        ):
            with pytest.raises(UserError, match=message):
                loading.training({"skill": "pick", key: str(folder), **given})
        same = {"skill": "pick", key: str(plain), "cameras": "head_depth:36"}
        assert loading.training(same) == loading.training(same | {"cameras": None})
        with pytest.raises(UserError, match="48"):
            loading.training(same | {"cameras": "head_depth:48"})


def test_a_recorded_configuration_keeps_its_cameras(tmp_path: Path) -> None:
    settings = loading.training({"skill": "pick", "cameras": NAMED})
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml(settings))
    again = loading.training({"skill": "pick", "config": str(path)})
    assert again.cameras == settings.cameras == cameras.text(cameras.parse(NAMED))
    with pytest.raises(UserError, match=r"^depth: replaced by cameras=.* leave depth out$"):
        loading.training({"skill": "pick", "config": str(path), "depth": 48})
