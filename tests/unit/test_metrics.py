from pathlib import Path

import pytest

from tpsrl.errors import UserError
from tpsrl.rl.run import metrics
from tpsrl.rl.run.metrics import MetricsLog


def written(out: Path, updates: int) -> None:
    log = MetricsLog(out)
    for update in range(1, updates + 1):
        log.write({"update": update, "steps": 10 * update, "learner": {"kl": 0.5}})
    log.close()


def test_records_are_read_back_as_written(tmp_path: Path) -> None:
    written(tmp_path, 3)
    rows = list(metrics.read(tmp_path))
    assert [row["steps"] for row in rows] == [10, 20, 30]
    assert rows[0]["learner"] == {"kl": 0.5}


def test_an_incomplete_last_line_is_skipped(tmp_path: Path) -> None:
    written(tmp_path, 2)
    with (tmp_path / metrics.METRICS).open("a") as file:
        file.write('{"update": 3, "st')
    assert [row["update"] for row in metrics.read(tmp_path)] == [1, 2]


def test_records_after_the_resumed_update_are_dropped(tmp_path: Path) -> None:
    written(tmp_path, 5)
    MetricsLog(tmp_path, updates=3, steps=30).close()
    assert [row["update"] for row in metrics.read(tmp_path)] == [1, 2, 3]


def test_a_folder_without_metrics_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="metrics: no file"):
        metrics.read(tmp_path)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"update": 1, "steps": -1}', ": steps: must be an integer >= 0, got -1"),
        ('{"update": 1, "steps": 1, "success": "x"}', ": success: must be a number or null"),
        (
            '{"update": 1, "steps": 1, "validation": {"success": 1}}',
            ": validation: return: is missing",
        ),
        ('{"update": 1, "st', " is not JSON"),
    ],
)
def test_an_invalid_line_is_reported_and_the_file_stays_unchanged(
    tmp_path: Path, line: str, wrong: str
) -> None:
    written(tmp_path, 2)
    path = tmp_path / metrics.METRICS
    path.write_text(path.read_text() + line + "\n" + path.read_text())
    before, names = path.read_text(), sorted(p.name for p in tmp_path.iterdir())
    with pytest.raises(UserError, match=f"metrics: .*, line 3{wrong}"):
        MetricsLog(tmp_path, updates=2, steps=20)
    assert path.read_text() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == names
