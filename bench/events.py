"""What the event checks cost when nobody listens: instructions (callgrind) of the same compile by the ordinary
program and by one built with the checks compiled out (-DTAPER_NO_EVENTS=ON). Fails when they differ by 1 % or more."""
import os, re, shutil, subprocess, sys, tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.environ.get("TAPER_BUILD", os.path.join(ROOT, "build"))
BARE = os.path.join(ROOT, "build-noev")
JOBS = {"fold": ["graph", "fold"], "eager": ["graph", "run"], "inductor": ["graph", "run", "--backend=inductor"]}


def graph(nodes):
    """Pointwise chains with repeats, views and reductions over symbolic sizes."""
    lines = ['# symbol: s0 = 6 in [2, int_oo]', 'def forward(self, x: "f32[s0, 8]", y: "f32[s0, 8]"):', "    v0 = x + y"]
    for i in range(1, nodes):
        a, b = f"v{i - 1}", f"v{max(0, i - 7)}"
        lines.append(f"    w{i} = {a}.sum([1], True)")
        body = [f"{a} * {b}", f"{a} + {b}", f"{a}.sin()", f"{a} + y", f"{a}.view([s0, 8])", f"{a} + w{i}"][i % 6]
        lines.append(f"    v{i} = {body}")
    return "\n".join(lines + [f"    return (v{nodes - 1},)"]) + "\n"


def instructions(exe, args, file, out):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TAPER_")}
    env.update(TAPER_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", OPENBLAS_CORETYPE="Haswell")
    p = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=" + out, exe] + args + [file], env=env,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=600)
    m = re.search(r"Collected : (\d+)", p.stderr)
    return int(m.group(1)) if p.returncode == 0 and m else None, p


def main():
    if not shutil.which("valgrind"):
        print("events: skipped, valgrind is not installed")
        return 0
    subprocess.check_call(["cmake", "-S", ROOT, "-B", BARE, "-DTAPER_NO_EVENTS=ON", "-DTAPER_PYTHON=OFF", "-DTAPER_TESTS=OFF"],
                          stdout=subprocess.DEVNULL)
    subprocess.check_call(["cmake", "--build", BARE, "-j2", "--target", "taper_cli"], stdout=subprocess.DEVNULL)
    bad = 0
    with tempfile.TemporaryDirectory() as d:
        file = os.path.join(d, "g.graph")
        with open(file, "w") as f:
            f.write(graph(300))
        for name, args in JOBS.items():
            with_checks, p = instructions(os.path.join(BUILD, "taper"), args, file, os.path.join(d, "o"))
            without, _ = instructions(os.path.join(BARE, "taper"), args, file, os.path.join(d, "o"))
            if not with_checks or not without:
                print(f"events: {name}: did not run\n{p.stdout[-300:]}{p.stderr[-500:]}")
                bad += 1
                continue
            ratio = with_checks / without - 1
            print(f"events: {name:9} {with_checks:>12,} instructions, {without:>12,} without checks: {ratio:+.3%}")
            bad += abs(ratio) >= 0.01
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
