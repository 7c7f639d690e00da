"""Rounds of training from the states in which a chain of skills hands over to each skill.

A round evaluates the chain, records the states in which its skills begin, and distils a teacher
into a skill from these states. A new policy is kept if its success from such states in validation
apartments is higher than before. Every step is a separate command, which is printed, and finished
steps are not repeated when the rounds are resumed.
"""

import collections
import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from skills import registry, tables
from skills.policies import pretrained
from tpsrl import config
from tpsrl.errors import RunError, UserError, unknown
from tpsrl.runtime import files

_REPORT, _INDEX = "report.json", "index.json"
_RESERVED = ",:@"  # separators in the syntax of start states
_VALIDATED = 8  # validation episodes; policies are compared by success from exit states instead
_RECORDED, _CHAIN = 5000, 6000  # seed offsets of recorded and evaluated episodes
_MOST_YAML = 2**20  # maximum bytes
_CONFIG, _RESULT = "config.yaml", "polish.json"
_FREE = ("out", "processes", "rounds")  # settings that may change when the rounds are resumed


@dataclasses.dataclass(frozen=True, slots=True)
class PolishSettings:
    """Settings of `tpsrl polish`."""

    scenario: Any = config.option(None, "scenario; scenario=... may be repeated")
    train: str = config.option(
        "", "comma-separated skills to train (default: those with a handoff tax above `tax`)"
    )
    tax: float = config.option(
        0.02, "handoff tax (share of runs) above which a skill is trained", minimum=0, maximum=1
    )
    rounds: int = config.option(1, "number of rounds", minimum=1, maximum=100)
    steps: int = config.option(1_000_000, "steps of each distillation", minimum=1)
    learning_rate: float = config.option(7e-4, "learning rate of each distillation", minimum=0)
    share: float = config.option(
        0.5,
        "share of a distillation's start states that are exit states",
        minimum=0.01,
        maximum=0.99,
    )
    num_episodes: int = config.option(
        60,
        "episodes of each scenario to record exit states from",
        minimum=1,
        maximum=config.MOST_EPISODES,
    )
    chain_episodes: int = config.option(
        100,
        "episodes of each scenario in an evaluation of the chain",
        minimum=1,
        maximum=config.MOST_EPISODES,
    )
    analysis_episodes: int = config.option(
        24, "number of these episodes in the handoff analysis", minimum=0
    )
    own_episodes: int = config.option(
        252, "base episodes of the skill's own start states", minimum=1
    )
    skills: Any = config.table(
        tables.paths_table, "policy of each skill at the beginning (default: pretrained)"
    )
    teachers: Any = config.table(
        tables.paths_table, "teacher of each skill: teachers.SKILL=DIR (default: pretrained)"
    )
    seed: int = config.option(
        0,
        "random seed; episodes have seed + 5000 and above, unlike those of an evaluation with it",
        minimum=0,
    )
    processes: int = config.option(
        0, "number of worker processes; 0: one per core", minimum=0, maximum=config.MOST_PROCESSES
    )
    out: str = config.option("out/polish", "output folder")


@dataclasses.dataclass(frozen=True, slots=True)
class SkillGain:
    """Result of one training: handoff tax, and success from exit states before and after it."""

    skill: str
    tax: float | None
    before: float
    after: float

    @property
    def kept(self) -> bool:
        """Whether the new policy has the higher success."""
        return self.after > self.before


@dataclasses.dataclass(frozen=True, slots=True)
class PolishRound:
    """Success of the chain by scenario before a round, and the trainings of the round.

    `predicted` is the success by scenario that is expected after the trainings.
    """

    success: Mapping[str, float]
    predicted: Mapping[str, float]
    trained: Sequence[SkillGain] = ()


