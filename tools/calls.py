"""Which operators stay library calls when they are compiled alone, and why: the text of tests/calls.md (tools/gendocs.py writes it).

Each row of the op table is compiled with the arguments that the tests have for it, and its schedule is read from the log."""
import os
import re
import subprocess
import sys
from collections import defaultdict

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KINDS = (  # of what no reason is logged for: a pattern of its name, what stands in its way
    (r"linalg|cholesky|^_?lu_|geqrf|orgqr|ormqr|lstsq", "LAPACK, or an algorithm of its kind"),
    (r"^(arg)?sort|topk|kthvalue|median|^mode$|searchsorted|bucketize|isin|histc|multinomial|randperm", "sorting, searching and selecting"),
    (r"^(rand|normal|log_normal|cauchy|geometric|exponential|bernoulli|uniform|random)", "draws into a tensor that is not contiguous, or from another generator than the default one"),
    (r"^_check_", "raises an error where values are not as expected"),
    (r"^_rng_reserve", "takes a place in the generator's sequence, in the order of the program"),
    (r"upsample|grid_sampler", "reads several places that floats decide"),
    (r"_backward$|col2im|unfold_backward", "adds where several elements meet"),
    (r"pool", "windows of three dimensions, of sizes that differ, or with their places"),
    (r"conv|addmm|baddbmm|addmv|^mv$|^dot$", "a matrix product or convolution: emitted tiles, or the library"),
    (r"^(scatter|index_|put|masked_scatter|diagonal_scatter|as_strided_scatter|slice_scatter|embedding|_fractional)", "writes where an index points"),
    (r"special_|gamma|^i0|digamma|erfinv|nextafter|gcd|lcm|frexp|polygamma|zeta|logit_backward", "a function without vector code"),
    (r"^empty|^new_empty", "memory that nobody fills"),
    (r"cum", "every step waits for the one before"),
    (r".", "no loop is written for these arguments"),
)


def walk():
    """Runs with the logs on: row, call, why, a line each."""
    sys.path.insert(0, os.path.join(ROOT, "tests/py"))
    import taper
    import taper._dynamo as dynamo
    import test_grad_table as table
    from taper import _C
    from test_out_of_memory import detached, samples, tensors
    table.gen.manual_seed(5)
    with open(os.environ["TAPER_LOGS_OUT"]) as log:
        for row in _C._schemas():
            for make, call in samples(row):
                try:
                    args = detached(list(make()))
                    if any(t.numel() == 0 for t in tensors(args)):
                        continue
                    dynamo.reset()
                    taper.compile(lambda *a: call(*a))(*args)
                except Exception:  # noqa: BLE001  (what eager refuses is no call)
                    pass
                text = log.read()
                why = dict(re.findall(r"left as a call: (\S+): (.*)", text))
                for name, target in re.findall(r"\d+ call   (\S+) = (\S+)", text):
                    print(f"{target}\t{why.get(name, '')}")


def calls_md(tmp):
    env = {**os.environ, "TAPER_LOGS": "schedule,fusion", "TAPER_LOGS_OUT": os.path.join(tmp, "log"), "TAPER_CACHE": "0", "PYTHONPATH": os.path.join(ROOT, "python")}
    open(env["TAPER_LOGS_OUT"], "w").close()
    text = subprocess.run([sys.executable, os.path.abspath(__file__)], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True, timeout=300).stdout
    found = defaultdict(set)
    for line in sorted(set(text.splitlines())):
        op, why = line.split("\t")
        found[why or next(w for p, w in KINDS if re.search(p, op))].add(op)
    out = ["# Operators that stay calls", "",
           "Every row of the op table, compiled alone with the small arguments of the tests: those whose schedule has a call of their eager kernel, by what",
           "stands in the way. Some become loops with other arguments or between other steps ([kernels.md](../docs/kernels.md)). Written by `make docs`.", "",
           "| why | operators |", "| --- | --- |"]
    for why, ops in sorted(found.items(), key=lambda e: (-len(e[1]), e[0])):
        out.append(f"| {why} | {', '.join(f'`{o}`' for o in sorted(ops))} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    walk()
