"""Report lines on the agent: its policies and sensors, and its progress with objects."""

from msgspec import UNSET

from eval.analysing.intervals import Rate
from eval.analysing.schema import ComparedAgent, Ran, Report, SkillReport
from eval.reporting.words import percent, plain


def who(report: Ran) -> str:
    """Returns the agent, and the skills with stand-ins for missing policies, for titles."""
    stand_ins = ", ".join(report.stand_ins or {})
    text = f"{report.agent} agent"
    return f"{text}, scripted stand-ins for {stand_ins}" if stand_ins else text


def facts(report: Report) -> list[str]:
    """Returns the agent's deployment where it differs from the protocol, in short phrases."""
    rules = report.agent_rules or {}
    phrases = []
    if rules.get("one_policy"):
        phrases.append(f"{rules['one_policy']} replaces all steps for an object")
    if rules.get("without"):
        phrases.append(f"plans without {', '.join(rules['without'])}")
    if rules.get("base_masked"):
        phrases.append(f"base masked in {', '.join(rules['base_masked'])}")
    if rules.get("nav_stop_within_m") is not None:
        phrases.append(f"stops ignored farther than {rules['nav_stop_within_m']:g} m away")
    return phrases


def privileged(report: Ran | ComparedAgent) -> str:
    """Returns the privileged sensors of each learned policy, "" if there is no learned policy.

    Reports of earlier versions do not have this information.
    """
    by = {
        skill: ", ".join(policy.privileged)
        for skill, policy in report.learned.items()
        if policy.privileged is not UNSET
    }
    phrases = [f"{plain(skill)} {names or 'none'}" for skill, names in by.items()]
    if not any(by.values()):
        phrases = phrases and ["none"]
    return f"privileged sensors of learned policies: {'; '.join(phrases)}" if phrases else ""


def blinded(report: Ran) -> str:
    """Returns the sensors that showed the policy another run, "" if there are none."""
    names = ", ".join((report.blind or ()) if isinstance(report, SkillReport) else ())
    return f"blind: {names} replaced by those of another run" if names else ""


def lines(report: Report | SkillReport) -> list[str]:
    """Returns the lines of text for the entries that a report has."""
    texts = [privileged(report), blinded(report)]
    if isinstance(report, Report):
        texts += [_interactions(report), _travelled(report)]
    if report.stand_ins:
        texts.insert(0, who(report))
    return [text for text in texts if text]


def _interactions(report: Report) -> str:
    found = report.interactions
    if found is None or not found.all.turns:
        return ""
    first, every = found.objects[0], found.all
    return (
        f"NavPick {short(first.nav_pick)} of first objects, {short(every.nav_pick)} of all; "
        f"NavPickNavPlace {short(first.nav_pick_nav_place)}, {short(every.nav_pick_nav_place)}"
    )


def _travelled(report: Report) -> str:
    found = report.travelled_m
    if not found:
        return ""
    return "mean metres driven per run: " + ", ".join(
        f"{plain(n)} {v.mean:.2f}" for n, v in found.items()
    )


def short(rate: Rate) -> str:
    """Returns a rate with its interval for a narrow column: "92.0% (85-96)"."""
    if rate.mean is None or rate.ci_low is None or rate.ci_high is None:
        return "-"
    return f"{percent(rate.mean)} ({100 * rate.ci_low:.0f}-{100 * rate.ci_high:.0f})"
