"""Remains of killed commands; `python -m benchmarks.kills` kills each command 100 times."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import fuzzing
import pytest

from benchmarks.kills import COMMANDS, SIGNALS, Tried


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[fuzzing.Server, Path]]:
    folder = tmp_path_factory.mktemp("kills")
    server = fuzzing.Server(folder, ["generator and pictures"])
    yield server, folder
    server.close()


# Five updates, and validations of one episode after the third and the last.
SHORT = ("preset.steps=160", "validate_every=96", "validation_episodes=1", "task.horizon=20")


@pytest.mark.parametrize(
    ("name", "more", "shares"),
    [
        ("episodes", (), dict(zip(SIGNALS, (0.8, 0.6, 0.4, 0.5), strict=True))),
        ("train_sync", SHORT, {"SIGKILL": 0.8, "SIGINT to all": 0.4}),
    ],
)
def test_a_killed_command_leaves_no_remains_and_resumes(
    name: str,
    more: tuple[str, ...],
    shares: dict[str, float],
    server: tuple[fuzzing.Server, Path],
) -> None:
    command = COMMANDS[name]
    command = dataclasses.replace(command, words=(*command.words, *more))
    tried = Tried(command, server[0], {}, server[1])
    for signal, share in shares.items():
        assert tried.kill(signal, share * tried.seconds, anew=False) == []
