"""The `tpsrl` command: finds the subcommand, reads its settings, runs it.

The module of a subcommand is imported only when the subcommand is called, so that help and errors
are printed without delay.
"""

import contextlib
import errno
import gc
import importlib
import itertools
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tpsrl
from tpsrl.commands import Command
from tpsrl.errors import RunError, UnknownKeyError, UserError, one_line, suggestion, unknown
from tpsrl.runtime import machine, notes, processes, shadowing, surroundings, temporaries

# Name: (module, arguments, one-line description).
COMMANDS = {
    "eval": (
        "tpsrl.commands.eval",
        "SCENARIO|SKILL|all|skills [key=value ...]",
        "evaluate a scenario or skill: success, stages, first causes, videos",
    ),
    "video": (
        "tpsrl.commands.video",
        "SCENARIO|SKILL [key=value ...]",
        "film episodes of a scenario or a skill",
    ),
    "plan": (
        "tpsrl.commands.plan",
        "SCENARIO [key=value ...]",
        "print an episode's PDDL plan with its preconditions",
    ),
    "view": (
        "tpsrl.commands.view",
        "SCENARIO|SKILL|DIR [key=value ...]",
        "show an episode in the browser",
    ),
    "episodes": (
        "tpsrl.commands.episodes",
        "SCENARIO [key=value ...]",
        "generate and check a dataset of episodes",
    ),
    "bank": (
        "tpsrl.commands.bank",
        "SCENARIO [key=value ...]",
        "save the states where each skill ends, as start states for the next",
    ),
    "report": (
        "tpsrl.commands.report",
        "DIR [DIR ...] [out=DIR]",
        "regenerate a report, or compare agents on the same episodes",
    ),
    "train": (
        "tpsrl.commands.train",
        "SKILL [key=value ...]",
        "train a skill by PPO; resume=DIR resumes a training",
    ),
    "distill": (
        "tpsrl.commands.distill",
        "SKILL teacher=DIR [key=value ...]",
        "distil a teacher of the true state into a policy with on-board sensors",
    ),
    "polish": (
        "tpsrl.commands.polish",
        "SCENARIO [SCENARIO ...] [key=value ...]",
        "train the skills of a chain from the states at their handoffs, in rounds",
    ),
    "demos": (
        "tpsrl.commands.demos",
        "SKILL [key=value ...]",
        "record demonstrations of a skill",
    ),
    "clone": (
        "tpsrl.commands.clone",
        "SKILL demos=DIR [key=value ...]",
        "train a policy on demonstrations (behaviour cloning, DAgger)",
    ),
    "export": (
        "tpsrl.commands.export",
        "SKILL agent=PATH [key=value ...]",
        "export a trained policy with its model card",
    ),
    "convert": (
        "tpsrl.commands.convert",
        "SKILL checkpoint=FILE.pth [out=DIR]",
        "convert a checkpoint of habitat-baselines",
    ),
    "hub push": (
        "tpsrl.commands.hub_push",
        "SKILL|FOLDER repo=REPOSITORY [key=value ...]",
        "upload exported policies to the Hugging Face hub, or a folder",
    ),
    "hub pull": (
        "tpsrl.commands.hub_pull",
        "[SKILL] repo=REPOSITORY [key=value ...]",
        "download policies from a hub repository, or a folder",
    ),
    "bench sim": (
        "tpsrl.commands.bench_sim",
        "[key=value ...]",
        "measure the speed of simulation",
    ),
    "bench train": (
        "tpsrl.commands.bench_train",
        "[key=value ...]",
        "measure the speed of training",
    ),
    "bench locomotion": (
        "tpsrl.commands.bench_locomotion",
        "[key=value ...]",
        "train ant and humanoid to run, and measure the time to the thresholds of the paper",
    ),
    "warmup": (
        "tpsrl.commands.warmup",
        "",
        "compile ahead of time",
    ),
    "doctor": (
        "tpsrl.commands.doctor",
        "",
        "check which parts of tpsrl this machine can run, and show missing requirements",
    ),
}

# Commands of earlier versions, and what replaced them.
_MOVED = {"bench scale": "python -m benchmarks.scaling, in a checkout of the repository"}

