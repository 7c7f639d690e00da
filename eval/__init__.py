"""Evaluation: runs episodes, measures success and finds the first causes of failures."""

import tpsrl  # noqa: F401  (errors of old imports name the new module)
