"""`tpsrl eval`: runs episodes and writes the report."""

from eval.settings import EvalSettings as Settings

DESCRIPTION = """Runs the episodes of a scenario and reports full success, each stage of the plan
and the first causes of failure, with 95% intervals. Writes report.html, report.json,
episodes.jsonl, config.yaml, timing.json and videos into the output folder."""
POSITIONAL = ("scenario",)

__all__ = ["DESCRIPTION", "POSITIONAL", "Settings", "run"]


def run(settings: Settings) -> int:
    """Evaluates; 0 when all episodes were run, whether or not they succeeded."""
    from eval.evaluator import evaluate

    evaluate(settings)
    return 0