# Errors that are caused by the path itself, so that another path may work.
_OF_PATHS = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR,
    errno.EISDIR,
)  # fmt: skip

_WHOLE = (os.path.abspath, os.path.realpath)  # with and without symbolic links

_COLUMN = 40  # maximum width of the column of keys and defaults in a help text


def command() -> int:
    """Runs `main` and prepares the process for its exit; the console script's entry point."""
    code = main()
    for number in (signal.SIGTERM, signal.SIGINT):  # the process is exiting already
        signal.signal(number, signal.SIG_IGN)
    # With torch imported, the garbage collection at exit would take a second.
    gc.freeze()
    return code


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns the exit code.

    Exit codes are 0 (success), 1 (the run failed), 2 (bad input), 130 (interrupted), 141 (broken
    pipe) and 143 (terminated).
    """
    _open_streams()
    # Rendering does not use OpenGL. If its libraries are missing, or MUJOCO_GL was set for another
    # program, the import of mujoco would fail.
    os.environ["MUJOCO_GL"] = "disable"
    surroundings.let_threads_sleep()
    surroundings.forget_odd_sizes()
    with contextlib.suppress(AttributeError, ValueError):  # a replaced stream may not support this
        # File names may have characters that the terminal's encoding cannot represent.
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        shadowing.check()
        surroundings.check()
        with processes.ending_in_order(), notes.held():
            code = _dispatch(words)
            sys.stdout.flush()
        return code
    except (UserError, shadowing.ShadowedError) as error:
        _complain(f"tpsrl: error: {one_line(str(error))}")
        return 2
    except RunError as error:  # may contain a worker's traceback, so several lines
        _complain(f"tpsrl: error: {error}")
        return 1
    except processes.Terminated:
        _say_ended("terminated")
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        _say_ended("interrupted")
        return 130
    except BrokenPipeError:
        _drop_output()  # the reader (head, less) has closed the pipe
        return 141
    except OSError as error:  # such as an unusable path, a full disk, a lost network share
        given = _given(words, error)
        where = f": {error.filename}" if error.filename else ""
        reason = f"{error.strerror or error}{where}"
        _complain(f"tpsrl: error: {one_line(f'{given}: {reason}' if given else reason)}")
        _drop_output()
        return 2 if given else 1
    except Exception as error:
        if not machine.is_out_of_memory(error):
            raise
        _complain("tpsrl: error: there is not enough memory")
        return 1


def _given(words: Sequence[str], error: OSError) -> str:
    """Returns the key, variable or command that supplied the unusable path of an error, or ""."""
    if error.errno not in _OF_PATHS or not isinstance(error.filename, str | bytes):
        return ""
    places = [Path(path(os.fsdecode(error.filename))) for path in _WHOLE]
    pairs = [word.partition("=") for word in words[1:]]
    given = [
        (key if equals else words[0], value if equals else key) for key, equals, value in pairs
    ]
    given.append(("TPSRL_CACHE", os.environ.get("TPSRL_CACHE", "")))
    for key, value in given:
        for part in (value, *re.split("[,:@]", value)):
            own = os.path.expanduser(part)
            if part and any(at.is_relative_to(path(own)) for at in places for path in _WHOLE):
                return key
    return ""


def _say_ended(how: str) -> None:
    if "TORCHELASTIC_RUN_ID" not in os.environ:  # for ranks, their launcher prints it once
        _complain(f"tpsrl: {how}")


def _complain(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:  # a failing flush at Python's exit would change the exit code
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _open_streams() -> None:
    """Opens standard input, output and error on the null device where the caller has closed them.

    Otherwise a file that is opened later would take a standard descriptor, and `sys.stdin`,
    `sys.stdout` or `sys.stderr` would be None.
    """
    names = ("stdin", "stdout", "stderr")
    for number, name in enumerate(names):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is `number`
            if getattr(sys, name) is None:
                setattr(sys, name, open(number, "w" if number else "r", closefd=False))  # noqa: SIM115


def _drop_output() -> None:
    """Redirects the standard output to the null device if it cannot be flushed.

    Otherwise Python would print an error at exit.
    """
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0 if arguments else 2
    if arguments[0] in ("-V", "--version"):
        print(f"tpsrl {tpsrl.__version__}")
        return 0
    if arguments[0] in _families() and arguments[1:2] in (["-h"], ["--help"]):
        print(_usage(f"{arguments[0]} "))
        return 0
    name, command, rest = _find(arguments)
    help_at = next((at for at, word in enumerate(rest) if word in ("-h", "--help")), None)
    if help_at is not None:
        print(_command_usage(name, command, *rest[help_at + 1 : help_at + 2]))
        return 0
    with temporaries.own():
        return int(command.run(_load(name, command, rest)))


def parse(arguments: Sequence[str]) -> tuple[Command, Any]:
    """Returns the command that a command line calls and its checked settings.

    `command.run(settings)` then runs the command.

    Raises:
        UserError: there is no such command, or a setting is not valid.
    """
    name, command, rest = _find(list(arguments))
    return command, _load(name, command, rest)


def _find(arguments: list[str]) -> tuple[str, Command, list[str]]:
    """Returns the name of a command, the command, and the arguments of its settings."""
    words = 2 if arguments[0] in _families() else 1
    name, rest = " ".join(arguments[:words]), _with_user_code(arguments[words:])
    if name in _MOVED:
        raise UserError(f"command: '{name}' is now {_MOVED[name]}")
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    command, rest = _command(importlib.import_module(COMMANDS[name][0]), rest)
    return name, command, rest


def _with_user_code(arguments: list[str]) -> list[str]:
    """Registers the user's own modules; returns the arguments with absolute paths of files."""
    given = dict(a.split("=", 1) for a in arguments if "=" in a)
    own = {"skill_modules", "encoder_modules", "auxiliary_modules"}
    if not given.keys() & {*own, "resume", "config"}:
        return arguments
    from skills import user_code

    word = next((a for a in arguments if "=" not in a), "")
    whole = user_code.register(given, word)
    return [f"{_key(a)}={whole[_key(a)]}" if _key(a) in whole else a for a in arguments]


