"""`report.html` of several agents on the same episodes."""

from collections.abc import Sequence
from typing import Any

from eval.reporting import acting, bars, blocks, words
from eval.reporting.episodes import what_went_wrong
from eval.reporting.markup import Markup, fill, join
from eval.reporting.words import percent, points

_DIFFERENCES_NOTE = """All agents have run the same episodes, so what counts is in which of them one
alone succeeded. The paired interval (95%, Newcombe 1998) uses that; the unpaired one is what the
same rates would give if they had been measured on different episodes. p is that of McNemar's exact
test. Differences are in percentage points."""
_STAGES_NOTE = """Share of all episodes in which a stage and every one before it succeeded, and how
many of those that ran it succeeded."""
_TAXES_NOTE = """What is lost at each handoff against the same skill from its own start states, in
percentage points with its 95% interval; of all episodes of each evaluation."""
_CAUSES_NOTE = "In how many episodes something was the first to go wrong."
_EPISODES_NOTE = "Those in which some agents succeeded and others did not."


def render(report: dict[str, Any]) -> str:
    """The page; its links lead from the folder that it lies in to the evaluations."""
    agents = report["agents"]
    sections = [
        _head(report),
        blocks.section("Differences", _DIFFERENCES_NOTE, _differences(report)),
        blocks.section("Stages side by side", _STAGES_NOTE, _stages(agents)),
        _taxes(agents),
        blocks.section("First causes side by side", _CAUSES_NOTE, _causes(agents)),
        blocks.section("Episodes that differ", _EPISODES_NOTE, _episodes(report)),
        blocks.section("What was compared", "", _agents(agents)),
    ]
    facts = [f"{report['num_episodes']} common episodes of split {report['split']}"]
    facts.append(f"seed {report['seed']}")
    if report["dataset"] is not None:
        facts.append(f"dataset {report['dataset']}")
    return blocks.shell(f"{report['title']}, {len(agents)} agents compared", facts, sections)


def sentence(row: dict[str, Any]) -> str:
    """What a difference says: "b succeeds 12.0 points less often than a (95% interval ...)"."""
    value = row["value"]
    way = "more" if value > 0 else "less"
    often = f"{abs(100 * value):.1f} points {way} often than" if value else "as often as"
    sure = f"95% interval {words.points_interval(row)}, p {words.probability(row['p_value'])}"
    return f"{row['name']} succeeds {often} {row['against']} ({sure})."


def warnings(report: dict[str, Any]) -> list[str]:
    """What stands in the way of a fair comparison."""
    agents = report["agents"]
    found = []
    judged = {(a["protocol"], str(a["protocol_changes"])) for a in agents}
    if len(judged) > 1:
        names = ", ".join(f"{a['name']} by {_protocol(a)}" for a in agents)
        found.append(f"They were judged by different protocols: {names}.")
    if len({a["version"] for a in agents}) > 1:
        names = ", ".join(f"{a['name']} {a['version']}" for a in agents)
        found.append(f"They were run by different versions of tpsrl: {names}.")
    if report["dataset"] is None:
        names = ", ".join(f"{a['name']} {a['num_episodes']}" for a in agents)
        count = report["num_episodes"]
        found.append(f"They ran different numbers of episodes ({names}); the common {count} count.")
    return found


def _protocol(agent: dict[str, Any]) -> str:
    changes = ", ".join(f"{key}={value}" for key, value in agent["protocol_changes"].items())
    return f"{agent['protocol']}{f' with {changes}' if changes else ''}"


def _head(report: dict[str, Any]) -> Markup:
    rows = [
        bars.row(
            bars.SHARES,
            agent["name"],
            _rate_bar(agent["success"]),
            fill(
                "<strong>{}</strong> {}",
                percent(agent["success"]["mean"]),
                blocks.span("soft", words.interval(agent["success"])),
            ),
        )
        for agent in report["agents"]
    ]
    told = join(fill("<li>{}</li>", sentence(row)) for row in report["differences"])
    careful = join(blocks.paragraph(text, "bad strong") for text in warnings(report))
    listed = fill('<ul class="findings">{}</ul>', told)
    chart = bars.chart(bars.SHARES, rows)
    return blocks.section("Full success", "With 95% Wilson intervals.", chart, listed, careful)


def _rate_bar(success: dict[str, Any]) -> Markup:
    point = bars.point(bars.SHARES, success["mean"], success["ci_low"], success["ci_high"])
    return join((bars.bar(bars.SHARES, 0.0, success["mean"], "bar"), point))


def _differences(report: dict[str, Any]) -> Markup:
    rows = [
        [
            f"{row['name']} minus {row['against']}",
            fill("<strong>{}</strong>", points(row["value"])),
            words.points_interval(row),
            words.points_interval(row, "unpaired_ci_"),
            words.probability(row["p_value"]),
            *(row[key] for key in ("both", "only_second", "only_first", "neither")),
        ]
        for row in report["differences"]
    ]
    heads = ["", "#difference", "#paired interval", "#unpaired interval", "#p"]
    heads += ["#both succeed", "#only this", "#only the first", "#neither"]
    return blocks.table(heads, rows, "Differences")


