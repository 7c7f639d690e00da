import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tiny_policies import trained

from skills.policies import hub, learned, pretrained, shipped
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.rl.run import checkpoint


def ship(folder: Path, *skills: str) -> Path:
    """Returns a folder of shipped policies."""
    for skill in skills:
        made = shipped.make(skill, trained(folder / "training" / skill, skill))
        shipped.write(made, folder / "shipped")
    return folder / "shipped"


def call(*words: object) -> int:
    return cli.main(["hub", *map(str, words)])


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_policies_pushed_into_a_folder_can_be_pulled_and_act(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], prefix: str
) -> None:
    ours, repo = ship(tmp_path, "pick", "place"), tmp_path / "repository"
    assert call("push", ours, f"repo={prefix}{repo}") == 0
    assert capsys.readouterr().out == f"uploaded pick, place to {repo}\n"
    names = {"pick.safetensors", "pick.md", "place.safetensors", "place.md", "README.md"}
    assert {path.name for path in repo.iterdir()} == names
    assert call("pull", f"repo={prefix}{repo}", f"out={tmp_path}/got") == 0
    printed = capsys.readouterr().out
    assert f"evaluate it with `tpsrl eval pick agent={tmp_path}/got/pick.safetensors`" in printed
    for name in names - {"README.md"}:
        assert (tmp_path / "got" / name).read_bytes() == (ours / name).read_bytes()
    assert learned.load("pick", tmp_path / "got").digest == learned.load("pick", ours).digest
    assert call("pull", "place", f"repo={prefix}{repo}", f"out={tmp_path}/one") == 0
    assert {path.name for path in (tmp_path / "one").iterdir()} == {"place.safetensors", "place.md"}


def test_another_policy_is_replaced_only_if_requested(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo, out = ship(tmp_path / "theirs", "pick"), tmp_path / "out"
    agent = trained(tmp_path / "own", "pick", seed=2)
    export = ["export", "pick", f"agent={agent}", f"out={out}"]
    assert cli.main(export) == 0
    own = (out / "pick.safetensors").read_bytes()
    assert cli.main(export) == 0  # the same policy may be written again
    assert call("pull", f"repo={repo}", f"out={out}") == 2
    assert "choose another out, or set replace=true" in capsys.readouterr().err
    assert (out / "pick.safetensors").read_bytes() == own
    assert call("pull", f"repo={repo}", f"out={out}", "replace=true") == 0
    assert call("pull", f"repo={repo}", f"out={out}") == 0
    theirs = (out / "pick.safetensors").read_bytes()
    assert cli.main(export) == 2
    assert "pick.safetensors contains another policy" in capsys.readouterr().err
    assert (out / "pick.safetensors").read_bytes() == theirs
    assert cli.main([*export, "replace=true"]) == 0


def test_the_page_of_a_repository_describes_all_its_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, repo = ship(tmp_path, "pick", "place"), tmp_path / "repository"
    assert call("push", ours / "place.safetensors", f"repo={repo}") == 0
    assert "# place" in (repo / "README.md").read_text()
    monkeypatch.setattr(pretrained, "FOLDER", ours)
    assert call("push", "pick", f"repo={repo}") == 0
    page = (repo / "README.md").read_text()
    _, front, text = page.split("---\n", 2)
    header = yaml.safe_load(front)
    assert (header["library_name"], header["pipeline_tag"]) == ("tpsrl", "robotics")
    assert {"tpsrl", "pick", "place"} <= set(header["tags"])
    assert text.index("# pick") < text.index("# place") and "Not measured." in text
    assert call("push", "pretrained", f"repo={tmp_path}/all") == 0
    assert (tmp_path / "all/README.md").read_text() == page


def damaged(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def foreign(path: Path) -> None:
    path.write_bytes(b"\x80\x04" + b"hello" * 100)


def of_another_skill(path: Path) -> None:
    shutil.copy(path.with_name("pick.safetensors"), path)


def too_large(path: Path) -> None:
    with path.open("ab") as file:
        file.truncate(shipped.MOST_BYTES + 1)


def not_finite(path: Path) -> None:
    found = checkpoint.load(path)
    name = next(iter(found.tensors))
    found.tensors[name].fill_(float("nan"))
    checkpoint.save(path, found.tensors, found.note)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (damaged, "place.safetensors is truncated or not a checkpoint"),
        (foreign, "place.safetensors is truncated or not a checkpoint"),
        (of_another_skill, "place.safetensors: is a policy for pick, not for place"),
        (too_large, "place.safetensors: 8.0 MB, more than 8 MB"),
        (not_finite, "place.safetensors: action_head.log_std is not finite"),
    ],
)
def test_a_damaged_policy_is_refused_with_the_reason_and_nothing_is_written(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], None],
    message: str,
) -> None:
    repo = ship(tmp_path, "pick", "place")
    change(repo / "place.safetensors")
    for words in (("pull", f"repo={repo}"), ("push", repo, f"repo={tmp_path}/other")):
        assert call(*words, *([f"out={tmp_path}/got"] if words[0] == "pull" else [])) == 2
        printed = capsys.readouterr().err
        assert message in printed and printed.count("\n") == 1
    assert not list(tmp_path.glob("got/*")) and not (tmp_path / "other").exists()
    assert call("pull", "pick", f"repo={repo}", f"out={tmp_path}/got") == 0


