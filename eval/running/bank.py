"""Makes banks of exit states: runs the episodes of a scenario and stores every handoff."""

import dataclasses
import operator
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import tpsrl
from eval.running import agents, chains, inputs, runs
from eval.running.checking import checked
from eval.running.episodes import digest, select
from eval.running.journal import Journal
from eval.settings import BankSettings
from planner import domains
from planner.execution.execution import Execution
from planner.execution.progress import SKILL, StepInfo
from planner.execution.trace import Trace
from skills.core.interface import SkillPolicy
from skills.starts.bank import INDEX, BankWriter, ExitState, StateAlong
from tpsrl import config
from tpsrl.errors import RunError, UserError
from tpsrl.runtime import files, locks, machine, pool
from tpsrl.sim import engines
from tpsrl.sim.base import Simulator
from tpsrl.sim.shards import Shard, ShardWriter
from tpsrl.world.episode import Episode
from tpsrl.world.slots import capacity_for
from tpsrl.world.state import WorldState

CONFIG = "config.yaml"
_EVERY = 4  # control steps between two candidate states along a run


@dataclasses.dataclass(frozen=True, slots=True)
class BankJob:
    """One episode to run; its exit states are written to the file `path`."""

    episode: Episode
    path: Path


@dataclasses.dataclass(frozen=True, slots=True)
class KeptStates:
    """Number of exit states stored from an episode, and whether the episode succeeded."""

    success: bool
    states: int


def bank_runner(settings: BankSettings) -> pool.Factory:
    """Returns the factory of the function that runs one episode."""
    return chains.ChainRunner(settings, run_episode)


def make_bank(
    settings: BankSettings,
    console: Console | None = None,
    factory: Callable[[BankSettings], pool.Factory] = bank_runner,
) -> dict[str, dict[str, Any]]:
    """Runs the episodes, writes the bank, prints its contents, and returns its index by skill.

    The bank's folder is created when all episodes are done. Until then finished episodes are kept
    in a hidden folder beside it, from which the same call resumes.

    Args:
        settings: of the bank
        console: for output; None: a new one
        factory: makes the pool factory from the settings; both are pickled and sent to the workers

    Raises:
        UserError: the folder exists or cannot be written, the engine cannot take exact snapshots,
            or an episode is invalid.
        RunError: a worker failed or died, or there was no state to store.
    """
    console = console or Console()
    engines.require_snapshots(settings.engine, "a bank of exit states")
    path = files.user_path(settings.out or f"out/bank/{settings.scenario.name}")
    unfinished = path.with_name(f".{path.name}.unfinished")
    if _is_made(settings, path):  # a run killed after the bank was in place
        with locks.hold(unfinished, shown=path):
            shutil.rmtree(unfinished, ignore_errors=True)
        console.print(f"{path} already contains this bank; choose another out to record it again",
                      highlight=False, markup=False, soft_wrap=True)  # fmt: skip
        return {p.parent.name: files.parse_json(p.read_text()) for p in path.glob(f"*/{INDEX}")}
    out = files.new_folder(path)
    unfinished = out.with_name(f".{out.name}.unfinished")
    with Journal(unfinished, console) as journal:
        indices = _make(settings, out, unfinished, journal, console, factory)
        journal.finish()
        if not indices:
            raise RunError(f"{settings.scenario.title}: no exit state was recorded")
    show(console, settings.scenario.title, indices)
    console.print(f"wrote {out}", highlight=False, markup=False, soft_wrap=True)
    return indices


def _is_made(settings: BankSettings, out: Path) -> bool:
    """Returns whether a folder holds the complete bank of these settings."""
    if not (out / CONFIG).is_file():
        return False
    try:
        made = config.load(BankSettings, {}, out / CONFIG)
    except UserError:
        return False
    count = settings.num_episodes
    same = dataclasses.replace(
        made, num_episodes=count, processes=settings.processes, out=settings.out
    )
    return same == settings and count in (None, made.num_episodes)


def _make(
    settings: BankSettings,
    out: Path,
    unfinished: Path,
    journal: Journal,
    console: Console,
    factory: Callable[[BankSettings], pool.Factory],
) -> dict[str, dict[str, Any]]:
    """Runs the episodes that are not in the journal, and moves the bank to its place."""
    agents.Policies.of(settings)
    selection = select(
        settings.scenario,
        settings.split,
        settings.seed,
        settings.num_episodes,
        settings.episodes,
        settings.processes or None,
    )
    episodes = checked(selection, settings, console).episodes
    settings = dataclasses.replace(
        settings,
        num_episodes=len(episodes),
        processes=min(settings.processes or machine.cores(), len(episodes)),
        out=str(out),
    )
    parts, whole = unfinished / "parts", unfinished / "bank"
    shutil.rmtree(whole, ignore_errors=True)
    read = [*agents.checkpoints(settings.learned()), domains.find(settings.domain)]
    journal.resume(inputs.digest(settings, digest(episodes), read))
    work = runs.JobSet(
        "episodes",
        KeptStates,
        factory(settings),
        [BankJob(episode, parts / f"{n:06d}.npz") for n, episode in enumerate(episodes)],
        [f"episode {episode.id}" for episode in episodes],
        wrote=operator.attrgetter("path"),
        good=operator.attrgetter("success"),
    )
    runs.run_jobs(work, settings.processes or 1, journal, settings.scenario.title, console)
    indices = _write(whole, [job.path for job in work.jobs], _header(settings, episodes))
    shutil.rmtree(parts, ignore_errors=True)
    if indices:
        files.write_text(whole / CONFIG, config.to_yaml(settings))
        _put_in_place(whole, out)
    shutil.rmtree(whole, ignore_errors=True)
    return indices


