"""Commands with invalid input: valid command lines and files with random changes.

    python -m benchmarks.fuzz [cases=1000] [seed=0] [limit_s=60] [only=train,report] [reads=demos]
                              [changes=value,path,key,words,file] [out=out/fuzz]

Every case runs a command (`tests/fuzzing.py` creates and checks cases); `only` selects commands,
`reads` those that read the named files. Prints each kind of failure once, with its first command,
and writes that case and its files to `out`; at the end prints how many cases were done, refused and
failed. The exit code is 1 if any case failed its check.
"""

import collections
import contextlib
import re
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import fuzzing

DEFAULTS = {
    "cases": "1000",
    "seed": "0",
    "limit_s": str(fuzzing.HUNG_S),
    "only": "",
    "reads": "",
    "changes": ",".join(fuzzing.KINDS),
    "out": "out/fuzz",
}
_SAME = re.compile(r"\d+|'[^']*'|\"[^\"]*\"|\S*/\S*")  # differs between cases of one failure


def main(*arguments: str) -> int:
    """Runs the cases."""
    chosen = DEFAULTS | dict(a.split("=", 1) for a in arguments)
    count, limit_s, out = int(chosen["cases"]), float(chosen["limit_s"]), Path(chosen["out"])
    only, reads = ({*filter(None, chosen[key].split(","))} for key in ("only", "reads"))
    lines = [x for x in fuzzing.LINES if not only or x.words[0] in only]
    lines = [x for x in lines if not reads or reads & {*x.reads}]
    changes = chosen["changes"].split(",")
    if changes == ["file"]:
        lines = [x for x in lines if x.reads]
    ended: collections.Counter[str] = collections.Counter()
    failures: collections.Counter[str] = collections.Counter()
    slowest: list[tuple[float, str]] = []
    materials = fuzzing.make_materials(out / "materials")
    begun = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "here"
        server = fuzzing.Server(folder.parent)
        stack.callback(server.close)

        def one(case: fuzzing.Case) -> None:
            found = server.run(case, folder, limit_s)
            result = {0: "done", 1: "failed", 2: "refused"}.get(found["code"], "other")
            ended[found["how"] if found["how"] != "ended" else result] += 1
            slowest.append((found["seconds"], f"{found['how']}, {found['code']}: {case!r}"[:300]))
            slowest.sort(reverse=True)
            del slowest[10:]
            for text in fuzzing.judge(case, found, folder):
                kind = _SAME.sub("#", text)
                failures[kind] += 1
                if failures[kind] == 1:
                    name = f"{len(failures):03d}.tar.gz"
                    fuzzing.keep(case, folder, out / chosen["seed"] / name)
                    line = repr(case).encode(errors="backslashreplace").decode()
                    print(f"{name}  {text}\n    {line[:300]}", flush=True)
            total = sum(ended.values())
            if total % 200 == 0:
                pace = total / (time.monotonic() - begun)
                print(f"-- {total:,} cases, {pace:.1f}/s, {sum(failures.values())} failures: "
                      f"{dict(ended)}", flush=True)  # fmt: skip

        test = given(case=fuzzing.cases(materials, lines, changes))(one)
        every = tuple(HealthCheck)
        rules = settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=every,
        )
        seed(int(chosen["seed"]))(rules(test))()
    print(f"{sum(ended.values()):,} cases: {dict(ended)}")
    for kind, times in failures.most_common():
        print(f"{times:6d}  {kind}")
    print("slowest:")
    for took, line in slowest:
        print(f"{took:6.1f} s  {line.encode(errors='backslashreplace').decode()}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