def _key(argument: str) -> str:
    return argument.partition("=")[0].strip()


def _load(name: str, command: Command, arguments: list[str]) -> Any:
    """Returns the settings of a command."""
    from tpsrl import config

    values = _values(name, command, arguments)
    for key, word in command.fixed.items():  # already chosen by the first word
        if values.get(key, word) != word:
            raise UserError(f"{name}: '{word}' and {key}={values[key]} contradict each other")
    for key in values.keys() & set(command.ignored):
        raise UserError(f"{key}: has no effect on `tpsrl {name}`; leave it out")
    values |= command.fixed
    try:
        if command.load is not None:
            return command.load(values)
        return config.load(command.settings, values)
    except UnknownKeyError as error:
        raise _of_others(name, command, error) from None


def _of_others(name: str, command: Command, error: UnknownKeyError) -> UserError:
    """Returns the error of an unknown key, extended by the commands that have the key."""
    top = error.key.partition(".")[0]
    if top in _keys_of(command):
        return error
    having = [other for other in COMMANDS if top in _keys(other)]
    if not having:
        return error
    if name in having:  # a key for scenarios, but the command was called for a skill or `all`
        return UserError(
            f"unknown key '{error.key}'; `tpsrl {name}` has it only for a single scenario"
        )
    if top in _keys(name, of_skill=True):
        nested = error.nearest if (error.nearest or "").endswith(f".{error.key}") else None
        skill = f"; `tpsrl {name}` has it only for a single skill"
        return UserError(f"unknown key '{error.key}'{skill}{suggestion(nested)}")
    calls = ", ".join(f"`tpsrl {other}`" for other in having)
    return UserError(f"unknown key '{error.key}'; it is a key of {calls}, not of `tpsrl {name}`")


def _keys(name: str, of_skill: bool = False) -> set[str]:
    """Returns the top-level keys of a command.

    If they depend on the target, those for scenarios, or for a skill with `of_skill`.
    """
    from tpsrl import config

    module = importlib.import_module(COMMANDS[name][0])
    if not hasattr(module, "choose"):
        return _keys_of(module.COMMAND)
    return _keys_of(module.choose(config.preset_names("skill")[0] if of_skill else None))


