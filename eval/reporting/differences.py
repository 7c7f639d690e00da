"""Texts of a comparison: sentences on the differences, and rows of the tables."""

from collections.abc import Sequence

from eval.analysing.schema import (
    AgentDifference,
    ComparedAgent,
    Comparison,
    MatrixRow,
    SkillPart,
    StageRow,
)
from eval.reporting import words

CauseKey = tuple[int, str, str, str]  # index and name of the stage, predicate, reason


def sentence(row: AgentDifference) -> str:
    """Returns a difference as a sentence: "b succeeds 12.0 points less often than a (...)"."""
    way = "more" if row.value > 0 else "less"
    often = f"{abs(100 * row.value):.1f} points {way} often than" if row.value else "as often as"
    sure = f"95% interval {words.points_interval(row)}, p {words.probability(row.p_value)}"
    return f"{row.name} succeeds {often} {row.against} ({sure})."


def warnings(report: Comparison) -> list[str]:
    """Returns warnings if a comparison is not fair."""
    agents = report.agents
    found = []
    if len({(a.protocol, str(a.protocol_changes)) for a in agents}) > 1:
        names = ", ".join(f"{a.name} {judged_by(a)}" for a in agents)
        found.append(f"The protocols of the agents differ: {names}.")
    if len({a.version for a in agents}) > 1:
        names = ", ".join(f"{a.name} {a.version}" for a in agents)
        found.append(f"The agents were run with different versions of tpsrl: {names}.")
    found += _versions(agents)
    if report.dataset is None:
        names = ", ".join(f"{a.name} {a.num_episodes}" for a in agents)
        count = report.num_episodes
        found.append(
            f"The agents ran different numbers of episodes ({names}); the {count} common ones are "
            "compared."
        )
    return found


def _versions(agents: Sequence[ComparedAgent]) -> list[str]:
    """Returns a sentence for each library whose version differs between agents."""
    known = [(agent.name, agent.versions) for agent in agents if agent.versions]
    libraries = dict.fromkeys(library for _, versions in known for library in versions)
    found = []
    for library in libraries:
        by_agent = {name: versions.get(library, "unknown") for name, versions in known}
        if len(set(by_agent.values())) > 1:
            names = ", ".join(f"{name} {version}" for name, version in by_agent.items())
            found.append(f"The agents were run with different versions of {library}: {names}.")
    return found


def judged_by(agent: ComparedAgent) -> str:
    """Returns the protocol with its changes."""
    changes = words.changes(agent.protocol_changes)
    return f"{agent.protocol} with {changes}" if changes else agent.protocol


def stages(agents: Sequence[ComparedAgent]) -> list[tuple[str, list[StageRow | None]]]:
    """Returns the row of each agent by stage of the plan, None if its plan lacks the stage."""
    known = [{(s.index, s.name): s for s in agent.stages or ()} for agent in agents]
    keys: set[tuple[int, str]] = set().union(*known)
    return [(words.numbered(*key), [rows.get(key) for rows in known]) for key in sorted(keys)]


def parts(agents: Sequence[ComparedAgent]) -> list[tuple[str, list[SkillPart | None]]]:
    """Returns the row of each agent by condition of a skill's success, None if it has none."""
    known = [{part.name: part for part in agent.parts or ()} for agent in agents]
    names = dict.fromkeys(name for rows in known for name in rows)
    return [(name, [rows.get(name) for rows in known]) for name in names]


def taxes(agents: Sequence[ComparedAgent]) -> list[tuple[str, list[MatrixRow | None]]]:
    """Returns the row of each agent by handoff between skills, None if it has none."""
    known = [{(r.from_, r.to): r for r in agent.handoff_matrix or []} for agent in agents]
    first = {key: row for rows in reversed(known) for key, row in rows.items()}
    keys = dict.fromkeys(key for rows in known for key in rows)
    return [(words.link(first[key]), [rows.get(key) for rows in known]) for key in keys]


def causes(agents: Sequence[ComparedAgent]) -> list[tuple[CauseKey, list[int]]]:
    """Returns the number of failures of each agent by first cause, the most frequent first."""
    counts: list[dict[CauseKey, int]] = []
    for agent in agents:
        counts.append({})
        for row in agent.first_causes:
            key = (row.stage, row.name, row.predicate, row.reason)
            counts[-1][key] = counts[-1].get(key, 0) + row.count
    keys: set[CauseKey] = set().union(*counts)
    rows = [(key, [found.get(key, 0) for found in counts]) for key in keys]
    return sorted(rows, key=lambda row: (-sum(row[1]), row[0]))
