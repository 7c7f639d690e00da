"""Typed settings: a dataclass schema, YAML presets of `configs/`, and values by dotted key.

A schema is a dataclass whose fields are made by `option` and `preset`. The value of a preset field
is itself a dataclass: `configs/GROUP/NAME.yaml` fills it, `GROUP=NAME` chooses another preset, and
`GROUP.key=value` changes one entry. Some groups also accept a file of the user:
`GROUP=path/to/mine.yaml`. A preset with `based_on: OTHER` contains only its differences from OTHER.

`load` makes settings from values by dotted key. `parse` returns such values for words of the
command line, `flatten` for keyword arguments of Python.
"""

import dataclasses
import functools
import importlib.resources
import keyword
import math
import numbers
import os
import re
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, OmegaConfBaseException

from tpsrl.errors import UnknownKeyError, UserError, nearest, suggestion, unknown
from tpsrl.runtime import files

T = TypeVar("T")

MOST_PIXELS = 4096  # maximum height and width of a camera image
MOST_PROCESSES = 1024
MOST_EPISODES = 1_000_000
# Larger numbers are taken for typing errors: JSON does not keep larger integers exactly, and sums
# of larger floats lose precision.
MOST_WHOLE = 2**53
_SHORTEST = 2  # letters of a key for which a similar one is suggested
CONFIG = "config"  # key of the config.yaml of an earlier run
_DEEPEST = 50  # maximum nesting of lists and mappings
_MOST_YAML = 2**20  # maximum bytes of a file
_MOST_NODES = 100_000  # maximum values in a file, with aliases expanded
_MOST_DIGITS = 400  # maximum digits of an integer; Python limits the conversion to text
_EventLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MOST = 1e15


def option(
    default: Any,
    help: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    instead_of: str | None = None,
) -> Any:
    """Returns a dataclass field with a line of help and, for numbers, an inclusive range.

    Args:
        default: default value of the field
        help: line of help
        minimum: smallest valid number
        maximum: largest valid number
        instead_of: name of a field that this field replaces; giving both is an error
    """
    metadata = {"help": help, "minimum": minimum, "maximum": maximum, "instead_of": instead_of}
    return dataclasses.field(default=default, metadata=metadata)


def entries(make: Callable[[], Any], help: str) -> Any:
    """Returns a dataclass field with a line of help whose default is an empty list or mapping."""
    return dataclasses.field(default_factory=make, metadata={"help": help})


def some_of(keys: Callable[[], Mapping[str, str]] | None, help: str) -> Any:
    """Returns a dataclass field annotated `dict[str, Any]`; `FIELD.key=value` sets one entry.

    `keys` returns the help of each valid key. If it is None, the code that uses the field checks
    the keys.
    """
    return dataclasses.field(default_factory=dict, metadata={"help": help, "some_of": keys})


def preset(
    group: str,
    schema: type,
    default: str | None,
    help: str,
    *,
    minimum: float | None = None,
    files: bool = False,
) -> Any:
    """Returns a dataclass field filled from `configs/GROUP/NAME.yaml`.

    Args:
        group: folder of the presets in `configs/`
        schema: dataclass of the presets
        default: name of the default preset; None if the user must choose one
        help: line of help
        minimum: smallest valid number of every entry without a minimum in its own `option`
        files: also accept the path of a user's preset file (see `names_file`)
    """
    metadata = {"help": help, "group": group, "preset": default, "minimum": minimum, "files": files}
    return dataclasses.field(default_factory=schema, metadata=metadata)


def part(schema: type, help: str) -> Any:
    """Returns a dataclass field that is itself a dataclass; `FIELD.key=value` changes one entry."""
    return dataclasses.field(default_factory=schema, metadata={"help": help})


def table(make: Callable[[], type], help: str) -> Any:
    """Returns a dataclass field, annotated `Any`, whose class is known only at run time.

    `make` returns the dataclass; `FIELD.key=value` changes one entry.
    """
    return dataclasses.field(
        default_factory=lambda: make()(), metadata={"help": help, "make": make}
    )