def _stages(agents: Sequence[dict[str, Any]]) -> Markup:
    known = [{(s["index"], s["name"]): s for s in agent["stages"]} for agent in agents]
    rows = [
        [
            f"{key[0] + 1}  {words.stage(key[1])}",
            *(_stage(stages.get(key)) for stages in known),
        ]
        for key in sorted(set().union(*known))
    ]
    heads = ["stage", *(f"#{agent['name']}" for agent in agents)]
    return blocks.table(heads, rows, "Stages side by side")


def _stage(stage: dict[str, Any] | None) -> Markup | str:
    if stage is None:
        return "not planned"
    ran = f"{stage['succeeded']} of {stage['reached']}" if stage["reached"] else "never run"
    through = percent(stage["cumulative"])
    return fill("<strong>{}</strong> {}", through, blocks.span("soft", ran))


def _taxes(agents: Sequence[dict[str, Any]]) -> Markup | str:
    known = [
        {(row["from"], row["to"]): row for row in agent["handoff_matrix"] or []} for agent in agents
    ]
    keys = dict.fromkeys(key for rows in known for key in rows)
    if not keys:
        return ""
    rows = [
        [
            words.link({"from": key[0], "to": key[1]}),
            *(_tax(taxed.get(key)) for taxed in known),
        ]
        for key in keys
    ]
    heads = ["handoff", *(f"#{agent['name']}" for agent in agents)]
    return blocks.section(
        "Taxes of handoffs", _TAXES_NOTE, blocks.table(heads, rows, "Taxes of handoffs")
    )


def _tax(row: dict[str, Any] | None) -> Markup | str:
    if row is None or row.get("tax") is None:
        return "not measured"
    mark = " ▲ significant" if row.get("significant") else ""
    sure = words.points_interval(row)
    return fill("<strong>{}</strong> ({}){}", points(row["tax"]), sure, mark)


def _causes(agents: Sequence[dict[str, Any]]) -> Markup:
    kinds = ("stage", "name", "predicate", "reason")
    counts: list[dict[tuple[Any, ...], int]] = []
    for agent in agents:
        counts.append({})
        for cause in agent["first_causes"]:
            key = tuple(cause[kind] for kind in kinds)
            counts[-1][key] = counts[-1].get(key, 0) + cause["count"]
    keys = sorted(set().union(*counts), key=lambda key: (-sum(c.get(key, 0) for c in counts), key))
    rows = [
        [
            words.stage(name) if stage < 0 else f"{stage + 1}  {words.stage(name)}",
            blocks.named(words.fact(predicate), predicate),
            words.reason(reason),
            *(c.get((stage, name, predicate, reason), 0) for c in counts),
        ]
        for stage, name, predicate, reason in keys
    ]
    if not rows:
        return blocks.paragraph("No episode failed.", "good")
    heads = ["stage", "what did not hold", "why", *(f"#{agent['name']}" for agent in agents)]
    return blocks.table(heads, rows, "First causes side by side")


def _episodes(report: dict[str, Any]) -> Markup:
    agents = report["agents"]
    if not report["episodes"]:
        return blocks.paragraph("In every episode all of them ended alike.")
    rows = [
        [
            blocks.long_name(episode["id"]),
            *(
                _ended(outcome, agent)
                for outcome, agent in zip(episode["outcomes"], agents, strict=True)
            ),
        ]
        for episode in report["episodes"]
    ]
    heads = ["episode", *(agent["name"] for agent in agents)]
    return blocks.table(heads, rows, "Episodes that differ")


def _ended(outcome: dict[str, Any], agent: dict[str, Any]) -> Markup:
    text = blocks.outcome(outcome["success"])
    if outcome["video"]:
        film = f"{agent['link']}/{outcome['video']}"
        text = fill("{} {}", text, blocks.anchor(film, "video"))
    wrong = what_went_wrong(outcome)
    return fill("{}<br/>{}", text, wrong) if wrong else text


def _agents(agents: Sequence[dict[str, Any]]) -> Markup:
    rows = [
        [
            blocks.anchor(f"{agent['link']}/report.html", agent["name"]),
            agent["agent"],
            ", ".join(f"{words.plain(k)}: {v['checkpoint']}" for k, v in agent["learned"].items()),
            acting.privileged(agent).partition(": ")[2],
            _protocol(agent),
            agent["num_episodes"],
            blocks.code(agent["settings_command"]) if agent["settings_command"] else "",
        ]
        for agent in agents
    ]
    heads = [
        "evaluation",
        "agent",
        "learned",
        "privileged sensors",
        "protocol",
        "#episodes",
        "command",
    ]
    return blocks.table(heads, rows, "What was compared")
