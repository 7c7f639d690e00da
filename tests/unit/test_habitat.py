import gzip
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from habitat_files import LAYOUT, receptacle, record, transform, write

from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.world.episode import Episode, load_episodes
from tpsrl.world.geometry import matrix_quat, quat_matrix
from tpsrl.world.habitat import read
from tpsrl.world.objects import object_kind


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    return lambda *records: write(tmp_path / "house.json.gz", *records)


def only(path: Path) -> Episode:
    found = read(path)
    assert found.refused == {}
    (draft,) = found.drafts
    return draft


def test_objects_have_the_poses_of_the_file(file: Callable[..., Path]) -> None:
    draft = only(file(record()))
    assert (draft.layout, draft.split, draft.scenario) == (LAYOUT, "train", "tidy_house")
    assert [o.receptacle for o in draft.objects] == ["counter_left", "table_1", "tv_stand"]
    for placed in draft.objects:
        on, kind = receptacle(placed.receptacle), object_kind(placed.name)
        assert placed.pos[2] - kind.half[2] == pytest.approx(on.surface, abs=0.002)
        turn = quat_matrix(placed.quat)
        assert turn[2, 2] == pytest.approx(1.0)
        assert math.atan2(turn[1, 0], turn[0, 0]) == pytest.approx(0.4)
    expected = receptacle("tv_stand").pos + receptacle("tv_stand").rotation @ (0.2, 0.0, 0.0)
    assert draft.objects[2].pos[:2] == pytest.approx(expected[:2].tolist())


def test_a_target_is_the_nth_object_of_its_kind(file: Callable[..., Path]) -> None:
    (target,) = only(file(record())).targets
    assert (target.object, target.receptacle) == (2, "table_1")
    expected = receptacle("table_1").pos + receptacle("table_1").rotation @ (0.3, 0.0, 0.0)
    assert target.goal[:2] == pytest.approx(expected[:2].tolist())


def test_objects_with_y_up_frames_are_imported_with_the_same_poses(
    file: Callable[..., Path],
) -> None:
    first = only(file(record()))
    objects = [
        [name, transform(name[:-19], on, aside, frame="y")]
        for (name, _), on, aside in zip(
            record()["rigid_objs"],
            ("counter_left", "table_1", "tv_stand"),
            (0.1, -0.3, 0.2),
            strict=True,
        )
    ]
    found = read(file(record(rigid_objs=objects)))
    assert found.frame == "y up"
    for a, b in zip(first.objects, found.drafts[0].objects, strict=True):
        assert a.pos == pytest.approx(b.pos) and a.quat == pytest.approx(b.quat)


def test_the_start_pose_of_the_robot_is_converted_from_habitats_frame(
    file: Callable[..., Path],
) -> None:
    turn = [0.0, math.sin(0.3), 0.0, math.cos(0.3)]
    draft = only(file(record(start_position=[1.5, 0.1, -2.0], start_rotation=turn)))
    assert draft.robot_start == pytest.approx((1.5, 2.0, 0.6))


def test_a_start_at_the_origin_is_marked_to_be_drawn(file: Callable[..., Path]) -> None:
    assert read(file(record())).start_drawn == {"house_7"}


def test_articulated_links_are_identified_by_habitats_numbers(file: Callable[..., Path]) -> None:
    states = {"fridge_:0000": {"2": 1.5, "1": 0.0}, "kitchen_counter_:0000": {"7": 0.4, "1": 0.3}}
    found = read(file(record(ao_states=states)))
    assert found.drafts[0].articulation == {"fridge_push_point": 1.5, "cab_push_point_5": 0.4}
    (closed,) = [what for what in found.changed if "closed" in what]
    assert closed.startswith("kitchen_counter/drawer1_bottom closed")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scene_id": "scenes/v3_sc4_staging_00.json"}, "unknown layout 'v3_sc4_staging_00'"),
        ({"rigid_objs": [["077_rubiks_cube.json", np.eye(4).tolist()]]}, "'077_rubiks_cube'"),
        ({"targets": {"004_sugar_box_:0002": np.eye(4).tolist()}}, "not one of the objects"),
        ({"ao_states": {"fridge_:0000": {"2": 2.9}}}, "fridge/top_door: 2.9"),
    ],
)
def test_an_unsupported_episode_is_left_out_with_the_reason(
    file: Callable[..., Path], changes: dict[str, Any], reason: str
) -> None:
    found = read(file(record(), record(episode_id="8", **changes)))
    assert len(found.drafts) == 1
    assert list(found.refused) == ["house_8"] and reason in found.refused["house_8"]


@pytest.mark.parametrize(
    ("stem", "scenario"),
    [
        ("house", "tidy_house"),
        ("tidy_house_10k_1k", "tidy_house"),
        ("rearrange_easy_10k_1k", "rearrange_easy_10k_1k"),
        ("all_receptacles_500_50", "all_receptacles_500_50"),
    ],
)
def test_a_dataset_of_another_kind_keeps_its_name(tmp_path: Path, stem: str, scenario: str) -> None:
    assert only(write(tmp_path / f"{stem}.json.gz", record())).scenario == scenario


def test_repeated_ids_are_made_unique_by_numbers(file: Callable[..., Path]) -> None:
    found = read(file(record(), record(), record(episode_id="8")))
    assert [draft.id for draft in found.drafts] == ["house_7", "house_7_at_1", "house_8"]
    assert found.changed["duplicate id, extended by a number"] == 1


