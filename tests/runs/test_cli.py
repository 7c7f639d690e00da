import dataclasses
import errno
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eval.running import filming
from tpsrl import cli, config
from tpsrl.commands import video
from tpsrl.errors import RunError, UserError
from tpsrl.runtime import notes
from tpsrl.training import checks, loading
from tpsrl.world.episode import load_episodes

ROOT = Path(__file__).parents[2]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name in ("eval", "video", "plan", "episodes", "bench sim", "warmup", "doctor"):
        assert f"  {name} " in printed


def test_a_call_without_command_prints_the_help_and_fails(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([]) == 2
    assert "usage: tpsrl COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["eval", "--help"]])
def test_help_does_not_import_heavy_packages(arguments: list[str]) -> None:
    heavy = ["mujoco", "numba", "torch", "scipy", "imageio"]
    code = (
        "import sys; from tpsrl import cli; "
        f"assert cli.main({arguments}) == 0; "
        f"assert not [m for m in {heavy} if m in sys.modules]"
    )
    done = run_python(code)
    assert done.returncode == 0, done.stderr


def test_scripted_evaluations_do_not_import_unused_packages(tmp_path: Path) -> None:
    # Only reports of scenarios need networkx, whose import takes half a second.
    evaluations = {
        "pick": ("alone.pick.steps", ["torch", "networkx"]),
        "navigate": ("alone.navigate.steps", ["torch", "networkx"]),
        "tidy_house": ("limits.episode_steps", ["torch"]),
    }
    lines = ["import sys", "from tpsrl import cli"]
    for word, (limit, unused) in evaluations.items():
        few = ["num_episodes=1", "processes=1", f"out={tmp_path / word}", f"protocol.{limit}=3"]
        lines.append(f"assert cli.main({['eval', word, *few]}) == 0")
        lines.append(f"assert not [m for m in {unused} if m in sys.modules], {word!r}")
    done = run_python("\n".join(lines))
    assert done.returncode == 0, done.stderr


_NO_SEED = {
    "doctor", "warmup", "report", "export", "convert", "hub push", "hub pull", "bench sim",
}  # fmt: skip


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_of_a_command_lists_its_keys(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert f"usage: tpsrl {command}" in printed
    assert ("  seed=0" in printed) == (command not in _NO_SEED)


def test_a_long_list_of_choices_keeps_the_columns_of_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["eval", "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (seed,) = [line for line in lines if line.startswith("  seed=0 ")]
    (at,) = [i for i, line in enumerate(lines) if line.startswith("  scenario=")]
    assert seed.index("seed of") < 45 and lines[at + 1].strip() == "name or file of the scenario"


def test_help_omits_the_key_that_the_word_has_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["eval", "pick", "--help"]) == 0
    assert "starts=" in (printed := capsys.readouterr().out) and "  skill=" not in printed


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", "--help", "preset.ppo"], r"  preset\.ppo\.gamma=0\.99 +discount factor"),
        (
            ["eval", "pick", "--help", "protocol"],
            r"  protocol\.skills\.pick\.rest_m=0\.15 +maximum",
        ),
        (["eval", "--help", "skills"], r"  skills\.pick= +policy of each skill"),
        (["train", "--help"], r"nested keys: tpsrl train --help preset"),
    ],
)
def test_help_lists_nested_keys_with_the_defaults_of_the_default_preset(
    arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 0
    assert re.search(line, capsys.readouterr().out)


def test_help_of_an_unknown_nested_key_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--help", "preset.pppo"]) == 2
    assert (
        "--help: unknown value 'preset.pppo'; did you mean 'preset.ppo'?" in capsys.readouterr().err
    )
    assert cli.main(["doctor", "--help", "preset"]) == 2


@pytest.mark.parametrize(
    "command", ["train pick", "clone pick demos=x", "eval tidy_house", "eval pick"]
)
def test_every_nested_key_has_a_line_of_help(command: str) -> None:
    settings = cli.parse(command.split())[1]
    for key in config.nested_keys(type(settings)):
        assert [row[0] for row in config.describe(type(settings), key) if not row[2]] == []


def test_help_of_a_command_group_lists_its_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["bench", "--help"]) == 0
    printed = capsys.readouterr().out
    assert "  bench sim " in printed and "  eval " not in printed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evl"], "command: unknown value 'evl'; did you mean 'eval'?"),
        (["bench", "sin"], "command: unknown value 'bench sin'; did you mean 'bench sim'?"),
        (["bench", "scale"], "command: 'bench scale' is now python -m benchmarks.scaling"),
        (["eval"], "tidy_house, tidy_house_reachable, all, navigate, "),
        (["eval", "seed=1"], "scenario: choose one of prepare_groceries, "),
        (["eval", "tidy_hose"], "skill: unknown value 'tidy_hose'; did you mean 'tidy_house'?"),
        (["eval", "pikc"], "scenario or skill: unknown value 'pikc'; did you mean 'pick'?"),
        (["eval", "pick", "skill=place"], "eval: 'pick' and skill=place contradict each other"),
        (
            ["eval", "tidy_house", "scenario=set_table"],
            "eval: 'tidy_house' and scenario=set_table contradict each other",
        ),
        (["eval", "pick", "protocol.skills.pick.rest_m=-1"], "-1.0 is out of range"),
        (["eval", "pick", "protocol.alone.pick.steps=0"], "0 is out of range, must be at least 1"),
        (["eval", "all", "protocol.episode_steps.set_table=0"], "0 is out of range"),
        (["eval", "pick", "protocol.name=m3"], "protocol=m3 selects another preset"),
        (["plan", "set_table", "protocol.predicates.robot_at_m=-2"], "-2.0 is out of range"),
        (["eval", "pointnav", "agent=scripted"], "unknown value 'scripted' (valid: "),
        (["eval", "pick", "replan=true"], "unknown key 'replan'"),
        (["eval", "tidy_house", "plan=nowhere.txt"], "plan: cannot read"),
        (["eval", "all", "episodes=x"], "unknown key 'episodes'"),
        (["eval", "pick", "domain=x"], "'domain'; `tpsrl eval` has it only for a single scenario"),
        (["eval", "pick", "init=x"], "key 'init'; it is a key of `tpsrl train`, `tpsrl distill`"),
        (
            ["view", "tidy_house", "num_objects=12"],
            "has it only for a single skill; did you mean 'scenario.num_objects'?",
        ),
        (["eval", "all", "starts=x"], "'starts'; `tpsrl eval` has it only for a single skill"),
        (["eval", "tidy_house", "agent=./"], "agent: . is a folder; must be a YAML file, or one"),
        (["eval", "pick", "agent=pretraind"], "did you mean 'pretrained'?"),
        (["video", "tidy"], "skill: unknown value 'tidy'; did you mean 'tidy_house'?"),
        (
            ["eval", "tidy_house", "split=test"],
            "unknown value 'test' (valid: rearranged, train, val)",
        ),
        (["eval", "tidy_house", "protocol=habitt"], "did you mean 'habitat'?"),
        (["eval", "tidy_house", "epsiodes=x"], "unknown key 'epsiodes'; did you mean 'episodes'?"),
        (["eval", "tidy_house", "num_episodes=-1"], "num_episodes: -1 is out of range"),
        (["eval", "tidy_house", "--seed=3"], "eval: unknown flag '--seed=3'"),
        (["eval", "tidy_house", "val"], "eval: unexpected argument 'val'"),
        (["eval", "nowhere/x.yaml"], "nowhere/x.yaml: cannot be read (No such file"),
        (["plan", "x.yaml"], "x.yaml: cannot be read (No such file or directory)"),
        (["plan", "tidy_house", "scenario.clutter=[024_bow]"], "did you mean '024_bowl'?"),
        (["plan", "tidy_house", "episode=x"], "episode: 'x' is not an integer"),
        (
            ["plan", "tidy_house", "episodes=/proc/nowhere/x.gz"],
            "episodes: cannot read /proc/nowhere/x.gz",
        ),
        (["doctor", "please"], "doctor: unexpected argument 'please'"),
        (
            ["clone", "pick", "demos=x", "frames=64", "validations=65"],
            "validations: 65 is too large for 64 frames",
        ),
        (
            ["clone", "pick", "demos=x", "frames=2", "rounds=2"],
            "rounds: 2 is too large for 2 frames",
        ),
        (["bank", "tidy_house", "out=\udcff"], "out: '\\udcff' is not valid UTF-8"),
        (["eval", "pick", "agent=a/\udcff/b"], "agent: 'a/\\udcff/b' is not valid UTF-8"),
        (["report", "\udcff"], "report: '\\udcff' is not valid UTF-8"),
        (["train"], "skill: choose one of navigate, pick, place, "),
        (["train", "pikc"], "skill: unknown value 'pikc'; did you mean 'pick'?"),
        (["train", "seed=1"], "skill: choose one of navigate, pick, place, "),
        (["train", "skill=pikc"], "skill: unknown value 'pikc'; did you mean 'pick'?"),
        (["demos", "skill=pikc"], "skill: unknown value 'pikc'; did you mean 'pick'?"),
        (["clone", "demos=x"], "skill: choose one of navigate, pick, place, "),
        (["export", "skill=pikc", "agent=x"], "skill: unknown value 'pikc'; did you mean 'pick'"),
        (["train", "pick", "depth=31"], "depth: 31 x 31 is too small, must be at least 32 x 32"),
        (["clone", "pick", "demos=x", "depth=31"], "depth: 31 x 31 is too small"),
        (["bench", "train", "task=pick", "depth=31"], "depth: 31 x 31 is too small"),
        (["train", "pick", "preset=cpu_smal"], "did you mean 'cpu_small'?"),
        (["train", "pick", "preset=nothere"], "preset: unknown value 'nothere' (valid: "),
        (["eval", "pick", "frobnicate=1"], "unknown key 'frobnicate'\n"),
        (["train", "pick", "preset.ppo.clip=-1"], "preset.ppo.clip: -1.0 is out of range"),
        (["train", "pick", "preset.ppo.clap=1"], "did you mean 'preset.ppo.clip'?"),
        (["train", "pick", "preset.policy.encoder=resnet81"], "did you mean 'resnet18'?"),
        (["train", "pick", "preset.collector=synk"], "did you mean 'sync'?"),
        (
            ["train", "pick", "preset=fine_tune", "preset.ppo.learning_rate=1e-3"],
            "preset.ppo.learning_rate: 0.001 is not between 1e-06 and 0.0002",
        ),
        (["train", "pick", "preset.ppo.entropy_coef=2"], "preset.ppo.entropy_coef: 2.0 is not"),
        (["train", "pick", "init=/proc/nowhere"], "init: no checkpoint /proc/nowhere"),
        (
            ["train", "resume=/proc/nowhere"],
            "resume: /proc/nowhere is not the folder of a training",
        ),
        (["train", "pick", "starts=/proc/nowhere/x.npz"], "cannot read /proc/nowhere/x.npz"),
    ],
)
def test_bad_input_gives_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("tpsrl: error: ")
    assert message in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize(
    ("word", "file", "key"),
    [
        ("domain=PATH/mine.pddl", "PATH/mine.pddl", "domain"),
        ("start_states=own:0.5,bank:PATH/pick:0.5", "PATH/pick/index.json", "start_states"),
        ("skills.pick=PATH/mine.py:Mine", "PATH/mine.py", "skills.pick"),
        ("PATH", "PATH/report.json", "view"),
        ("teacher=PATH/link/run", "PATH/real/run", "teacher"),
        ("out=elsewhere", "PATH", ""),
    ],
)
def test_an_unreadable_path_is_reported_with_its_key(
    word: str,
    file: str,
    key: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real")
    word, file = (text.replace("PATH", str(tmp_path)) for text in (word, file))

    def refused(arguments: list[str]) -> int:  # raised here, because root may read every file
        raise PermissionError(errno.EACCES, "Permission denied", file)

    monkeypatch.setattr(cli, "_dispatch", refused)
    assert cli.main(["view", word]) == (2 if key else 1)
    named = f"{key}: " if key else ""
    assert capsys.readouterr().err == f"tpsrl: error: {named}Permission denied: {file}\n"


@pytest.mark.parametrize(
    ("error", "lines"),
    [
        (None, ["tpsrl: it is kept here"]),
        (RunError("it failed"), ["tpsrl: it is kept here", "tpsrl: error: it failed"]),
        (UserError("seed: wrong"), ["tpsrl: error: seed: wrong"]),
    ],
)
def test_notes_are_printed_at_the_end_unless_the_input_is_invalid(
    error: Exception | None,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def noting(arguments: list[str]) -> int:
        notes.say("it is kept here")
        assert capsys.readouterr().err == ""
        if error is not None:
            raise error
        return 0

    monkeypatch.setattr(cli, "_dispatch", noting)
    cli.main(["plan"])
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize(
    "line",
    [
        "eval pick agent=BAD", "eval pick skills.pick=BAD", "eval skills agent=BAD",
        "eval skills skills.pick=BAD", "video pick agent=BAD", "export pick agent=BAD",
        "train pick init=BAD", "train pick start_states=BAD", "train pick starts=BAD",
        "train pick validation_starts=BAD", "train pick starts=own:BAD",
        "train pick validation_starts=own:BAD", "train pick start_states=bank:BAD",
        "train pick preset=cpu_state validation_starts=bank:BAD", "demos pick start_states=BAD",
        "demos pick start_states=bank:BAD", "eval pick starts=BAD", "eval pick starts=bank:BAD",
    ],
)  # fmt: skip
def test_an_invalid_file_is_reported_with_the_field_that_named_it(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.safetensors").write_bytes(b"no checkpoint and no snapshots")
    words = line.replace("BAD", "./bad.safetensors").split()
    assert cli.main([*words, "out=out"]) == 2
    field = words[-1].partition("=")[0]
    assert capsys.readouterr().err.startswith(f"tpsrl: error: {field}: ")
    assert [p.name for p in tmp_path.iterdir()] == ["bad.safetensors"]


@pytest.mark.parametrize(
    ("given", "count", "videos"), [([], 1, 1), (["num_episodes=3"], 3, 3), (["videos=2"], 2, 2)]
)
def test_video_films_every_episode(given: list[str], count: int, videos: int) -> None:
    command = video.choose("pick")
    settings = config.load(command.settings, {**config.parse(given), **command.fixed})
    filmed = filming.filmed(settings, "pick")
    assert (filmed.num_episodes, filmed.videos) == (count, videos)
    assert (filmed.skill, filmed.out) == ("pick", "out/videos/pick")


def test_a_word_and_its_key_choose_the_same_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    messages = []
    for first in ("set_table", "scenario=set_table"):
        assert cli.main(["eval", first, "episodes=/proc/nowhere/x.gz"]) == 2
        messages.append(capsys.readouterr().err)
    assert messages[0] == messages[1] and "cannot read /proc/nowhere/x.gz" in messages[0]


def test_a_scenario_file_in_the_presets_suffices_to_run_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "_presets", lambda group: tmp_path / group)
    (tmp_path / "scenario").mkdir()
    (tmp_path / "scenario" / "clear_chair.yaml").write_text(
        "name: clear_chair\nnum_objects: 1\n"
        "targets: [{objects: [024_bowl], starts: [chair], goals: [sofa]}]\n"
    )
    assert config.preset_names("scenario") == ["clear_chair"]
    out = tmp_path / "one.jsonl.gz"
    assert cli.main(["episodes", "clear_chair", "num=1", f"out={out}"]) == 0
    (episode,) = load_episodes(out)
    assert (episode.scenario, episode.objects[0].receptacle) == ("clear_chair", "chair")


def test_an_output_folder_that_is_a_file_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("mine")
    assert cli.main(["eval", "tidy_house", f"out={tmp_path}/file"]) == 2
    assert capsys.readouterr().err.startswith(f"tpsrl: error: out: cannot write into '{tmp_path}/")
    assert (tmp_path / "file").read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("raised", "code", "message"),
    [
        ("KeyboardInterrupt()", 130, "tpsrl: interrupted\n"),
        ("RunError('a worker died')", 1, "tpsrl: error: a worker died\n"),
        ("UserError('seed: too odd')", 2, "tpsrl: error: seed: too odd\n"),
        ("OSError(28, 'No room', 'a\\nb')", 1, "tpsrl: error: No room: a\\nb\n"),
    ],
)
def test_every_kind_of_end_has_its_exit_code_and_no_traceback(
    raised: str, code: int, message: str
) -> None:
    done = run_python(
        "import sys\n"
        "from tpsrl import cli\n"
        "from tpsrl.errors import RunError, UserError\n"
        "def end(arguments):\n"
        f"    raise {raised}\n"
        "cli._dispatch = end\n"
        "sys.exit(cli.main([]))"
    )
    assert (done.returncode, done.stderr) == (code, message)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is full")
def test_the_exit_code_is_kept_if_errors_cannot_be_printed() -> None:
    command = [sys.executable, "-m", "tpsrl", "eval", "pick", "seed=one"]
    with open("/dev/full", "w") as full:
        assert subprocess.run(command, stderr=full).returncode == 2


@pytest.mark.parametrize(("number", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_an_object_left_half_built_by_a_signal_prints_no_error(number: str, code: int) -> None:
    done = run_python(
        "import os, signal, sys\n"
        "from tpsrl import cli\n"
        # SIGINT is ignored in processes started in the background.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "class Half:\n"
        "    def __init__(self):\n"
        f"        os.kill(os.getpid(), signal.{number})\n"
        "        self.whole = True\n"
        "    def __del__(self):\n"
        "        self.whole\n"
        "cli._dispatch = lambda arguments: Half()\n"
        "sys.exit(cli.main([]))"
    )
    message = "tpsrl: terminated\n" if code == 143 else "tpsrl: interrupted\n"
    assert (done.returncode, done.stderr) == (code, message)


def test_a_closed_output_pipe_causes_no_traceback() -> None:
    command = f"{sys.executable} -m tpsrl --help | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 141)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("surroundings", "code", "out", "err"),
    [
        ("exec >&-", 0, "", ""),
        ("exec 2>&-", 2, "", ""),
        ("exec <&- >&- 2>&-", 2, "", ""),
        ("export NUMBA_NUM_THREADS=0", 2, "", "NUMBA_NUM_THREADS: '0' is not an integer >= 1"),
        ("export NUMBA_NUM_THREADS=a", 2, "", "NUMBA_NUM_THREADS: 'a' is not an integer >= 1"),
        ("export OMP_NUM_THREADS=abc", 2, "", "OMP_NUM_THREADS: 'abc' is not an integer >= 1"),
        ("export OMP_NUM_THREADS=", 2, "", "OMP_NUM_THREADS: '' is not an integer >= 1"),
        ("export OMP_NUM_THREADS=' 4 ,2'", 2, "", "scenario or skill: unknown value 'nothing'"),
        ("export TORCH_LOGS=foo", 2, "", "TORCH_LOGS: torch does not know 'foo'; unset it"),
        ("rmdir $PWD", 2, "", "the current folder no longer exists"),
    ],
)
def test_unusual_process_environments_cause_no_traceback(
    tmp_path: Path, surroundings: str, code: int, out: str, err: str
) -> None:
    (tmp_path / "here").mkdir()
    words = "--version" if code == 0 else "eval nothing"
    command = f"cd here; {surroundings}; exec {sys.executable} -m tpsrl {words}"
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stdout) == (code, out)
    assert done.stderr.startswith(f"tpsrl: error: {err}") if err else not done.stderr
    assert len(done.stderr.splitlines()) <= 1


@pytest.mark.parametrize("size", ["0", "00", "-1", "\N{SUPERSCRIPT TWO}", "9" * 9, ""])
def test_an_invalid_terminal_size_is_ignored(
    monkeypatch: pytest.MonkeyPatch, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", size)
    monkeypatch.setenv("LINES", size)
    assert cli.main(["--version"]) == 0
    assert "COLUMNS" not in os.environ and "LINES" not in os.environ
    monkeypatch.setenv("COLUMNS", "40")
    assert cli.main(["--version"]) == 0
    assert os.environ["COLUMNS"] == "40"


@pytest.mark.parametrize(
    ("words", "folder"),
    [
        (["pick", "resume=there"], "there"),
        (["pick", "resume=auto", "out=there"], "there"),
        (["pick", "resume=auto"], "out/train/pick"),
        (["skill=pick", "resume=auto"], "out/train/pick"),
    ],
)
def test_a_resumed_training_imports_the_modules_of_its_folder(
    words: list[str], folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / "config.yaml").write_text("skill_modules: /nowhere/mine.py\n")
    with pytest.raises(UserError, match="/nowhere/mine"):
        cli._with_user_code(words)


def test_a_recorded_config_reproduces_the_settings(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    for command in ("eval", "video"):
        settings = cli.parse([command, "pick", "num_episodes=3", "blind=depth"])[1]
        path.write_text(config.to_yaml(settings))
        assert cli.parse([command, f"config={path}"])[1] == settings
        settings = cli.parse([command, "set_table", "num_episodes=3"])[1]
        path.write_text(config.to_yaml(settings))
        assert cli.parse([command, f"config={path}"])[1] == settings


def test_a_training_is_resumed_in_its_own_folder_only(tmp_path: Path) -> None:
    folder, other = tmp_path / "there", tmp_path / "elsewhere"
    with pytest.raises(
        UserError, match=rf"out: resume={folder} continues in {folder}; remove out="
    ):
        loading.training({"resume": str(folder), "out": str(other)})
    with pytest.raises(UserError, match="is not the folder of a training"):
        loading.training({"resume": str(folder), "out": f"{other}/../there"})


def test_input_folders_of_a_training_are_stored_as_absolute_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"skill": "pick", "demos": "demos/a, demos/b", "teacher": "teachers/pick"}
    found = checks.checked(loading.training(given))
    assert found.demos == f"{tmp_path}/demos/a,{tmp_path}/demos/b"
    assert found.teacher == f"{tmp_path}/teachers/pick"
    assert (
        checks.checked(loading.training(given | {"teacher": "pretrained"})).teacher == "pretrained"
    )


@pytest.mark.parametrize("given", ["nonsense", "egl", "osmesa"])
def test_importing_mujoco_works_with_any_value_of_mujoco_gl(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """MuJoCo alone cannot be imported with an unknown value or a value without its library."""
    monkeypatch.setenv("MUJOCO_GL", given)
    code = "from tpsrl import cli; cli.main(['--version']); import mujoco; mujoco.MjModel"
    done = run_python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_doctor_reports_that_this_machine_can_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "the embedded engine can run" in printed
    assert "libx264" in printed


def test_doctor_names_a_missing_package_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import importlib.metadata

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: ["numpy>=999", "no-such-one"])
    assert cli.main(["doctor"]) == 1
    printed = capsys.readouterr().out
    assert "missing: numpy: pip install 'numpy>=999'" in printed
    assert "missing: no-such-one: pip install 'no-such-one'" in printed


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory. Tried to allocate"),
        type("FatalError", (Exception,), {})("Could not allocate memory"),  # MuJoCo's
    ],
)
def test_running_out_of_memory_is_reported_in_one_line(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(settings: object) -> int:
        raise error

    module = importlib.import_module("tpsrl.commands.doctor")
    monkeypatch.setattr(module, "COMMAND", dataclasses.replace(module.COMMAND, run=run))
    assert cli.main(["doctor"]) == 1
    assert capsys.readouterr().err == "tpsrl: error: there is not enough memory\n"


def test_other_runtime_errors_are_not_reported_as_lack_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def run(settings: object) -> int:
        raise RuntimeError("a shape does not fit")

    module = importlib.import_module("tpsrl.commands.doctor")
    monkeypatch.setattr(module, "COMMAND", dataclasses.replace(module.COMMAND, run=run))
    with pytest.raises(RuntimeError, match="a shape"):
        cli.main(["doctor"])