def preset_names(group: str) -> list[str]:
    """Returns the sorted names of the presets in `configs/GROUP`."""
    files = [f.name for f in _presets(group).iterdir()]
    return sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml"))


def names_file(word: str) -> bool:
    """Returns whether a word is the path of a YAML file instead of the name of a preset."""
    return word.endswith((".yaml", ".yml")) or "/" in word or os.sep in word


def load_preset(group: str, name: str, schema: type[T]) -> T:
    """Loads one preset as an object of its schema; `name` may be the path of a file (`names_file`).

    Raises:
        UserError: there is no such preset, or its file does not match the schema.
    """
    if names_file(name):
        return typing.cast(T, OmegaConf.to_object(_read_own(group, group, Path(name), schema)))
    return typing.cast(T, OmegaConf.to_object(_read_preset(group, name, schema)))


def parse(words: Sequence[str]) -> dict[str, str]:
    """Returns the values of `key=value` words by key; the last word wins if a key is repeated.

    Raises:
        UserError: a word is not `key=value`.
    """
    values = {}
    for word in words:
        key, equals, value = map(str.strip, word.partition("="))
        if not equals or not key:
            raise UserError(f"'{word}': expected key=value")
        values[key] = value
    return values


def flatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of nested dictionaries by dotted key.

    The entry `name` of a dictionary chooses a preset:
    `{"preset": {"name": "cpu_small", "steps": 9}}` is `preset=cpu_small preset.steps=9`. Entries
    that are None are left out; paths are converted to strings, numpy numbers to Python numbers.

    Raises:
        UserError: a dictionary is nested too deeply.
    """
    try:
        return dict(_flattened(settings))
    except RecursionError:
        raise UserError("settings: a dictionary is nested too deeply, or contains itself") from None


def _flattened(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            entries = dict(value)
            yield from _flattened({key: entries.pop("name", None)}, prefix)
            yield from _flattened(entries, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", _plain(value)


def _plain(value: Any) -> Any:
    """Returns a value as the corresponding YAML type, or unchanged if there is none."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, bool | str):
        return value
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def load(schema: type[T], values: Mapping[str, Any], base: Path | None = None) -> T:
    """Loads settings from the schema's defaults, its presets, then the values.

    Args:
        schema: a dataclass
        values: values by dotted key; strings are parsed as on the command line. `config` names a
            file written by `to_yaml` and acts like `base`, except that the file's `out` is ignored
        base: a file written by `to_yaml`, to start from instead of defaults and presets

    Raises:
        UserError: a key or preset is unknown (names the nearest known one), or a value has the
            wrong type or is out of range.
    """
    values = {_field_name(key): _checked(key, value) for key, value in values.items()}
    if base is None and CONFIG in values and CONFIG not in {f.name for f in _fields(schema)}:
        base = _given_base(values.pop(CONFIG))
        values = {"out": None} | values if "out" in {f.name for f in _fields(schema)} else values
    groups = {f.name: f for f in _fields(schema) if "group" in f.metadata}
    config = OmegaConf.structured(schema)
    OmegaConf.set_readonly(config, False)
    if base is not None:
        config = _merge_file(config, schema, base)
    for name, field in groups.items():
        if base is not None and name not in values:
            continue
        selected = values.get(name, field.metadata["preset"])
        if base is not None and str(selected) == OmegaConf.select(config, f"{name}.name"):
            continue  # the file already contains this preset with its changes
        group = field.metadata["group"]
        if selected is None:
            raise UserError(f"{name}: choose one of {', '.join(preset_names(group))}")
        selected, kind = str(selected), _field_type(schema, name)
        if field.metadata["files"] and names_file(selected):
            config[name] = _read_own(name, group, Path(selected), kind)
        else:
            if selected not in preset_names(group):
                raise unknown(name, selected, preset_names(group))
            config[name] = _read_preset(group, selected, kind)
    for key, value in values.items():
        if key.removesuffix(".name") in groups and key not in groups:
            raise UserError(
                f"{key}: a preset's name cannot be changed; {key[:-5]}={value} selects another "
                "preset"
            )
        if key not in groups:
            config = _override(config, schema, key, value)
    for key in _leaf_keys(schema, mappings=False):
        check_range(schema, key, OmegaConf.select(config, key))
    _check_exclusive(schema, config, values)
    return typing.cast(T, OmegaConf.to_object(config))