def test_an_object_below_its_surface_is_raised_and_counted(file: Callable[..., Path]) -> None:
    soup = "005_tomato_soup_can"
    sunk = [[f"{soup}.object_config.json", transform(soup, "sofa", up=-0.03)]]
    goal = {f"{soup}_:0000": transform(soup, "table_1")}
    found = read(file(record(rigid_objs=sunk, targets=goal)))
    bottom = found.drafts[0].objects[0].pos[2] - object_kind(soup).half[2]
    assert bottom == pytest.approx(receptacle("sofa").surface, abs=0.002)
    assert found.changed["object raised by 1 to 10 cm onto its surface"] == 1


def test_a_receptacle_named_in_the_file_takes_precedence(
    file: Callable[..., Path],
) -> None:
    named = {"004_sugar_box_:0000": "counter|receptacle_aabb_counter_right_kitchen_counter"}
    draft = only(file(record(name_to_receptacle=named)))
    assert [o.receptacle for o in draft.objects] == ["counter_right", "table_1", "tv_stand"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"plain", "is damaged, or not JSON"),
        (gzip.compress(b"{}", mtime=0), "contains no episodes"),
        (gzip.compress(b'{"episodes": [{}]}', mtime=0), "episode 0: field 'scene_id' is missing"),
        (gzip.compress(b'{"episodes": [1]}', mtime=0)[:-4], "is corrupt or truncated"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "house.json.gz"
    path.write_bytes(data)
    with pytest.raises(UserError, match=message):
        read(path)
    with pytest.raises(UserError, match="cannot read"):
        read(tmp_path / "absent.json.gz")


def test_an_invalid_transform_is_refused_with_its_episode(file: Callable[..., Path]) -> None:
    with pytest.raises(UserError, match=r"episode 0: .*004_sugar_box must be 4 x 4"):
        read(file(record(rigid_objs=[["004_sugar_box.object_config.json", [[1.0]]]])))


def test_the_command_settles_and_writes_the_episodes(
    file: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = file(record(), record(episode_id="8", scene_id="Baked_sc1_staging_03"))
    out = tmp_path / "ours.jsonl.gz"
    assert cli.main(["episodes", f"import={source}", f"out={out}"]) == 0
    (episode,) = load_episodes(out)
    first = read(source).drafts[0]
    for a, b in zip(episode.objects, first.objects, strict=True):
        assert a.pos == pytest.approx(b.pos, abs=0.002)
    assert episode.robot_start != (0.0, 0.0, 0.0)
    printed = capsys.readouterr().out
    assert "1  robot's start drawn" in printed
    assert "house_8: unknown layout 'Baked_sc1_staging_03'" in printed
    assert "1 of 2 episodes (tidy_house, split train, 1 target)" in printed
    before = source.read_bytes()
    assert cli.main(["episodes", f"import={source}", f"out={source}"]) == 2
    assert "is the imported file" in capsys.readouterr().err
    assert source.read_bytes() == before


def test_an_import_without_a_usable_episode_fails(
    file: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, out = file(record(scene_id="elsewhere.json")), tmp_path / "ours.jsonl.gz"
    assert cli.main(["episodes", f"import={source}", f"out={out}"]) == 1
    assert not out.exists()
    assert "none of the 1 episodes" in capsys.readouterr().err


def test_a_quaternion_of_a_matrix_is_its_rotation() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        quat = rng.normal(size=4)
        turn = quat_matrix(quat)
        assert quat_matrix(matrix_quat(turn + rng.normal(size=(3, 3)) * 1e-6)) == pytest.approx(
            turn, abs=1e-5
        )


def scaled(factor: float) -> list[list[float]]:
    matrix = np.array(transform("004_sugar_box", "counter_left"))
    matrix[:3, :3] *= factor
    return matrix.tolist()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"targets": {}}, "no targets"),
        ({"rigid_objs": [], "targets": {}}, "0 objects, must be between 1 and 30"),
        ({"rigid_objs": record()["rigid_objs"] * 11}, "33 objects, must be between 1 and 30"),
        ({"start_position": [1500.0, 0.0, 1500.0]}, r"\(1500, -1500, 0\) is beyond 1000 m"),
        ({"start_position": [1e200, 0.0, 0.0]}, "is beyond 1000 m"),
        *(
            ({"rigid_objs": [["004_sugar_box", scaled(f)]], "targets": {}}, "is not a rotation")
            for f in (0.0, 1.1, 1e308)
        ),
        ({"targets": {"004_sugar_box_:0001": scaled(2.0)}}, "targets: .* is not a rotation"),
    ],
)
def test_an_episode_outside_the_limits_of_homes_is_left_out(
    file: Callable[..., Path], changes: dict[str, Any], reason: str
) -> None:
    found = read(file(record(**changes)))
    assert found.drafts == [] and list(found.refused) == ["house_7"]
    assert re.search(reason, found.refused["house_7"])


@pytest.mark.parametrize("name", ["\x1b[31mRED", "a\nb", "x" * 400])
def test_an_id_that_cannot_be_printed_is_refused(file: Callable[..., Path], name: str) -> None:
    with pytest.raises(UserError, match=r"house.json.gz: episode 0: episode_id: "):
        read(file(record(episode_id=name)))


def test_a_file_with_too_many_values_is_refused(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tpsrl.world.habitat._MOST_VALUES", 50)
    with pytest.raises(UserError, match=r"house.json.gz has more than 50 values"):
        read(file(record()))


def test_the_command_refuses_an_invalid_scenario_name(
    file: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["episodes", f"import={file(record())}", "scenario=../x"]) == 2
    assert "scenario: must have letters, digits" in capsys.readouterr().err
