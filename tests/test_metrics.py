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


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written(tmp_path, 3)
    rows = metrics.read(tmp_path)
    assert [row["steps"] for row in rows] == [10, 20, 30]
    assert rows[0]["learner"] == {"kl": 0.5}


def test_a_line_that_was_not_written_to_its_end_is_left_out(tmp_path: Path) -> None:
    written(tmp_path, 2)
    with (tmp_path / metrics.METRICS).open("a") as file:
        file.write('{"update": 3, "st')
    assert [row["update"] for row in metrics.read(tmp_path)] == [1, 2]


def test_records_behind_the_one_that_is_gone_on_from_are_dropped(tmp_path: Path) -> None:
    written(tmp_path, 5)
    MetricsLog(tmp_path, updates=3, steps=30).close()
    assert [row["update"] for row in metrics.read(tmp_path)] == [1, 2, 3]


def test_a_folder_without_metrics_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="metrics: no file"):
        metrics.read(tmp_path)