def run_episode(
    settings: BankSettings,
    simulator: Simulator,
    policies: Mapping[str, SkillPolicy],
    reset_arm: SkillPolicy,
    job: BankJob,
) -> KeptStates:
    """Runs one episode under the protocol, and writes its exit states into the job's file.

    Raises:
        UserError: the episode is invalid, or the file cannot be written; names the episode.
    """
    executor = chains.make_executor(settings, simulator, policies, reset_arm, snapshots=True)
    along = _Along(simulator, settings.along)
    try:
        on_step = along.on_step if settings.along else None
        execution = executor.begin(job.episode, on_step, to_the_end=True)
        along.execution = execution
        trace = execution.run()
        kept: list[ExitState | StateAlong] = [
            state for state in exit_states(trace) if _wanted(state, settings.only)
        ]
        kept += along.states(trace)
        with ShardWriter(job.path) as part:
            for state in kept:
                part.add(state.snapshot, state.note())
    except UserError as error:
        raise chains.about_episode(job.episode.id, error) from None
    return KeptStates(trace.success, len(kept))


class _Along:
    """Stores states along each run of a skill: at most `count` per run, evenly spaced in time."""

    execution: Execution

    def __init__(self, simulator: Simulator, count: int) -> None:
        self._simulator, self._count = simulator, count
        self._found: dict[str, list[StateAlong]] = {}  # by stage name

    def on_step(self, world: WorldState, info: StepInfo) -> None:
        """See `planner.execution.progress.OnStep`."""
        run = self.execution.skill_run
        if info.phase != SKILL or info.phase_step % _EVERY or run is None:
            return
        home, task = self._simulator.snapshot(0), run.state.to_arrays()
        state = StateAlong.of(info.skill, run.goal, home, task, info.phase_step)
        self._found.setdefault(info.name, []).append(state)

    def states(self, trace: Trace) -> Iterator[StateAlong]:
        """Yields the selected states, each with the success of its skill.

        As with exit states, skills that ran after the first timeout are included.
        """
        for stage in (trace.ignoring or trace).stages:
            found = self._found.get(stage.name, [])
            rows = np.linspace(0, len(found) - 1, min(self._count, len(found))).round().astype(int)
            for row in rows.tolist():
                yield dataclasses.replace(found[row], succeeded=stage.skill_success)


def exit_states(trace: Trace) -> Iterator[ExitState]:
    """Yields the state at each handoff between two skills of an episode's plan, in order.

    A stage whose preconditions did not hold has not run and is skipped: no skill starts in the
    state before it, and the state after it is the exit state of the last skill that ran. If
    timeouts were ignored, handoffs after a timeout that ends the episode are included.
    """
    whole = trace.ignoring or trace
    last = None
    for number, stage in enumerate(whole.stages):
        if not stage.reached:
            continue
        if last is not None:
            yield ExitState(
                skill=last.skill,
                stage=last.name,
                succeeded=last.skill_success,
                next_skill=stage.skill,
                next_stage=stage.name,
                goal=stage.goal,
                snapshot=whole.snapshots[number],
            )
        last = stage


def show(console: Console, title: str, indices: Mapping[str, Mapping[str, Any]]) -> None:
    """Prints the number of states by skill and next skill, and the size of the files."""
    table = Table(title=f"{title}: exit states")
    for name in ("skill", "next skill"):
        table.add_column(name)
    for name in ("states", "succeeded", "failed", "size"):
        table.add_column(name, justify="right")
    for skill, index in sorted(indices.items()):
        size = sum(shard["bytes"] for shard in index["shards"]) / 1e6
        for row, (after, found) in enumerate(index["next"].items()):
            numbers = (sum(found.values()), found["succeeded"], found["failed"])
            name, size_text = ("", "") if row else (skill, f"{size:.1f} MB")
            table.add_row(name, after, *map(str, numbers), size_text)
    console.print(table)


def _wanted(state: ExitState, only: str) -> bool:
    return only in ("all", "succeeded" if state.succeeded else "failed")


def _write(folder: Path, parts: Sequence[Path], header: Mapping[str, Any]) -> dict[str, Any]:
    """Collects the states of all episodes by skill, in episode order, and returns the indices."""
    writer = BankWriter(folder)
    try:
        for path in parts:
            part = Shard(path)
            for row in range(len(part)):
                writer.add(*part.read(row))
            part.close()
        return writer.finish(header)
    finally:
        writer.close()


def _put_in_place(unfinished: Path, out: Path) -> None:
    try:
        unfinished.replace(out)
    except OSError as error:
        raise UserError(f"out: cannot write '{out}' ({error.strerror})") from None


def _header(settings: BankSettings, episodes: Sequence[Episode]) -> dict[str, Any]:
    """Returns the description of the run for the bank's index."""
    return {
        "version": tpsrl.__version__,
        "scenario": settings.scenario.name,
        "split": settings.split,
        "seed": settings.seed,
        "num_episodes": len(episodes),
        "dataset": digest(episodes),
        "num_objects": settings.scenario.num_objects,
        "slots": capacity_for(settings.scenario.num_objects),
        "protocol": settings.protocol.name,
        "protocol_changes": settings.protocol.changes(),
        **agents.describe_preset(settings.agent, settings.learned()),
        "replan": settings.replan,
        "after_timeout": settings.after_timeout,
        "only": settings.only,
    }
