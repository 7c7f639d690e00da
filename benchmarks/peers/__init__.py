"""Other libraries timed on the synthetic environment, each in an environment of its own.

`python -m benchmarks.peers NAME` is the command; see `__main__.py`. The modules `run_*` are run by
a peer's interpreter and import nothing of this repository but this package and
`tpsrl.rl.bench.synthetic_env`.
"""