def check(settings: PolishSettings) -> None:
    """Checks settings whose errors would otherwise appear only after hours.

    Raises:
        UserError: names the setting.
    """
    if not settings.scenario:
        raise UserError("polish: name a scenario, such as tidy_house")
    for name in settings.scenario:
        if name not in config.preset_names("scenario"):
            raise unknown("polish", name, config.preset_names("scenario"))
    for mark in _RESERVED:
        if mark in settings.out:
            raise UserError(f"out: '{mark}' is reserved in start states; choose another folder")
    for skill in named_skills(settings):
        if skill not in registry.names():
            raise unknown("train", skill, registry.names())
        _check_teacher(settings, skill)


def named_skills(settings: PolishSettings) -> list[str]:
    """Returns the skills named by `train`."""
    return [name.strip() for name in settings.train.split(",") if name.strip()]


def polish(settings: PolishSettings) -> list[PolishRound]:
    """Runs or resumes the rounds; writes `polish.json` and the policies into `out`.

    Returns:
        The rounds, followed by one without trainings that has the final success.

    Raises:
        UserError: a setting is not valid, or no skill can be trained.
        RunError: a command failed; the same call resumes the rounds.
    """
    check(settings)
    out = files.check_writable(settings.out)
    _check_same(settings, out / _CONFIG)
    shipped = [name for name in pretrained.names() if name in registry.planned()]
    policies = dict.fromkeys(shipped, pretrained.WORD) | settings.skills.given()
    rounds: list[PolishRound] = []
    for number in range(1, settings.rounds + 1):
        made = _Round(settings, out / f"round{number}", policies).run(number)
        rounds.append(made)
        kept = [result.skill for result in made.trained if result.kept]
        policies |= {skill: _exported(out / f"round{number}", skill) for skill in kept}
        _write(out, rounds, policies)
    last = _Round(settings, out / f"round{settings.rounds + 1}", policies)
    rounds.append(PolishRound(last.success(), {}))
    _write(out, rounds, policies)
    return rounds