def _check_exclusive(schema: type, config: Any, values: Mapping[str, Any]) -> None:
    """Refuses a value for a field that another given field replaces (`instead_of`)."""
    for field in _fields(schema):
        other, instead = field.metadata.get("instead_of"), config.get(field.name)
        if other is not None and instead is not None and other in values:
            raise UserError(f"{other}: replaced by {field.name}={instead}; leave {other} out")


def _given_base(path: Any) -> Path:
    """Returns the path of the file given as `config=FILE`.

    Raises:
        UserError: there is no such file.
    """
    found = files.user_path(path, CONFIG)
    if not found.is_file():
        raise UserError(f"{CONFIG}: there is no file '{path}'; name the config.yaml of a run")
    return found


def entry_of(path: Path, key: str) -> str:
    """Returns a top-level entry of a file written by `to_yaml`, or "" if there is none."""
    try:
        found: Any = _read_yaml(files.read_text(path, _MOST_YAML))
        return str(found.get(key) or "")
    except (OSError, ValueError, AttributeError, yaml.YAMLError, OmegaConfBaseException):
        return ""  # `load` reports the error


def differences(path: Path, settings: Any) -> dict[str, tuple[Any, Any]]:
    """Compares a file written by `to_yaml` with settings.

    Returns:
        The values in the file and in the settings, by dotted key, of entries that both have and in
        which they differ; empty if the file is missing or damaged.
    """
    try:
        there = _read_yaml(files.read_text(path, _MOST_YAML))
    except (OSError, ValueError, UserError, yaml.YAMLError, OmegaConfBaseException):
        return {}
    theirs, mine = (
        dict(dotted(OmegaConf.to_container(found)))  # type: ignore[arg-type]
        for found in (there, OmegaConf.create(to_yaml(settings)))
    )
    return {
        key: (theirs[key], value)
        for key, value in mine.items()
        if key in theirs and theirs[key] != value
    }


def to_yaml(settings: Any) -> str:
    """Returns resolved settings, a dataclass, as YAML in the order of the fields.

    Raises:
        UserError: a path is not valid UTF-8.
    """
    try:
        return OmegaConf.to_yaml(OmegaConf.create(dataclasses.asdict(settings)))
    except UnicodeEncodeError as error:  # a path made absolute in a folder with such a name
        raise UserError(f"'{error.object}' is not valid UTF-8; choose another folder") from None


def describe(schema: type, within: str = "") -> list[tuple[str, str, str]]:
    """Returns the name, the default or presets, and the help of each top-level key.

    With `within`, a key or a prefix of nested keys such as "preset.ppo", returns the same for each
    nested key; defaults are those of the default preset.

    Raises:
        UserError: there is no such key; names the nearest.
    """
    if within:
        return _describe_nested(schema, within)
    rows = []
    for field in _fields(schema):
        if "group" in field.metadata:
            group = field.metadata["group"]
            own = ["FILE.yaml"] if field.metadata["files"] else []
            value = field.metadata["preset"] or "|".join([*preset_names(group), *own])
        else:
            value = _shown(field.default)
        rows.append((_key(field.name), value, field.metadata.get("help", "")))
    return rows


def nested_keys(schema: type) -> list[str]:
    """Returns the top-level keys that have nested keys."""
    return [
        field.name
        for field in _fields(schema)  # tables always have nested keys; making their class is slow
        if field.metadata.keys() & {"make", "some_of"}
        or dataclasses.is_dataclass(_hints(schema)[field.name])
    ]


