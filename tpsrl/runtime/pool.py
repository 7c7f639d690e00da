"""Runs tasks in worker processes: one task at a time each, with detection of dead workers."""

import dataclasses
import multiprocessing
import signal
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from tpsrl.errors import RunError, UserError
from tpsrl.runtime.processes import end, end_with_parent, exit_reason, launch

# Called once in each worker; returns the function that the worker calls for each task. The factory
# must be picklable.
Factory = Callable[[], Callable[[Any], Any]]


def run(
    factory: Factory, tasks: Sequence[Any], processes: int, names: Sequence[str] = ()
) -> Generator[tuple[int, Any], None, None]:
    """Yields (index of the task, result) in the order in which the tasks finish.

    With one process, the tasks run one after another in the calling process. With more, each
    spawned process calls `factory` once and then works on one task at a time.

    Args:
        factory: returns the function that is called for each task
        tasks: arguments of that function, picklable
        processes: maximum number of worker processes
        names: names of the tasks in messages; "task INDEX" by default

    Raises:
        UserError: a task raised it.
        RunError: a task raised it; a worker raised another exception (with its traceback) or died.
    """
    if processes == 1:
        work = factory()
        for index, task in enumerate(tasks):
            yield index, work(task)
    else:
        names = names or [f"task {index}" for index in range(len(tasks))]
        yield from _run_spawned(factory, tasks, min(processes, len(tasks)), names)


@dataclasses.dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int | None = None  # index of the current task
    name: str = ""  # name of the current task


def _run_spawned(
    factory: Factory, tasks: Sequence[Any], processes: int, names: Sequence[str]
) -> Iterator[tuple[int, Any]]:
    todo = iter([(index, *pair) for index, pair in enumerate(zip(names, tasks, strict=True))])
    workers: dict[Connection, _Worker] = {}
    try:
        for _ in range(processes):
            worker = _start(factory)
            workers[worker.pipe] = worker
            _hand_out(worker, todo)
        while busy := [w.pipe for w in workers.values() if w.index is not None]:
            for pipe in wait(busy):
                worker = workers[pipe]  # type: ignore[index]
                index, result = worker.index, _receive(worker)
                _hand_out(worker, todo)
                assert index is not None
                yield index, result
    finally:
        for worker in workers.values():
            worker.pipe.close()
        end([worker.process for worker in workers.values()])


def _start(factory: Factory) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(factory, theirs), daemon=True)
    launch(process)
    theirs.close()  # so that a worker's death ends the stream in this process
    return _Worker(process, ours)


def _hand_out(worker: _Worker, todo: Iterator[tuple[int, str, Any]]) -> None:
    worker.index, worker.name, task = next(todo, (None, "", None))
    if worker.index is not None:
        try:
            worker.pipe.send(task)
        except BrokenPipeError:
            raise _died(worker) from None


def _receive(worker: _Worker) -> Any:
    try:
        kind, value = worker.pipe.recv()
    except (EOFError, ConnectionResetError):
        raise _died(worker) from None
    if kind == "user error":
        raise UserError(value)
    if kind == "run error":
        raise RunError(value)
    if kind == "error":
        raise RunError(f"{worker.name} failed in a worker:\n{value}")
    return value


def _died(worker: _Worker) -> RunError:
    reason = exit_reason(worker.process)
    return RunError(f"a worker process died while working on {worker.name}: {reason}")


def _work(factory: Factory, pipe: Connection) -> None:
    # The parent handles Ctrl-C and ends its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    work = None
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        try:
            work = work or factory()
            reply = ("result", work(task))
        except UserError as error:
            reply = ("user error", str(error))
        except RunError as error:
            reply = ("run error", str(error))
        except Exception:
            reply = ("error", traceback.format_exc())
        try:
            pipe.send(reply)
        except BrokenPipeError:
            return