@dataclasses.dataclass(frozen=True, slots=True)
class _Round:
    """One round in its folder, with the policies at its beginning."""

    settings: PolishSettings
    folder: Path
    policies: Mapping[str, str]

    def run(self, number: int) -> PolishRound:
        reports = self.reports()
        taxes = handoff_taxes(reports.values())
        skills = self._to_train(taxes)
        self._record(number)
        results = [self._train(skill, taxes.get(skill)) for skill in skills]
        expected = {name: predicted(report, results) for name, report in reports.items()}
        return PolishRound(_successes(reports), expected, results)

    def success(self) -> dict[str, float]:
        """Returns the success of the chain in each scenario."""
        return _successes(self.reports())

    def reports(self) -> dict[str, dict[str, Any]]:
        """Evaluates the chain in each scenario, and returns the reports by scenario."""
        settings, found = self.settings, {}
        for scenario in settings.scenario:
            out = self.folder / "chain" / scenario
            analysed = min(settings.analysis_episodes, settings.chain_episodes)
            if not (out / _REPORT).is_file():
                self._call(
                    "eval", scenario, *self._agent(), f"num_episodes={settings.chain_episodes}",
                    f"seed={settings.seed + _CHAIN}", f"analysis_episodes={analysed}", f"out={out}",
                )  # fmt: skip
            found[scenario] = json.loads((out / _REPORT).read_text())
        return found

    def _to_train(self, taxes: Mapping[str, float]) -> list[str]:
        if named := named_skills(self.settings):
            return named
        most = sorted(taxes, key=lambda skill: -taxes[skill])
        skills = [skill for skill in most if taxes[skill] > self.settings.tax]
        for skill in skills:
            _check_teacher(self.settings, skill)
        return skills

    def _record(self, number: int) -> None:
        """Records exit states in training and in validation apartments."""
        settings = self.settings
        for scenario in settings.scenario:
            first = settings.seed + _RECORDED
            for split, seed in (("train", first + number), ("val", first)):
                out = self.folder / split / scenario
                if not out.is_dir():
                    self._call(
                        "bank", scenario, *self._agent(), f"split={split}", f"seed={seed}",
                        f"num_episodes={settings.num_episodes}", f"out={out}",
                    )  # fmt: skip

    def _train(self, skill: str, tax: float | None) -> SkillGain:
        settings = self.settings
        if not _exported(self.folder, skill).is_file():
            training = self.folder / skill
            states = start_states(begins(self.folder / "train", skill), settings.share)
            if states is None:
                raise UserError(f"train: there is no recorded state before {skill}")
            teacher = settings.teachers.given().get(skill, pretrained.WORD)
            self._call(
                "distill", skill, "resume=auto", f"out={training}", f"teacher={teacher}",
                f"init={_init(skill, self.policies[skill])}", f"start_states={states}",
                f"num_episodes={settings.own_episodes}", "num_objects=12", "limit_ends=true",
                f"preset.steps={settings.steps}",
                f"preset.ppo.learning_rate={settings.learning_rate}",
                # One short validation at the end, which keeps the averaged weights.
                f"validate_every={settings.steps}", f"validation_episodes={_VALIDATED}",
            )  # fmt: skip
            self._call(
                "export", skill, f"agent={training}", "sample=false", processes=False,
                out=_exported(self.folder, skill).parent,
            )  # fmt: skip
        before = self._from_exit_states(skill, "before", self.policies[skill])
        after = self._from_exit_states(skill, "after", str(_exported(self.folder, skill)))
        return SkillGain(skill, tax, before, after)

    def _from_exit_states(self, skill: str, name: str, policy: str) -> float:
        """Returns a policy's success from the exit states in validation apartments."""
        out = self.folder / name / skill
        counts = begins(self.folder / "val", skill)
        states = start_states(counts, 1.0)
        if states is None:
            raise UserError(
                f"num_episodes: {self.settings.num_episodes} validation episodes have no state "
                f"before {skill}; record more"
            )
        if not (out / _REPORT).is_file():
            self._call(
                "eval", skill, f"agent={policy}", f"starts={states}",
                f"num_episodes={sum(counts.values())}", f"out={out}",
            )  # fmt: skip
        return float(json.loads((out / _REPORT).read_text())["success"]["mean"])

    def _agent(self) -> Iterator[str]:
        yield "agent=pretrained"
        for skill, policy in self.policies.items():
            if policy != pretrained.WORD:
                yield f"skills.{skill}={policy}"

    def _call(self, *words: str, processes: bool = True, out: Path | None = None) -> None:
        """Prints a command of tpsrl and runs it."""
        more = [f"processes={self.settings.processes}"] if processes else []
        more += [f"out={out}"] if out is not None else []
        run_command([*words, *more])