def _describe_nested(schema: type, within: str) -> list[tuple[str, str, str]]:
    """Returns the rows of `describe` for the keys nested in `within`."""
    keys = list(_leaf_keys(schema))
    chosen = [key for key in keys if key == within or key.startswith(f"{within}.")]
    if not chosen:
        inner = [key[:at] for key in keys for at, sign in enumerate(key) if sign == "."]
        raise unknown("--help", within, list(dict.fromkeys([*inner, *keys])))
    top = next(f for f in _fields(schema) if f.name == within.partition(".")[0])
    values = {}
    if name := top.metadata.get("preset"):
        chosen_preset = load_preset(top.metadata["group"], name, _field_type(schema, top.name))
        values = flat(chosen_preset, f"{top.name}.")
    rows = []
    for key in chosen:
        if not key.endswith(".name"):  # the name of a preset cannot be changed
            default, text = _leaf(schema, key)
            rows.append((key, _shown(values.get(key, default)), text))
    return rows


def _leaf(schema: Any, key: str) -> tuple[Any, str]:
    """Returns the default of a key and its help, or the help of the nearest enclosing key."""
    text, default = "", None
    names = key.split(".")
    for number, name in enumerate(names, 1):
        field = next(f for f in _fields(schema) if f.name == name)
        text, default = field.metadata.get("help", text), field.default
        if field.metadata.get("some_of") is not None and number < len(names):
            return None, field.metadata["some_of"]()[".".join(names[number:])]
        schema = _field_type(schema, name)
    return default, text


def _shown(value: Any) -> str:
    """Formats a default as it is typed on the command line; "" for None."""
    if value is None or value is dataclasses.MISSING:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _key(name: str) -> str:
    """Returns the command-line key of a field: "import" for `import_`."""
    bare = name.removesuffix("_")
    return bare if keyword.iskeyword(bare) else name


