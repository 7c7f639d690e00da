import dataclasses
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from tpsrl import config
from tpsrl.errors import UserError


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    total: int = config.option(3000, "all control steps", minimum=1)
    distance_m: float = 0.5


@dataclasses.dataclass(frozen=True, slots=True)
class Rules:
    name: str = ""
    limits: Limits = dataclasses.field(default_factory=Limits)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    rules: Rules = config.preset("rules", Rules, "strict", "which rules")
    split: Literal["train", "val"] = config.option("val", "which layouts")
    num_episodes: int = config.option(20, "how many", minimum=1, maximum=500)
    replan: bool = config.option(False, "plan again after a failure")
    out: str | None = config.option(None, "folder")


@pytest.fixture(autouse=True)
def presets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary `configs` folder with two presets; returns its subfolder `rules`."""
    folder = tmp_path / "configs" / "rules"
    folder.mkdir(parents=True)
    (folder / "strict.yaml").write_text("name: strict\nlimits: {total: 100}\n")
    (folder / "loose.yaml").write_text("name: loose\n")
    monkeypatch.setattr(config, "_presets", lambda group: tmp_path / "configs" / group)
    return folder


def test_defaults_come_from_the_schema_and_the_preset() -> None:
    settings = config.load(Settings, {})
    assert settings == Settings(rules=Rules("strict", Limits(total=100)))


def test_an_override_outranks_a_preset_in_any_order() -> None:
    settings = config.load(Settings, config.parse(["rules.limits.total=7", "rules=loose"]))
    assert settings.rules == Rules("loose", Limits(total=7))


def test_the_last_of_two_overrides_wins() -> None:
    assert (
        config.load(Settings, config.parse(["num_episodes=3", "num_episodes=4"])).num_episodes == 4
    )


def test_values_are_converted_to_the_type_of_their_field() -> None:
    settings = config.load(
        Settings, config.parse(["replan=true", "out=007", "rules.limits.distance_m=1"])
    )
    assert settings.replan is True
    assert settings.out == "007"
    assert isinstance(settings.rules.limits.distance_m, float)


def test_a_value_may_contain_an_equals_sign() -> None:
    assert config.load(Settings, config.parse(["out=a=b"])).out == "a=b"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("num_episode=3", "unknown key 'num_episode'; did you mean 'num_episodes'?"),
        (
            "rules.limits.totl=3",
            "unknown key 'rules.limits.totl'; did you mean 'rules.limits.total'?",
        ),
        ("total=3", "unknown key 'total'; did you mean 'rules.limits.total'?"),
        ("num.episodes=3", "unknown key 'num.episodes'; did you mean 'num_episodes'?"),
        (
            "rulse.limits.totl=3",
            "unknown key 'rulse.limits.totl'; did you mean 'rules.limits.total'?",
        ),
        (
            "rules.limits.dm=3",
            "unknown key 'rules.limits.dm'; did you mean 'rules.limits.distance_m'?",
        ),
        ("ruls=3", "unknown key 'ruls'; did you mean 'rules'?"),
        ("rules.limits=3", "rules.limits: set one of its entries, such as rules.limits.total=..."),
        ("rules=lose", "rules: unknown value 'lose'; did you mean 'loose'? (valid: loose, strict)"),
        ("split=vall", "split: unknown value 'vall'; did you mean 'val'? (valid: train, val)"),
        ("num_episodes=few", "num_episodes: 'few' is not an integer"),
        ("num_episodes=2.5", "num_episodes: '2.5' is not an integer"),
        ("num_episodes=", "num_episodes: '' is not an integer"),
        ("num_episodes=[1", "num_episodes: cannot read the value '[1'"),
        ("num_episodes=0", "num_episodes: 0 is out of range, must be between 1 and 500"),
        ("rules.limits.total=0", "rules.limits.total: 0 is out of range, must be at least 1"),
        ("rules.limits.distance_m=nan", "rules.limits.distance_m: nan is not a finite number"),
        ("rules.limits.distance_m={a: 1}", "rules.limits.distance_m: '{a: 1}' is not a number"),
        ("replan=perhaps", "replan: 'perhaps' is not true or false"),
        ("out=${split}", "out: '${split}' is a reference; give the value itself"),
        ("num_episodes", "'num_episodes': expected key=value"),
        ("=3", "'=3': expected key=value"),
    ],
)
def test_a_bad_override_is_refused_in_one_line_with_key_and_value(
    override: str, message: str
) -> None:
    with pytest.raises(UserError) as error:
        config.load(Settings, config.parse([override]))
    assert str(error.value) == message


def test_an_unknown_value_without_a_near_match_has_no_suggestion() -> None:
    with pytest.raises(UserError, match=r"^unknown key 'qqq'$"):
        config.load(Settings, {"qqq": 1})
    with pytest.raises(UserError, match=r"^rules: unknown value 'zzz' \(valid: loose, strict\)$"):
        config.load(Settings, {"rules": "zzz"})


def test_a_written_settings_file_is_loaded_by_the_key_config(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    made = config.load(Settings, {"rules": "strict", "rules.limits.total": "77", "out": "there"})
    path.write_text(config.to_yaml(made))
    assert config.load(Settings, {"config": str(path), "out": "there"}) == made
    again = config.load(Settings, {"config": str(path), "rules": "strict", "num_episodes": 9})
    assert again == dataclasses.replace(made, num_episodes=9, out=None)
    assert config.load(Settings, {"config": str(path), "rules": "loose"}).rules.name == "loose"
    with pytest.raises(UserError, match="config: there is no file 'nowhere'; name the"):
        config.load(Settings, {"config": "nowhere"})


def test_a_preset_that_does_not_fit_its_schema_is_refused_with_file_and_position(
    presets: Path,
) -> None:
    (presets / "strict.yaml").write_text("limits: {totl: 1}\n")
    message = r"^configs/rules/strict\.yaml, line 1, column 10: unknown key 'limits.totl'; did"
    with pytest.raises(UserError, match=message):
        config.load(Settings, {})


def test_a_preset_without_default_must_be_chosen() -> None:
    @dataclasses.dataclass
    class Choosing:
        rules: Rules = config.preset("rules", Rules, None, "which rules")

    with pytest.raises(UserError, match=r"^rules: choose one of loose, strict$"):
        config.load(Choosing, {})
    assert config.load(Choosing, config.parse(["rules=loose"])).rules.name == "loose"


def test_resolved_settings_as_yaml_hold_every_value() -> None:
    text = config.to_yaml(config.load(Settings, config.parse(["num_episodes=5"])))
    assert yaml.safe_load(text) == {
        "rules": {"name": "strict", "limits": {"total": 100, "distance_m": 0.5}},
        "split": "val",
        "num_episodes": 5,
        "replan": False,
        "out": None,
    }


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [([], {}), (["rules.limits.total=7"], {"limits.total": 7})],
)
def test_changes_are_the_entries_that_differ_from_the_preset(
    overrides: list[str], expected: dict[str, Any]
) -> None:
    rules = config.load(Settings, config.parse(overrides)).rules
    assert config.changes(rules, config.load_preset("rules", "strict", Rules)) == expected


@dataclasses.dataclass(frozen=True, slots=True)
class Open:
    rules: Rules = config.preset("rules", Rules, "strict", "which rules", files=True)
    names: list[str] = dataclasses.field(default_factory=list)
    shares: dict[str, float] = dataclasses.field(default_factory=dict)


def own(folder: Path, text: str, name: str = "mine.yaml") -> str:
    (folder / name).write_text(text)
    return f"rules={folder / name}"


def test_a_preset_may_be_a_file_and_is_named_after_it(tmp_path: Path) -> None:
    chosen = own(tmp_path, "limits: {total: 9}\n")
    assert config.load(Open, config.parse([chosen])).rules == Rules("mine", Limits(total=9))
    assert config.load(Open, config.parse([chosen, "rules.limits.total=5"])).rules.limits.total == 5
    path = str(tmp_path / "mine.yaml")
    assert config.load_preset("rules", path, Rules) == Rules("mine", Limits(total=9))


def test_a_file_where_only_names_are_allowed_is_refused_with_the_valid_names(
    tmp_path: Path,
) -> None:
    with pytest.raises(UserError, match=r"rules: unknown value .*valid: loose, strict"):
        config.load(Settings, config.parse([own(tmp_path, "")]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: loose", "name: 'loose' is the name of a built-in preset"),
        (
            "limits: {totl: 9}",
            "mine.yaml, line 1, column 10: unknown key 'limits.totl'; did you",
        ),
        ("limits: {total: few}", "column 10: limits.total: 'few' is not an integer"),
        ("- 1", r"mine.yaml: cannot be read \(a list, where entries KEY: VALUE are expected"),
        ("1.5", r"mine.yaml: cannot be read \(a single value, where entries are expected"),
        ("name: [1", "mine.yaml, line 2, column 1: cannot be read"),
        ("limits:\n\ttotal: 9", "mine.yaml, line 2, column 1: cannot be read .a tab; indent with"),
    ],
)
def test_an_invalid_preset_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        config.load(Open, config.parse([own(tmp_path, text)]))


@pytest.mark.parametrize("text", ["- 1", "3", "true", "!!set {a}", "name: [1", "\0"])
def test_an_invalid_settings_file_is_refused(tmp_path: Path, text: str) -> None:
    base = tmp_path / "config.yaml"
    base.write_text(text)
    with pytest.raises(UserError, match=r"config.yaml.*: cannot be read \("):
        config.load(Settings, {}, base)


def test_a_missing_preset_file_is_refused() -> None:
    with pytest.raises(UserError, match=r"gone.yaml: cannot be read \(No such file"):
        config.load(Open, config.parse(["rules=gone.yaml"]))


@pytest.mark.parametrize(
    ("override", "words"), [("names=3", "is not a list"), ("shares=3", "is not a set of entries")]
)
def test_a_number_in_place_of_a_list_or_a_mapping_is_refused(override: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        config.load(Open, config.parse([override]))


@pytest.mark.parametrize(
    "text",
    [
        "limits: " + "[" * 100_000,
        "limits: " + "{a: " * 100_000,
        "- " * 100_000,
        "\n".join(" " * i + "a:" for i in range(2000)),
        "limits: !!python/object/apply:os.system [id]",
        "limits: &a [*a]",
        "total: !!int x",
    ],
    ids=["lists", "mappings", "items", "indented", "tag", "alias", "no whole number"],
)
def test_yaml_that_could_crash_its_parser_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"^[^\n]*mine\.yaml[:,] [^\n]+$"):
        config.load_preset("rules", str(path), Rules)
    with pytest.raises(UserError, match=r"cannot read the value|expected key=value"):
        config.load(Limits, config.parse([f"total={text.partition(':')[2] or text}"]))


def test_settings_with_a_path_of_invalid_utf_8_are_refused_when_written() -> None:
    with pytest.raises(UserError, match=r"^'/a/\udcff/b' is not valid UTF-8; choose another"):
        config.to_yaml(Settings(out="/a/\udcff/b"))


@pytest.mark.parametrize(
    "text",
    ["limits: {total: '${oc.env:HOME}'}", "name: a ${oc.env:HOME} b", "name: [x, {a: '${name}'}]"],
)
def test_a_file_with_references_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=r"mine\.yaml: cannot be read \('.*\$\{.*is a refer"):
        config.load_preset("rules", str(path), Rules)
    with pytest.raises(UserError, match=r"is a reference"):
        config.load(Settings, {}, path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# " + "x" * 2**20, "more than 1,048,576 bytes"),
        (
            "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
            + "".join(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)),
            "more than 100,000 values",
        ),
        (f"limits: {{distance_m: 1{'0' * 400}}}", "too large to convert to float"),
    ],
)
def test_an_oversized_settings_file_or_value_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=rf"mine.yaml: cannot be read \(.*{message}"):
        config.load_preset("rules", str(path), Rules)
    path.write_text(text.replace("limits", "rules: {limits").replace("}", "}}"))
    with pytest.raises(UserError, match=rf"mine.yaml: cannot be read \(.*{message}"):
        config.load(Settings, {}, base=path)
