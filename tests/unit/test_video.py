import imageio.v2 as imageio
import numpy as np
import pytest

from tpsrl.errors import UserError
from tpsrl.render.video import Caption, VideoWriter, colour_depth, compose_frame


def frame(value: int, height: int = 48, width: int = 64) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def read(path) -> tuple[dict, list[np.ndarray]]:
    with imageio.get_reader(path, format="FFMPEG") as reader:
        return reader.get_meta_data(), [np.asarray(picture) for picture in reader]


def test_written_video_has_the_frames_size_and_rate(tmp_path):
    path = tmp_path / "new" / "episode.mp4"
    with VideoWriter(path, fps=10) as video:
        for i in range(20):
            video.add(frame(10 * i))
    meta, frames = read(path)
    assert meta["size"] == (64, 48) and meta["fps"] == 10 and meta["codec"] == "h264"
    assert "yuv420p" in meta["pix_fmt"]
    assert len(frames) == 20
    assert [abs(float(f.mean()) - 10 * i) < 6 for i, f in enumerate(frames)] == [True] * 20
    assert [p.name for p in path.parent.iterdir()] == ["episode.mp4"]


def test_every_third_step_is_recorded_and_the_others_are_not_rendered(tmp_path):
    rendered = []

    def render(i: int) -> np.ndarray:
        rendered.append(i)
        return frame(0)

    with VideoWriter(tmp_path / "a.mp4", every=3) as video:
        for i in range(10):
            video.add(lambda i=i: render(i))
    assert rendered == [0, 3, 6, 9]
    assert len(read(tmp_path / "a.mp4")[1]) == 4


def test_exception_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError), VideoWriter(tmp_path / "a.mp4") as video:
        video.add(frame(0))
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_exception_keeps_the_video_of_an_earlier_run(tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"earlier")
    with pytest.raises(RuntimeError), VideoWriter(path) as video:
        video.add(frame(0))
        raise RuntimeError
    assert path.read_bytes() == b"earlier"


def test_video_without_frames_leaves_no_file(tmp_path):
    with VideoWriter(tmp_path / "a.mp4"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match="cannot write"),
        VideoWriter(tmp_path / "file" / "a.mp4"),
    ):
        pass


@pytest.mark.parametrize("arguments", [{"path": "a.avi"}, {"path": "a.mp4", "fps": 0}])
def test_bad_arguments_are_user_errors(arguments):
    with pytest.raises(UserError, match="video"):
        VideoWriter(**arguments)


@pytest.mark.parametrize("second", [frame(0, 50, 64), frame(0).astype(np.float32)])
def test_frame_of_another_shape_or_type_is_refused(tmp_path, second):
    with (
        pytest.raises(ValueError, match="frame"),
        VideoWriter(tmp_path / "a.mp4") as video,
    ):
        video.add(frame(0))
        video.add(second)


@pytest.mark.parametrize("shape", [(360, 480), (241, 333)])
def test_composed_frame_has_even_sides_and_shows_both_pictures(shape):
    picture = np.full((*shape, 3), 90, np.uint8)
    depth = np.full((64, 64), 0.2, np.float32)
    result = compose_frame(picture, depth, Caption())
    assert result.shape[0] % 2 == 0 and result.shape[1] % 2 == 0
    assert np.array_equal(result[: shape[0], : shape[1]], picture)
    panel = result[: shape[0] // 2, shape[1] + 2 : shape[1] + shape[0] // 2]
    assert np.array_equal(np.unique(panel.reshape(-1, 3), axis=0), [colour_depth(depth)[0, 0]])


def test_frame_shape_does_not_depend_on_the_caption():
    picture, depth = np.zeros((360, 480, 3), np.uint8), np.zeros((128, 128), np.float32)
    long = Caption("x" * 500, [("y" * 300, True)] * 9, ["z" * 200] * 40)
    plain = compose_frame(picture, depth, Caption())
    assert compose_frame(picture, depth, long).shape == plain.shape


def test_results_that_hold_are_green_and_others_red():
    picture, depth = np.zeros((360, 480, 3), np.uint8), np.ones((8, 8), np.float32)

    def colours(holds: bool) -> tuple[int, int]:
        bar = compose_frame(picture, depth, Caption(results=[("holding", holds)]))[360:].astype(int)
        red, green = bar[..., 0], bar[..., 1]
        return int((green > red + 60).sum()), int((red > green + 60).sum())

    assert colours(True)[0] > 50 and colours(True)[1] == 0
    assert colours(False)[1] > 50 and colours(False)[0] == 0


def test_depth_colours_get_darker_with_distance():
    lightness = colour_depth(np.linspace(0, 1, 256)[None]).astype(float) @ [0.2126, 0.7152, 0.0722]
    assert np.all(np.diff(lightness[0]) <= 1.0) and lightness[0, 0] - lightness[0, -1] > 150