SUCCESS: dict[str, Any] = {
    "mean": 0.5,
    "ci_low": 0.4,
    "ci_high": 0.6,
    "num_episodes": 100,
    "split": "val",
    "seed": 0,
    "starts": None,
    "num_objects": None,
    "dataset": "d",
    "protocol": "p",
    "version": "v",
    "failures": [],
    "command": "c",
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"success": {**SUCCESS, "mean": 1e308}},
            "card: success.mean: must be a number <= 1.0, got 1e+308",
        ),
        ({"steps": -5}, "card: steps: must be an integer >= 0, got -5"),
        ({"machine": "\ud800"}, "is not a checkpoint of tpsrl (JSON is malformed"),
    ],
)
def test_an_invalid_card_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], message: str
) -> None:
    repo = ship(tmp_path, "place")
    path = repo / "place.safetensors"
    found = checkpoint.load(path)
    found.note["card"] |= changes
    checkpoint.save(path, found.tensors, found.note)
    out = f"out={tmp_path}/got"
    pull, push = ("pull", f"repo={repo}", out), ("push", repo, f"repo={tmp_path}/other")
    for words in (["hub", *pull], ["hub", *push], ["export", "place", f"agent={path}", out]):
        assert cli.main([str(word) for word in words]) == 2
        printed = capsys.readouterr().err
        assert message in printed and printed.count("\n") == 1
        assert printed.startswith(
            tuple(f"tpsrl: error: {f}: " for f in ("repo", "hub push", "agent"))
        )
    assert not list(tmp_path.glob("got/*")) and not (tmp_path / "other").exists()


def test_a_policy_is_not_written_if_its_card_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = ship(tmp_path, "place")
    (tmp_path / "got/place.md").mkdir(parents=True)
    assert call("pull", f"repo={repo}", f"out={tmp_path}/got") == 2
    assert "place.md is not a regular file" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "got").iterdir()] == ["place.md"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["push"], "hub push: name a skill, or a folder of shipped policies"),
        (["push", "pick"], "repo: name the destination"),
        (["push", "pick", "repo=/x"], "skills.pick: no policy for pick is shipped"),
        (["push", "pikc", "repo=/x"], "'pikc' is neither a skill nor a folder of policies"),
        (["push", "pick", "repo=a/b/c"], "repo: 'a/b/c' is neither OWNER/NAME nor a folder"),
        (["push", "pick", "repo=here"], "repo: 'here' is neither OWNER/NAME nor a folder"),
        (["push", "pick", "repo=/x", "revision=v1"], "revision: the folder /x has no revisions"),
        (["pull"], "repo: name the source"),
        (["pull", "pikc", "repo=/x"], "skill: unknown value 'pikc'; did you mean 'pick'"),
        (["pull", "repo=/proc/nowhere"], "repo: contains no policy of a known skill"),
        (["pull", "pick", "repo=a/b"], "a/b is on the hub, which needs pip install 'tpsrl[hub]'"),
        (["pick"], "did you mean 'hub push'?"),
    ],
)
def test_invalid_calls_are_refused_in_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "none")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.chdir(tmp_path)
    assert call(*words) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_missing_policy_is_reported_by_skill(tmp_path: Path) -> None:
    repository = hub.open_repository(str(ship(tmp_path, "pick")))
    with pytest.raises(UserError, match="contains no policy for place, but for pick"):
        hub.pull(repository, tmp_path / "got", "place")


