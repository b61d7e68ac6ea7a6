"""How graphs scale. Times for 100,000 nodes, bytes a node, and by callgrind: ten times the nodes, how many times the
instructions? Fails when a promise is broken: each step under one second, a node under 1 KiB, passes at most 12x."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build"))
EXE = os.path.join(BUILD, "taper_bench_graph")
COUNTED = {"build": "build", "verify": "ir_verify", "print": "ir_print", "parse": "ir_parse", "hash": "ir_hash",
           "noop": "pass_noop", "fold": "pass_fold", "cse": "pass_cse", "dce": "pass_dce"}


def instructions(what, function, nodes):
    with tempfile.TemporaryDirectory() as d:
        p = subprocess.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={d}/out", "--collect-atstart=no",
                            f"--toggle-collect={function}", EXE, str(nodes), what],
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        m = re.search(r"Collected : (\d+)", p.stdout)
        return int(m[1]) if m else 0


def main():
    subprocess.run(["cmake", "--build", BUILD, "--target", "taper_bench_graph"], check=True, stdout=subprocess.DEVNULL)
    bad = []
    out = subprocess.run([EXE, "100000"], stdout=subprocess.PIPE, text=True, check=True).stdout
    print("100,000 nodes")
    print(out, end="")
    for name, ms in re.findall(r"^(\w+)\s+([\d.]+) ms", out, re.M):
        if float(ms) >= 1000:
            bad.append(f"{name} takes {ms} ms")
    if float(re.search(r"memory\s+(\d+)", out)[1]) >= 1024:
        bad.append("a node takes 1 KiB or more")
    if shutil.which("valgrind"):
        print("\ninstructions by callgrind, 2,000 and 20,000 nodes")
        for what, function in COUNTED.items():
            a, b = instructions(what, function, 2000), instructions(what, function, 20000)
            ratio = b / a if a else 0
            print(f"{what:8} {a:12,} {b:13,}  {ratio:5.2f}x")
            if not 0 < ratio <= 12:
                bad.append(f"{what}: ten times the nodes cost {ratio:.2f} times the instructions")
    for b in bad:
        print("BROKEN:", b)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