def _successes(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    return {name: report["success"]["mean"] for name, report in reports.items()}


def run_command(words: Sequence[str]) -> None:
    """Runs `tpsrl WORDS` in a separate process.

    Raises:
        RunError: the command failed.
    """
    print(f"$ tpsrl {' '.join(words)}", flush=True)
    code = subprocess.run([sys.executable, "-m", "tpsrl", *words], check=False).returncode
    if code:
        raise RunError(f"polish: `tpsrl {words[0]} {words[1]}` ended with code {code}; repeat the "
                       "command to continue")  # fmt: skip


def handoff_taxes(reports: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Returns each skill's mean handoff tax over the rows of handoff matrices, weighted by n."""
    sums: dict[str, list[float]] = collections.defaultdict(lambda: [0.0, 0.0])
    for report in reports:
        for row in report.get("handoff_matrix") or ():
            if row["tax"] is not None:
                sums[row["to"]][0] += row["n"] * row["tax"]
                sums[row["to"]][1] += row["n"]
    return {skill: total / count for skill, (total, count) in sums.items() if count}


def predicted(report: Mapping[str, Any], results: Iterable[SkillGain]) -> float:
    """Returns the success of a scenario expected with the kept policies.

    A chain succeeds if all its stages do. So success is multiplied by the ratio of the skill's
    success from exit states after and before the training, once for each stage of the skill.
    """
    stages = collections.Counter(row["skill"] for row in report["stages"])
    success = float(report["success"]["mean"])
    for result in results:
        if result.kept and result.before > 0:
            success *= (result.after / result.before) ** stages[result.skill]
    return min(success, 1.0)


def begins(folder: Path, skill: str) -> dict[str, int]:
    """Counts the states in which a skill begins, in the banks of a folder (one per scenario).

    Returns:
        The number of states by path of a bank's part, `BANK/PREVIOUS SKILL`.
    """
    found = {}
    for index in sorted(folder.glob(f"*/*/{_INDEX}")):
        following = json.loads(index.read_text())["next"].get(skill, {})
        if count := sum(following.values()):
            found[str(index.parent)] = count
    return found


def start_states(counts: Mapping[str, int], share: float) -> str | None:
    """Returns a value of `start_states` that draws `share` from banks, by their number of states.

    The rest is divided equally between the skill's own start states and those in rearranged
    apartments. Returns None if the banks have no state.
    """
    total = sum(counts.values())
    if not total:
        return None
    own = (1.0 - share) / 2
    parts = [f"own:{own:.4g}", f"rearranged:{own:.4g}"] if own > 0 else []
    parts += [f"bank:{path}:{share * count / total:.4g}" for path, count in counts.items()]
    return ",".join(parts)


def table(rounds: Sequence[PolishRound]) -> str:
    """Formats the rounds as two tables in Markdown."""
    lines = ["| round | scenario | success | predicted | measured |", "|---|---|---|---|---|"]
    for number, (one, after) in enumerate(itertools.pairwise(rounds), 1):
        for name, success in one.success.items():
            lines.append(
                f"| {number} | {name} | {success:.1%} | {one.predicted[name]:.1%} "
                f"| {after.success[name]:.1%} |"
            )
    lines += ["", "| round | skill | handoff tax | exit states before, after | kept |"]
    lines += ["|---|---|---|---|---|"]
    for number, one in enumerate(rounds, 1):
        for result in one.trained:
            tax = "not measured" if result.tax is None else f"{100 * result.tax:.1f} points"
            kept = "yes" if result.kept else "no"
            lines.append(
                f"| {number} | {result.skill} | {tax} | {result.before:.1%}, {result.after:.1%} "
                f"| {kept} |"
            )
    return "\n".join(lines)


def _exported(folder: Path, skill: str) -> Path:
    return folder / "policies" / pretrained.file_name(skill)


def _init(skill: str, policy: str) -> str:
    """Returns the file or folder of a policy, as a value of `init`."""
    return str(pretrained.find(skill)) if policy == pretrained.WORD else policy


def _check_teacher(settings: PolishSettings, skill: str) -> None:
    if skill not in settings.teachers.given():
        pretrained.find_teacher(skill)


def _check_same(settings: PolishSettings, path: Path) -> None:
    """Writes the settings, or compares them with those of the rounds to resume.

    Raises:
        UserError: a setting differs; names the first one.
    """
    values = dataclasses.asdict(settings)
    values |= {"scenario": list(settings.scenario)}
    values |= {name: getattr(settings, name).given() for name in ("skills", "teachers")}
    if path.is_file():
        before = yaml.safe_load(files.read_text(path, _MOST_YAML)) or {}
        for key, value in values.items():
            if key not in _FREE and before.get(key) != value:
                raise UserError(
                    f"{key}: the rounds in {path.parent} used {before.get(key)}, not {value}; "
                    "choose another out"
                )
    with files.atomic(path) as temporary:
        temporary.write_text(yaml.safe_dump(values, sort_keys=False))


def _write(out: Path, rounds: Sequence[PolishRound], policies: Mapping[str, Any]) -> None:
    content = {
        "rounds": [
            {
                "success": dict(one.success),
                "predicted": dict(one.predicted),
                "trained": [dataclasses.asdict(r) | {"kept": r.kept} for r in one.trained],
            }
            for one in rounds
        ],
        "policies": {skill: str(policy) for skill, policy in policies.items()},
    }
    with files.atomic(out / _RESULT) as path:
        path.write_text(json.dumps(content, indent=2) + "\n")