class NoSuchRepositoryError(Exception):
    """Stand-in of the hub's error for an unknown repository."""


class FakeApi:
    """Stand-in of the used huggingface_hub calls, with a folder for each commit."""

    root: Path
    commits: list[str]
    created: list[tuple[str, bool]]

    def model_info(self, name: str, revision: str | None, files_metadata: bool) -> Any:
        assert files_metadata
        if name != "some/where" or not self.commits:
            raise NoSuchRepositoryError("404 Client Error.\n\nRepository Not Found")
        sha = revision or self.commits[-1]
        if sha not in self.commits:
            raise ValueError(f"no revision {sha}\nfor sure")
        files = [
            types.SimpleNamespace(rfilename=path.name, size=path.stat().st_size)
            for path in (self.root / sha).iterdir()
        ]
        return types.SimpleNamespace(sha=sha, siblings=files)

    def hf_hub_download(self, name: str, file: str, revision: str) -> str:
        return str(self.root / revision / file)

    def create_repo(self, name: str, private: bool, exist_ok: bool) -> None:
        assert exist_ok
        self.created.append((name, private))

    def create_commit(
        self, name: str, operations: Any, commit_message: str, revision: str | None
    ) -> Any:
        sha = f"c{len(self.commits)}"
        folder = self.root / sha
        if self.commits:
            shutil.copytree(self.root / self.commits[-1], folder)
        folder.mkdir(parents=True, exist_ok=True)
        for file, content in operations:
            (folder / file).write_bytes(content)
        self.commits.append(sha)
        return types.SimpleNamespace(oid=sha)


def test_policies_are_pushed_to_and_pulled_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = types.ModuleType("huggingface_hub.errors")
    errors.RepositoryNotFoundError = NoSuchRepositoryError  # type: ignore[attr-defined]
    package: Any = types.ModuleType("huggingface_hub")
    package.HfApi, package.errors = FakeApi, errors
    package.CommitOperationAdd = lambda name, content: (name, content)
    monkeypatch.setitem(sys.modules, "huggingface_hub", package)
    monkeypatch.setitem(sys.modules, "huggingface_hub.errors", errors)
    monkeypatch.setattr(FakeApi, "root", tmp_path / "commits", raising=False)
    monkeypatch.setattr(FakeApi, "commits", [], raising=False)
    monkeypatch.setattr(FakeApi, "created", [], raising=False)
    ours = ship(tmp_path, "pick", "place")
    assert call("push", ours / "pick.safetensors", "repo=some/where", "private=true") == 0
    assert capsys.readouterr().out == "uploaded pick to some/where at c0\n"
    assert FakeApi.created == [("some/where", True)]
    assert call("push", ours / "place.safetensors", "repo=some/where") == 0
    assert "# pick" in (tmp_path / "commits/c1/README.md").read_text()
    capsys.readouterr()
    assert call("pull", "repo=some/where", "revision=c0", f"out={tmp_path}/first") == 0
    assert capsys.readouterr().out.startswith("from some/where at c0:\n")
    assert {path.suffix for path in (tmp_path / "first").iterdir()} == {".safetensors", ".md"}
    assert not (tmp_path / "first/place.md").exists()
    assert call("pull", "repo=some/where", f"out={tmp_path}/second") == 0
    got = (tmp_path / "second/place.safetensors").read_bytes()
    assert got == (ours / "place.safetensors").read_bytes()
    capsys.readouterr()
    assert call("pull", "repo=some/where", "revision=v9", f"out={tmp_path}/third") == 2
    assert capsys.readouterr().err == "tpsrl: error: repo: some/where: no revision v9\n"
    assert call("pull", "repo=some/other", f"out={tmp_path}/third") == 2
    assert "contains no policy of a known skill" in capsys.readouterr().err
