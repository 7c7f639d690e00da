import gzip
import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tpsrl.errors import UserError
from tpsrl.runtime import files


def test_an_atomic_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.mp4"
    with files.atomic(path) as temporary:
        temporary.write_text("half")
        assert temporary.suffix == ".mp4" and not path.exists()
    assert path.read_text() == "half"
    assert list(path.parent.iterdir()) == [path]


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, what in ((pipe, "a device or a pipe"), (tmp_path, "a folder")):
        with (
            pytest.raises(FileExistsError, match="not a regular file"),
            files.atomic(path) as temporary,
        ):
            temporary.write_text("new")
        with pytest.raises(UserError, match=f"^out: '{path}' is {what}; name a file$"):
            files.output_file(path)
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(error), files.atomic(path) as temporary:
        temporary.write_text("new")
        raise error
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_temporary_files_of_a_killed_writer_are_removed_by_the_next_write(tmp_path: Path) -> None:
    path = tmp_path / "a[1].json"
    ended = subprocess.Popen(["true"])
    ended.wait()
    with files.atomic(path) as temporary:
        name = temporary.name
    own, gone, parent = (str(number) for number in (os.getpid(), ended.pid, os.getppid()))
    strays = [name.replace(f".{own}.", f".{process}.") for process in (gone, parent)]
    # A file of another host, where a running process may have this id.
    elsewhere = f".a[1].{gone}.0123abcd.tmp.json"
    other = strays[0].replace("a[1]", "b")
    for stray in (*strays, elsewhere, other):
        (tmp_path / stray).touch()
    files.write_text(path, "{}")
    left = {found.name for found in tmp_path.iterdir()}
    assert left == {strays[1], elsewhere, other, "a[1].json"}


@pytest.mark.parametrize("name", ["x" * 243 + ".jsonl.gz", "ü" * 125 + ".json", "x" * 255])
def test_a_file_may_have_a_name_of_the_maximum_length(tmp_path: Path, name: str) -> None:
    files.write_text(tmp_path / name, "whole")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_block_that_writes_nothing_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    with files.atomic(path):
        pass
    assert path.read_text() == "old"


def test_a_durable_file_is_synced_to_the_disk_before_it_is_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    names_at_sync: list[list[str]] = []
    monkeypatch.setattr(
        files.os, "fsync", lambda file: names_at_sync.append([p.name for p in tmp_path.iterdir()])
    )
    with files.atomic(path, durable=True) as temporary:
        temporary.write_text("new")
    assert names_at_sync == [[temporary.name]]


def test_a_json_file_is_replaced_completely_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    files.write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        files.write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_a_user_error_that_names_the_field(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^trace: cannot write '.*/file/below.txt' "):
        files.write_text(tmp_path / "file" / "below.txt", "", field="trace")


def test_a_folder_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"^out: cannot write into "):
        files.check_writable(tmp_path / "file" / "below")


def test_checking_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    assert files.check_writable(tmp_path / "new" / "deep") == tmp_path / "new" / "deep"
    files.check_writable(tmp_path / "old")
    assert [path.name for path in tmp_path.iterdir()] == ["old"]


def test_ranks_may_check_the_same_missing_folder_concurrently(tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        checks = [threads.submit(files.check_writable, tmp_path / "out") for _ in range(400)]
        assert {check.result() for check in checks} == {tmp_path / "out"}
    assert list(tmp_path.rglob("*.*")) == []


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("~nosuchuser/x", "out: '~nosuchuser' names an unknown user"),
        ("a/" + "b" * 256, f"out: '{'b' * 20}...' has 256 bytes, must have at most 255"),
        ("é" * 128, f"out: '{'é' * 20}...' has 256 bytes, must have at most 255"),
        ("a\0b", r"out: a path must not contain null bytes, got 'a\x00b'"),
    ],
)
def test_an_impossible_path_is_refused(path: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        files.user_path(path)
    assert str(refused.value) == message


def test_a_path_may_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert files.user_path("~/x") == tmp_path / "x"
    assert files.user_path("b" * 255) == Path("b" * 255)


def test_data_is_read_compressed_or_not(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"plain")
    assert files.read_data(path, "episodes") == b"plain"
    path.write_bytes(gzip.compress(b"packed"))
    assert files.read_data(path, "episodes", most=6) == b"packed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(bytes(10**7), mtime=0), "has more than 1,000 bytes"),  # 10 kB compressed
        (bytes(1001), "has more than 1,000 bytes"),
        (gzip.compress(b"packed", mtime=0)[:-3], "is corrupt or truncated"),
        (b"\x1f\x8bnone", "is corrupt or truncated"),
    ],
)
def test_data_that_is_too_large_or_damaged_is_refused(
    content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(content)
    with pytest.raises(UserError, match=f"^episodes: {path} {message}"):
        files.read_data(path, "episodes", most=1000)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/dev/zero", "/dev/zero is not a file"),
        ("/proc", "/proc is not a file"),
        ("/proc/nowhere", "cannot read /proc/nowhere: No such file or directory"),
    ],
)
def test_paths_that_are_not_regular_files_are_not_read(path: str, message: str) -> None:
    with pytest.raises(UserError, match=f"^episodes: {message}$"):
        files.read_data(path, "episodes")


def test_outputs_that_cannot_be_replaced_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    files.check_replaceable(tmp_path, ("a", "none"))
    os.mkfifo(tmp_path / "pipe")
    for name, folder in (("pipe", tmp_path), ("zero", Path("/dev"))):
        with pytest.raises(UserError, match=f"out: {folder}/{name} is not a regular file"):
            files.check_replaceable(folder, ("a", name))


def test_pipes_and_devices_are_refused_before_they_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a file"):
            files.plain(path)
    for path in (tmp_path, tmp_path / "absent"):  # reading these raises a clear error
        assert files.plain(str(path)) == path


def test_a_new_folder_must_be_absent_or_empty(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "astray").symlink_to("nowhere")
    for name in ("full", "full/file", "loop", "astray"):
        with pytest.raises(UserError, match=f"^out: {tmp_path}/{name} already exists"):
            files.new_folder(tmp_path / name)
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name, found in (("new", "new"), ("empty", "empty"), ("link", "empty"), ("a/b", "a/b")):
        assert files.new_folder(tmp_path / name) == tmp_path / found
    assert not (tmp_path / "new").exists() and not (tmp_path / "a").exists()


def test_arrays_that_unpack_to_more_than_the_limit_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, a=np.zeros(100_000), b=np.zeros(100_000))
    assert path.stat().st_size < 10_000
    with pytest.raises(OSError, match="more than 1,000,000 bytes unpacked"):
        files.open_arrays(path, most=1_000_000)
    with files.open_arrays(path, most=1_000_000, whole=False) as found:
        assert found["b"].shape == (100_000,)
    with pytest.raises(OSError, match="more than 500,000 bytes"):
        files.open_arrays(path, most=500_000, whole=False)
    np.save(tmp_path / "alone.npy", np.zeros(3))
    with pytest.raises(ValueError, match="a single array"):
        files.open_arrays(tmp_path / "alone.npy")


def test_an_integer_beyond_the_range_of_floats_is_refused() -> None:
    largest = "9" * 308
    assert files.parse_json(f"[{largest}, -3]") == [int(largest), -3]
    with pytest.raises(ValueError, match="a number of 309 digits"):
        files.parse_json(f'{{"a": [1.5, {"9" * 309}]}}')