def flat(settings: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the entries of a dataclass and of nested dataclasses by dotted key."""
    result: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            result |= flat(value, f"{prefix}{field.name}.")
        elif "some_of" in field.metadata:
            result |= dict(dotted(value, f"{prefix}{field.name}."))
        else:
            result[prefix + field.name] = value
    return result


def dotted(entries: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values of nested mappings with their dotted keys."""
    for key, value in entries.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def preset_changes(group: str, settings: Any, default: str) -> dict[str, Any]:
    """Returns the entries, by dotted key, in which settings differ from the preset of their name.

    Settings from a user's own preset file are compared with the preset `default`, except for the
    name.
    """
    name = settings.name if settings.name in preset_names(group) else default
    found = changes(settings, load_preset(group, name, type(settings)))
    return {key: value for key, value in found.items() if key != "name"}


def changes(settings: Any, reference: Any) -> dict[str, Any]:
    """Returns the entries, by dotted key, in which a dataclass differs from another instance."""
    theirs, missing = flat(reference), object()
    mine = flat(settings).items()
    return {key: value for key, value in mine if value != theirs.get(key, missing)}


def _presets(group: str) -> Traversable:
    return importlib.resources.files("configs") / group


def _read_preset(group: str, name: str, schema: type, above: tuple[str, ...] = ()) -> Any:
    """Reads a preset's file over the preset named by `based_on`, or over the schema."""
    if name not in preset_names(group):
        raise unknown(group, name, preset_names(group))
    where = f"configs/{group}/{name}.yaml"
    text, base = _split_base((_presets(group) / f"{name}.yaml").read_text(), where)
    if base:
        if base not in preset_names(group):
            raise unknown(f"{where}: based_on", base, preset_names(group))
        if base in (*above, name):
            raise UserError(f"{where}: based_on: '{base}' is itself based on this preset")
        return _merged(_read_preset(group, base, schema, (*above, name)), text, where)
    return _of_text(tuple(_schemas(schema)), name, text, where)


@functools.lru_cache(maxsize=64)
def _of_text(schemas: tuple[Any, ...], name: str, text: str, where: str) -> Any:
    """Reads a preset's file over the first schema; all schemas are part of the cache key."""
    schema = schemas[0]
    # A schema may define values of a preset that are not in its file.
    filled = schema.for_preset(name) if hasattr(schema, "for_preset") else schema
    return _filled(filled, text, where)


def _split_base(text: str, where: str) -> tuple[str, str]:
    """Returns the text of a preset without its entry `based_on`, and the entry's value or ""."""
    lines = [line for line in text.splitlines() if line.startswith("based_on:")]
    if not lines:
        return text, ""
    if len(lines) > 1:
        raise UserError(f"{where}: based_on: given more than once")
    base = lines[0].partition(":")[2].partition("#")[0].strip()
    return text.replace(lines[0], "", 1), base


def _read_own(field: str, group: str, path: Path, schema: type) -> Any:
    """Reads a user's own preset; its default name is the stem of the file's name."""
    where = files.user_path(path, field)
    if where.is_dir():
        names = ", ".join(preset_names(group))
        raise UserError(f"{field}: {path} is a folder; must be a YAML file, or one of {names}")
    try:
        text = files.read_text(where, _MOST_YAML)
    except OSError as error:
        raise UserError(f"{field}: {path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise UserError(f"{field}: {path}: cannot be read (not a text file)") from None
    text, base = _split_base(text, str(path))
    if base and base not in preset_names(group):
        raise unknown(f"{path}: based_on", base, preset_names(group))
    below = _read_preset(group, base, schema) if base else _filled(schema, "", str(path))
    filled = _merged(OmegaConf.merge(below, {"name": ""}), text, str(path))
    filled.name = filled.name or path.stem
    if filled.name in preset_names(group):
        raise UserError(
            f"{path}: name: '{filled.name}' is the name of a built-in preset; choose another name"
        )
    return filled


def _filled(schema: Any, text: str, where: str) -> Any:
    """Returns a schema, or an object of a schema, updated from the text of a YAML file."""
    filled = OmegaConf.structured(schema)
    OmegaConf.set_readonly(filled, False)
    return _merged(filled, text, where)


def _merged(filled: Any, text: str, where: str) -> Any:
    """Returns settings updated from the text of a YAML file."""
    try:
        found = _read_yaml(text)
        for key in _mappings(OmegaConf.get_type(filled)):
            if isinstance(given := OmegaConf.select(found, key), str):
                raise UserError(
                    f"{where}: {key}: '{given}' is not a mapping such as {{KEY: VALUE}}"
                )
        return OmegaConf.merge(filled, found)
    except OmegaConfBaseException as error:
        raise _refused(where, text, error) from None
    except (TypeError, ValueError, OverflowError, yaml.YAMLError) as error:
        # The text is a list instead of a mapping, or not YAML.
        raise _unreadable(where, text, error) from None


def _refused(where: str, text: str, error: OmegaConfBaseException) -> UserError:
    """Returns the error of an invalid entry of a file."""
    list_wanted = "is not a ListConfig" in str(error)
    name = str(error.key or "") or str(error.full_key or "").rpartition(".")[2]
    place = where + _place(text, name, list_wanted)
    if isinstance(error, ConfigKeyError) and dataclasses.is_dataclass(error.object_type):
        known = [field.name for field in dataclasses.fields(error.object_type)]
        hint = suggestion(_nearest(str(error.key), known))
        return UserError(f"{place}: unknown key '{error.full_key}'{hint}")
    return UserError(f"{place}: {error.full_key}: {_cause(str(error).splitlines()[0])}")


_CAUSES = {  # patterns of omegaconf's messages, and their replacements
    r"Value '(.*)' of type '.*' could not be converted to Integer": r"'\1' is not an integer",
    r"Value '(.*)' of type '.*' could not be converted to Float": r"'\1' is not a number",
    r"Value '(.*)' is not a valid bool.*": r"'\1' is not true or false",
    r"Invalid value assigned: (?:AnyNode|str|int|float|bool) is not a ListConfig.*":
        "must be a list, such as [VALUE, VALUE]",
    r"Invalid value assigned: (?:AnyNode|str|int|float|bool) is not a (?:DictConfig|subclass).*":
        "must be a set of entries, such as {KEY: VALUE}",
    r"(?:field|child) '(.*)' is not Optional": "must have a value",
}  # fmt: skip


def _cause(message: str) -> str:
    for pattern, words in _CAUSES.items():
        if found := re.fullmatch(pattern, message):
            return found.expand(words)
    return message


def _place(text: str, key: str, container: bool = False) -> str:
    """Returns ", line L, column C" of the only entry named `key` in a YAML text, "" if ambiguous.

    With `container`, entries that are themselves lists or mappings are ignored.
    """
    found = []
    waiting = [yaml.compose(text, Loader=yaml.SafeLoader)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                waiting.append(value)
                if name.value == key and not (container and isinstance(value.value, list)):
                    found.append(name.start_mark)
    return _marked(found[0]) if len(found) == 1 else ""


def _marked(mark: Any) -> str:
    return f", line {mark.line + 1}, column {mark.column + 1}"


def _unreadable(where: str, text: str, error: Exception) -> UserError:
    """Returns the error of a text that is not YAML, or not a mapping."""
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return UserError(f"{where}: cannot be read ({str(error).splitlines()[0]})")
    cause = getattr(error, "problem", None) or "not YAML"
    line = text.splitlines()[mark.line : mark.line + 1]
    if line and line[0][mark.column : mark.column + 1] == "\t":
        cause = "a tab; indent with spaces"
    return UserError(f"{where}{_marked(mark)}: cannot be read ({cause})")


def _merge_file(config: Any, schema: Any, path: Path) -> Any:
    """Returns settings updated from a file written by `to_yaml`.

    A schema whose entries differ from those of earlier versions has a method `of_earlier`, which
    converts the old entries.
    """
    text = ""
    try:
        text = files.read_text(path, _MOST_YAML)
        found = _read_yaml(text)
        entries = OmegaConf.to_container(found)
        if hasattr(schema, "of_earlier") and isinstance(entries, dict):
            found = OmegaConf.create(schema.of_earlier(entries))
        return OmegaConf.merge(config, found)
    except OmegaConfBaseException as error:
        raise _refused(str(path), text, error) from None
    except (OSError, TypeError, ValueError, OverflowError, yaml.YAMLError) as error:
        raise _unreadable(str(path), text, error) from None


def _field_name(key: str) -> str:
    """Returns the field name of a key: `import_` for "import"."""
    return f"{key}_" if keyword.iskeyword(key) else key


def _checked(key: str, value: Any) -> Any:
    """Returns a value after checking that it can be written into a file.

    Raises:
        UserError: the value is an integer of too many digits, a reference, or not valid UTF-8.
    """
    if isinstance(value, int) and abs(value) >= 10**_MOST_DIGITS:
        raise UserError(f"{key}: a number of more than {_MOST_DIGITS} digits is out of range")
    if not isinstance(value, str):
        return value
    if "${" in value:
        raise UserError(f"{key}: '{value}' is a reference; give the value itself")
    check_text(key, value)
    return value


def check_text(key: str, value: str) -> None:
    """Refuses a string that cannot be written into a file, such as a path of arbitrary bytes.

    Raises:
        UserError: `value` is not valid UTF-8.
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UserError(f"{key}: '{value}' is not valid UTF-8") from None


def _override(config: Any, schema: type, key: str, given: Any) -> Any:
    if key in _mappings(schema):
        raise UserError(f"{key}: set its entries with {_entries(key, str(given))}")
    kind = _kind(schema, key)
    if given == "???":  # omegaconf's marker of a missing value
        raise UserError(f"{key}: '???' is not a value")
    value = _parse(key, given) if isinstance(given, str) and kind is not str else given
    nested: Any = value
    for part in reversed(key.split(".")):
        nested = {part: nested}
    try:
        return OmegaConf.merge(config, nested)
    except OverflowError:
        raise UserError(f"{key}: {given} is out of range, must be at most {_MOST:g}") from None
    except (OmegaConfBaseException, TypeError, ValueError):
        for one in (kind, *typing.get_args(kind)):  # a Literal may be inside an optional type
            if typing.get_origin(one) is typing.Literal:
                raise unknown(key, str(given), typing.get_args(one)) from None
        raise UserError(f"{key}: '{given}' is not {_named(kind)}") from None


def _entries(key: str, text: str) -> str:
    """Returns how to set a mapping's entries; parses the older form `KEY:VALUE,KEY:VALUE`."""
    pairs = [pair.partition(":") for pair in text.split(",")]
    if not all(colon for _, colon, _ in pairs):
        return f"{key}.KEY=VALUE"
    return " ".join(f"{key}.{name.strip()}={value.strip()}" for name, _, value in pairs)


def _named(kind: Any) -> str:
    """Describes a type in words."""
    names = {
        int: "an integer",
        float: "a number",
        bool: "true or false",
        str: "a text",
        list: "a list",
        dict: "a set of entries",
    }
    return names.get(typing.get_origin(kind) or kind, f"a {kind}")


def _read_yaml(text: str) -> Any:
    """Parses a YAML text whose top level is a mapping.

    References are refused, because a file may come from a stranger while the environment variables
    are the user's.

    Raises:
        ValueError: the text is nested so deeply that the parser would crash, has too many values,
            is a list or a single value, or contains a reference.
    """
    _check_size(text)
    try:
        found = OmegaConf.create(text)
    except AssertionError:
        raise ValueError("a single value, where entries are expected") from None
    if not OmegaConf.is_dict(found):
        raise ValueError("a list, where entries KEY: VALUE are expected")
    for value in _leaves(OmegaConf.to_container(found, resolve=False)):
        if isinstance(value, str) and "${" in value:
            raise ValueError(f"'{value}' is a reference; give the value itself")
    return found


def _leaves(tree: Any) -> Iterator[Any]:
    """Yields the keys and leaf values of nested containers."""
    if isinstance(tree, dict):
        yield from tree
        tree = list(tree.values())
    if not isinstance(tree, list):
        yield tree
        return
    for part in tree:
        yield from _leaves(part)


def _check_size(text: str) -> None:
    """Refuses a YAML text that is nested too deeply, or has too many values with aliases expanded.

    Raises:
        ValueError: the text exceeds one of the two limits.
        yaml.YAMLError: the text is not YAML.
    """
    inside: list[tuple[str | None, int]] = [(None, 0)]  # open collections: (anchor, values so far)
    sizes: dict[str | None, int] = {}  # number of values by anchor
    for event in yaml.parse(text, Loader=_EventLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            inside.append((event.anchor, 1))
            if len(inside) > _DEEPEST + 1:
                raise ValueError("nested too deeply")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, size = inside.pop()
            sizes[anchor] = size
        elif isinstance(event, yaml.AliasEvent):
            size = sizes.get(event.anchor, 1)
        else:
            size = int(isinstance(event, yaml.ScalarEvent))
        anchor, before = inside.pop()
        inside.append((anchor, before + size))
        if before + size > _MOST_NODES:
            raise ValueError(f"more than {_MOST_NODES:,} values")


def _parse(key: str, text: str) -> Any:
    try:
        _check_size(text)
        return OmegaConf.from_dotlist([f"value={text}"])["value"]
    except Exception:
        # The YAML and grammar errors that can be raised here share no base class.
        raise UserError(f"{key}: cannot read the value '{text}'") from None


def _kind(schema: type, key: str) -> Any:
    """Returns the type of a leaf key, without None if it is optional."""
    known = list(_leaf_keys(schema))
    if not known:
        raise UserError(f"unknown key '{key}'; this command has no settings")
    for mapping, keys in _mappings(schema).items():
        if key.startswith(f"{mapping}.") and (keys is None or key in known):
            return Any
    if key not in known:
        inside = [k for k in known if k.startswith(f"{key}.")]
        if inside:
            raise UserError(f"{key}: set one of its entries, such as {inside[0]}=...")
        raise UnknownKeyError(key, _nearest(key, known))
    kind: Any = schema
    for part in key.split("."):
        kind = _field_type(kind, part)
    if isinstance(kind, types.UnionType):
        kind = next(a for a in typing.get_args(kind) if a is not types.NoneType)
    return kind


def _nearest(key: str, known: Sequence[str]) -> str | None:
    """Returns the known key most similar to `key`, or None.

    Among the entries of the same group first, then in the last part, then as a whole.
    """
    given = key.lower().replace("-", "_")
    group, dot, last = given.rpartition(".")
    group += dot
    inside = {k.removeprefix(group).partition(".")[0] for k in known if k.startswith(group)}
    if found := _alike(last, inside):
        return group + found
    # If several keys share a last part, the first one is suggested.
    ends = {k.rpartition(".")[2]: k for k in reversed(known)}
    if not group and (found := _alike(last, ends)):
        return ends[found]
    whole = nearest(given, ends) or nearest(given, known)
    return ends.get(whole, whole) if whole else None


def _alike(word: str, names: Collection[str]) -> str | None:
    """Returns the name most similar to a word, or of which the word is the initials, or None."""
    if len(word) < _SHORTEST:
        return None
    initials = ("".join(part[:1] for part in name.split("_")) for name in sorted(names))
    named = dict(zip(initials, sorted(names), strict=True))
    return nearest(word, names) or named.get(word)


def check_range(schema: type, key: str, value: Any, within: str = "") -> None:
    """Refuses a number that is not finite or outside the range of a dataclass's field.

    Args:
        schema: the dataclass
        key: name of the field, dotted if nested
        value: value of the field; values that are not numbers are accepted
        within: prefix of the field's name in the message

    Raises:
        UserError: names the field and its range.
    """
    shown = f"{within}.{key}" if within else key
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{shown}: {value} is not a finite number")
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low = high = None
    owner: Any = schema
    for part in key.split("."):
        metadata = next(f for f in _fields(owner) if f.name == part).metadata
        inherited = metadata.get("minimum")
        low = low if inherited is None else inherited
        high = metadata.get("maximum")
        owner = _field_type(owner, part)
    most = MOST_WHOLE if isinstance(value, int) else _MOST
    if high is None and value > most:
        high = most
    elif low is None and value < -most:
        low = -most
    if (low is None or value >= low) and (high is None or value <= high):
        return
    limits = f"at least {_short(low)}" if high is None else f"at most {_short(high)}"
    if low is not None and high is not None:
        limits = f"between {_short(low)} and {_short(high)}"
    raise UserError(f"{shown}: {value} is out of range, must be {limits}")


def _short(number: float | None) -> str:
    return f"{number:g}" if isinstance(number, float) else str(number)


def _leaf_keys(schema: type, prefix: str = "", mappings: bool = True) -> Iterator[str]:
    """Yields the dotted keys of a schema, with or without those of its mappings (`some_of`)."""
    for field in _fields(schema):
        kind = _field_type(schema, field.name)
        if dataclasses.is_dataclass(kind):
            yield from _leaf_keys(typing.cast(type, kind), f"{prefix}{field.name}.", mappings)
        elif "some_of" not in field.metadata:
            yield prefix + field.name
        elif mappings:
            keys = field.metadata["some_of"]
            inner = [""] if keys is None else [f".{key}" for key in keys()]
            yield from (f"{prefix}{field.name}{key}" for key in inner)


def _schemas(schema: type) -> Iterator[type]:
    """Yields a schema and the schemas nested in it, some of which depend on registered skills."""
    yield schema
    for field in _fields(schema):
        kind = _field_type(schema, field.name)
        if dataclasses.is_dataclass(kind):
            yield from _schemas(typing.cast(type, kind))


def _mappings(schema: Any, prefix: str = "") -> dict[str, Any]:
    """Returns the fields made by `some_of`, by dotted key, with the functions of their keys."""
    found: dict[str, Any] = {}
    for field in _fields(schema):
        if "some_of" in field.metadata:
            found[prefix + field.name] = field.metadata["some_of"]
        elif dataclasses.is_dataclass(kind := _field_type(schema, field.name)):
            found |= _mappings(kind, f"{prefix}{field.name}.")
    return found


def _fields(schema: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(schema)


def _field_type(schema: type, name: str) -> Any:
    make = next(f for f in _fields(schema) if f.name == name).metadata.get("make")
    return _hints(schema)[name] if make is None else make()


@functools.lru_cache(maxsize=256)
def _hints(schema: type) -> dict[str, Any]:
    return typing.get_type_hints(schema)