def _keys_of(command: Command) -> set[str]:
    from tpsrl import config

    return {key for key, _, _ in config.describe(command.settings)} - set(command.ignored)


def _families() -> set[str]:
    """Returns the first words shared by commands of two words, such as "bench"."""
    return {name.split()[0] for name in COMMANDS if " " in name}


def _command(module: Any, arguments: list[str]) -> tuple[Command, list[str]]:
    """Returns a module's command, and the arguments without the word that selected it."""
    if not hasattr(module, "choose"):
        return module.COMMAND, arguments
    if not arguments:
        return module.choose(""), arguments
    if "=" in arguments[0] or arguments[0].startswith("-"):
        file = next((a.partition("=")[2] for a in arguments if _key(a) == "config"), "")
        word = module.recorded(file) if file and hasattr(module, "recorded") else None
        return module.choose(word), arguments
    return module.choose(arguments[0]), arguments[1:]


def _values(name: str, command: Command, arguments: list[str]) -> dict[str, Any]:
    """Returns the values of the arguments by key; leading words fill the positional keys."""
    from tpsrl import config

    words = list(itertools.takewhile(lambda argument: "=" not in argument, arguments))
    flag = next((a for a in arguments if a.startswith("-")), None)
    if flag is not None:
        raise UserError(f"{name}: unknown flag '{flag}'; settings are key=value, without dashes")
    rest = arguments[len(words) :]
    if key := command.repeated:
        named = [a for a in rest if _key(a) == key]
        values: dict[str, Any] = config.parse([a for a in rest if a not in named])
        return values | {key: (*words, *(a.partition("=")[2] for a in named))}
    if len(words) > len(command.positional):
        word = words[len(command.positional)]
        hint = f"; write {word}=VALUE" if word in _keys_of(command) else ""
        raise UserError(f"{name}: unexpected argument '{word}'{hint}")
    return dict(zip(command.positional, words, strict=False)) | config.parse(rest)


def _usage(prefix: str = "") -> str:
    """Returns the list of all commands, or of those whose name begins with `prefix`."""
    known = {name: entry for name, entry in COMMANDS.items() if name.startswith(prefix)}
    rows = [(f"{name} {takes}".strip(), line) for name, (_, takes, line) in known.items()]
    width = max(len(row[0]) for row in rows)
    return "\n".join(
        [
            "tpsrl: train, chain and diagnose the skills of a home robot",
            "",
            "usage: tpsrl COMMAND [key=value ...]",
            "",
            *(f"  {call:<{width}}  {line}" for call, line in rows),
            "",
            "tpsrl COMMAND --help lists the keys of a command; tpsrl --version prints the version.",
        ]
    )


def _command_usage(name: str, command: Command, within: str = "") -> str:
    """Returns the help of a command, or of the keys nested in `within`."""
    from tpsrl import config

    if within and not config.describe(command.settings):
        raise UserError(f"--help: 'tpsrl {name}' has no keys")
    rows = [
        row
        for row in config.describe(command.settings, within)
        if row[0] not in {*command.fixed, *command.ignored}
    ]
    entries = [(f"{key}={value}", text) for key, value, text in rows]
    width = max((len(key) for key, _ in entries if len(key) <= _COLUMN), default=0)
    lines = [f"usage: tpsrl {name} {COMMANDS[name][1]}".strip()]
    lines += [] if within else ["", command.description.strip()]
    if rows:
        lines += ["", "keys and their defaults:"]
        for key, text in entries:
            first = key if len(key) <= width else ""
            lines += [] if first else [f"  {key}"]  # the help text follows on its own line
            lines.append(f"  {first:<{width}}  {text}".rstrip())
    if "out" in {key for key, _, _ in rows} and not within:
        lines += ["", "config=FILE starts from the config.yaml of an earlier run."]
    nested = [] if within else config.nested_keys(command.settings)
    if nested:
        calls = [f"tpsrl {name} --help {key}" for key in nested]
        lines += ["", f"nested keys: {', '.join(calls)}"]
    return "\n".join(lines)
