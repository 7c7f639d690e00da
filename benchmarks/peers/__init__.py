"""Other libraries timed on the synthetic environment, each in a separate virtual environment.

`python -m benchmarks.peers NAME` is the command; see `__main__.py`. The modules `run_*` run in a
peer's interpreter; from this repository they import only this package and
`tpsrl.rl.bench.synthetic_env` (except `run_tpsrl`).
"""
