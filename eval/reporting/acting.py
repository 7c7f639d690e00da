"""Who acted, and how far it got with each object: lines for the terminal, a section of the page."""

from typing import Any

from eval.reporting.words import percent, plain

NOTE = """NavPick: the object was in the hand at some time of its turn; NavPickNavPlace: it was
placed. Both of the episodes in which its turn came, with 95% Wilson intervals. Below, the mean path
of the base in a run of each skill."""


def who(report: dict[str, Any]) -> str:
    """The agent, and what stands in for policies that it lacks: for titles."""
    stand_ins = ", ".join(report.get("stand_ins") or {})
    text = f"{report['agent']} agent"
    return f"{text}, scripted stand-ins for {stand_ins}" if stand_ins else text


def facts(report: dict[str, Any]) -> list[str]:
    """How the agent is deployed where that is not the protocol's own way, in short."""
    rules = report.get("agent_rules") or {}
    told = []
    if rules.get("one_policy"):
        told.append(f"{rules['one_policy']} does all for an object")
    if rules.get("without"):
        told.append(f"plans without {', '.join(rules['without'])}")
    if rules.get("base_masked"):
        told.append(f"base masked in {', '.join(rules['base_masked'])}")
    if rules.get("nav_stop_within_m") is not None:
        told.append(f"stops ignored farther than {rules['nav_stop_within_m']:g} m away")
    return told


def privileged(report: dict[str, Any]) -> str:
    """By which sensors that a robot does not have each learned policy acted; "" if none is learned.

    A report written before does not say so of its policies.
    """
    by = {
        skill: ", ".join(policy["privileged"])
        for skill, policy in (report.get("learned") or {}).items()
        if "privileged" in policy
    }
    told = [f"{plain(skill)} {names or 'none'}" for skill, names in by.items()]
    if not any(by.values()):
        told = told and ["none"]
    return f"privileged sensors of learned policies: {'; '.join(told)}" if told else ""


def blinded(report: dict[str, Any]) -> str:
    """Which sensors showed the policy another run, "" for none."""
    names = ", ".join(report.get("blind") or ())
    return f"blind: {names} showed the policy another run" if names else ""


def lines(report: dict[str, Any]) -> list[str]:
    """Lines of text for what the report has of it."""
    texts = [privileged(report), blinded(report), _interactions(report), _travelled(report)]
    if report.get("stand_ins"):
        texts.insert(0, who(report))
    return [text for text in texts if text]


def _interactions(report: dict[str, Any]) -> str:
    found = report.get("interactions")
    if not found or not found["all"]["turns"]:
        return ""
    first, every = found["objects"][0], found["all"]
    return (
        f"NavPick {_rate(first['nav_pick'])} of first objects, {_rate(every['nav_pick'])} of all; "
        f"NavPickNavPlace {_rate(first['nav_pick_nav_place'])}, "
        f"{_rate(every['nav_pick_nav_place'])}"
    )


def _travelled(report: dict[str, Any]) -> str:
    found = report.get("travelled_m")
    if not found:
        return ""
    return "metres driven in a run: " + ", ".join(
        f"{plain(n)} {v['mean']:.2f}" for n, v in found.items()
    )


def _rate(rate: dict[str, Any]) -> str:
    if rate["mean"] is None:
        return "-"
    return f"{percent(rate['mean'])} ({100 * rate['ci_low']:.0f}-{100 * rate['ci_high']:.0f})"


def tables(report: dict[str, Any]) -> list[tuple[list[str], list[list[object]]]]:
    """Heads and rows of the tables of the page's section; none for an older report."""
    found, driven = report.get("interactions"), report.get("travelled_m")
    if not found or not driven:
        return []
    rows = [*((row["object"], row) for row in found["objects"]), ("all", found["all"])]
    cells = [
        [name, row["turns"], _rate(row["nav_pick"]), _rate(row["nav_pick_nav_place"])]
        for name, row in rows
    ]
    ways = [[plain(n), v["runs"], f"{v['mean']:.2f}"] for n, v in driven.items()]
    return [
        (["object", "#turns", "#NavPick", "#NavPickNavPlace"], cells),
        (["skill", "#runs", "#metres"], ways),
    ]
