"""The three main findings of a report with a handoff analysis, as sentences."""

from eval.analysing.schema import Report
from eval.reporting import words


def findings(report: Report) -> list[str]:
    """Returns three sentences on a report with a handoff analysis: loss, cause, best repair."""
    return [_loss(report), _cause(report), _repair(report)]


def _points(value: float) -> str:
    return f"{100 * value:.1f} points"


def _share(value: float) -> str:
    return f"{100 * value:.1f}%"


def _counted(episodes: object) -> str:
    return "the analysed episode" if episodes == 1 else f"the {episodes} analysed episodes"


def _loss(report: Report) -> str:
    found = report.propagation
    assert found is not None
    measured = f"In {_counted(found.episodes)} full success is "
    measured += _share(found.measured)
    if found.loss is None or found.product_isolated is None:
        return f"{measured}; a step of the plan could never be run in isolation."
    product = _share(found.product_isolated)
    measured += f"; the product of the skills' success rates in isolation is {product}: "
    if not found.product_isolated:
        return f"{measured}too few successes to tell what chaining the skills loses."
    if found.loss <= 0.0:
        return f"{measured}no loss by chaining the skills was measured."
    sums = {"selection": 0.0, "tax": 0.0, "time": 0.0, "lost": 0.0, "made_good": 0.0}
    parts = found.parts or []
    for part in parts:
        sums[part.kind] += part.value
    lost_by = {
        "selection": "harder episodes",
        "tax": "handoffs",
        "time": "lack of time",
        "lost": "goals lost afterwards",
    }
    largest = sorted(lost_by, key=lambda kind: -sums[kind])[:2]
    causes = " and ".join(f"{_points(sums[k])} to {lost_by[k]}" for k in largest if sums[k] > 0.0)
    worst = max(
        (part for part in parts if part.kind == "tax"), key=lambda part: part.value, default=None
    )
    where = ""
    if worst is not None and worst.value > 0.0 and "tax" in largest:
        before, after = words.stage(worst.from_ or ""), words.stage(worst.to or "")
        where = f"; the worst handoff is from {before} to {after} ({_points(worst.value)})"
    return f"{measured}chaining the skills loses {_points(found.loss)}, {causes}{where}."


def _cause(report: Report) -> str:
    causes = report.first_causes
    if not causes:
        return "No episode failed."
    failed = sum(row.count for row in causes)
    by_skill: dict[str, int] = {}
    for row in causes:
        by_skill[row.skill] = by_skill.get(row.skill, 0) + row.count
    skill = max(by_skill, key=lambda name: by_skill[name])
    most = next(row for row in causes if row.skill == skill)
    name = words.plain(skill) or "the time after the last step"
    step = words.stage(most.name)
    text = f"Of {failed} failures {by_skill[skill]} begin with {name}, most often in {step}"
    if failed == 1:
        text = f"The one failure begins with {name}, in {step}"
    text += f": '{words.fact(most.predicate)}' did not hold ({words.reason(most.reason)})"
    blamed = [row for row in report.blame or [] if row.set_up_by]
    if blamed:
        first = blamed[0]
        count = "once" if first.count == 1 else f"{first.count} times"
        text += f"; {count} {words.plain(first.set_up_by or '')} had set"
        text += f" {words.plain(first.skill)} up to fail"
    return f"{text}."


def _repair(report: Report) -> str:
    repairs = report.repairs or []
    if not repairs:
        return "No repair of a handoff was run."
    if repairs[0].gain <= 0.0:
        return "No single repair of a handoff would increase full success."
    best = repairs[0]
    before, after = words.plain(best.from_), words.plain(best.to)
    if words.link(best) == words.OTHERS:
        what = "Repairing all other handoffs together"
    elif best.kind == "state":
        what = f"Starting {after} after {before} from one of its own start states"
    elif after == "end":
        what = f"Adding the missing effects of {before} at the end"
    else:
        what = f"Adding the missing effects of {before} before {after}"
    interval = f"{words.points(best.ci_low)} to {words.points(best.ci_high)} points"
    text = f"{what} alone would increase full success from {_share(best.before)} "
    text += f"to {_share(best.after)} ({interval}, {best.n} episodes)"
    states = [row for row in repairs if row.kind == "state"]
    if best.kind == "effect" and states and not any(row.ci_low > 0.0 for row in states):
        text += f"; repairing the state at a handoff would not ({states[0].n} episodes)"
    return f"{text}."
