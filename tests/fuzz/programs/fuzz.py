#!/usr/bin/env python3
"""Random Python programs, run every way there is: compiled must equal eager, and eager must equal PyTorch.

  fuzz.py [--jobs J] [--count N] [--seconds S] [--seed K] [--torch PYTHON|no|auto] [--out DIR] [--fixed] [--every-way] [--known FILE] [--show FILE] [--reduce FILE]

Ways: Taper uncompiled ("taper plain"); compiled with the backends eager, aot_eager, aot_eager_decomp_partition and inductor, the last
with machine code, for older processors, interpreted and as C; PyTorch, and torch.compile(backend="aot_eager"), where it is importable.
--jobs J runs J such processes at once (program counts and seconds are each one's), seeds K, K + 1, ..., and adds up what they found: counts
of programs, of disagreements and of reasons; every program that disagrees lies in DIR, in a folder for each seed.
--show prints what each way saw of one program; --reduce cuts a file that disagrees. The end status is 1 where something is unexplained.
"""
import argparse
import collections
import json
import os
import random
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, HERE)
import judge  # noqa: E402
import reasons  # noqa: E402
from choices import Choices, mutate  # noqa: E402
from generate import generate  # noqa: E402
from reduce import reduce  # noqa: E402

ALWAYS = ("plain", "eager", "aot_eager", "inductor")
SOMETIMES = ("interpreter", "decomp", "avx2", "base")
NOTHING = {"seen": []}


class Worker:
    """A warm process of one kind, started again when it dies."""

    def __init__(self, kind, python):
        self.kind, self.python, self.process = kind, python, None
        self.start()

    def start(self):
        env = {**os.environ, "PYTHONHASHSEED": "0"}
        if self.kind == "taper":
            env["PYTHONPATH"] = env.get("PYTHONPATH") or os.path.join(ROOT, "python")
        self.process = subprocess.Popen([self.python, "-W", "ignore", os.path.join(HERE, "worker.py"), self.kind], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, text=True)
        self.ready = self.process.stdout.readline().startswith("ready")
        self.served = 0

    def ask(self, text, ways, features=False, limit=20):
        if self.served >= 4000:  # a warm process is not an old one
            self.stop()
            self.start()
        self.served += 1
        try:
            self.process.stdin.write(json.dumps({"text": text, "ways": list(ways), "features": features, "limit": limit}) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.stop()
            self.start()
            return {w: {"crash": "the worker ended", "stderr": ""} for w in ways}

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


class Fuzzer:
    def __init__(self, args):
        self.taper = Worker("taper", sys.executable)
        if not self.taper.ready:
            sys.exit("taper does not import")
        self.torch = None
        python = args.torch if args.torch not in ("auto", "no") else sys.executable
        if args.torch != "no":
            self.torch = Worker("torch", python)
            if not self.torch.ready:
                self.torch = None
                print("PyTorch is not importable: compiled is compared with eager alone")
        self.args, self.features, self.corpus = args, set(), []
        self.counts, self.explained = collections.Counter(), collections.Counter()

    def run(self, text, taper, torch=(), features=False):
        out = {"taper " + w: r for w, r in self.taper.ask(text, taper, features).items()} if taper else {}
        if self.torch and torch:
            out.update({"torch " + w: r for w, r in self.torch.ask(text, torch).items()})
        return out

    def compare(self, text, seen):
        """The unexplained disagreements of a program: (way, way, [disagreements])."""
        out, plain, truth = [], seen["taper plain"], None
        pairs = [("taper plain", w) for w in seen if w != "taper plain" and w != "torch aot_eager"]
        for a, b in pairs:
            found = judge.disagreements(seen[a], seen[b], exact_message=reasons.compiled(a, b))
            left = []
            for d in found:
                why = reasons.explained(d, a, b, text)
                if why:
                    self.explained[why] += 1
                    if d["kind"] in ("exception", "structure", "crash", "line", "message"):  # what follows is not comparable
                        break
                else:
                    left.append(d)
            if left and all(d["kind"] == "value" for d in left):
                if truth is None:
                    truth = self.taper.ask(text, ["float64"])["float64"]
                if judge.rounding_only(left, seen[a], seen[b], truth, 1e-5):
                    self.explained["rounding, by a float64 run"] += 1
                    continue
            if left:
                out.append((a, b, left))
        return out

    def kind_of(self, a, b, d):
        k = d["kind"]
        if k in ("exception",):
            names = tuple(re.split(r" at line|,", str(x))[0] for x in (d["a"], d["b"]))
            text = re.sub(r"[\d\[\]()'\"]+", "", str(d["b"] if "no exception" in str(d["a"]) else d["a"]))[:90]
            return (k,) + names + (text,)
        if k == "crash":
            return (k, str(d["a"]), str(d["b"]))
        if k == "message":
            return (k, re.sub(r"[\d\[\]()'\"]+", "", str(d["b"]))[:60])
        return (k,)

    def holds(self, a, b, kind, agrees):
        """A test for the reducer: the same kind of disagreement between the same two ways; and where PyTorch agreed with
        uncompiled Taper it still does."""
        tw = ["plain"] + [w.split()[1] for w in (a, b) if w.startswith("taper") and w != "taper plain"]
        pw = [w.split()[1] for w in (a, b) if w.startswith("torch")]

        def test(text):
            seen = self.run(text, tw, pw)
            if not any((x, y) == (a, b) and self.kind_of(a, b, found[0]) == kind for x, y, found in self.compare(text, seen)):
                return False
            if not agrees or pw or not self.torch:
                return True
            seen.update(self.run(text, (), ("plain",)))
            return not any(y == "torch plain" for _, y, _ in self.compare(text, seen))
        return test

    def program(self, number, given):
        c = Choices(f"{self.args.seed}/{number}", given)
        return generate(c), c.made

    def one(self, number):
        rng = random.Random(f"{self.args.seed}:{number}")
        given = ()
        if self.corpus and not self.args.fixed and rng.random() < 0.5:
            given = mutate(rng, rng.choice(self.corpus), rng.choice(self.corpus))
        text, made = self.program(number, given)
        try:
            compile(text, "program", "exec")
        except SyntaxError:  # a changed list of decisions may leave a function without a body
            self.counts["are no Python"] += 1
            return text, {}, []
        ways = list(ALWAYS) + ([w for w in SOMETIMES] if self.args.every_way else [SOMETIMES[number % len(SOMETIMES)]])
        if number % 64 == 63:
            ways.append("c")
        seen = self.run(text, ways, ("plain",) + (("aot_eager",) if number % 32 == 0 else ()), features=True)
        new = set()
        for r in seen.values():
            new.update(r.get("reached", ()))
        if new - self.features:
            self.features |= new
            self.corpus.append(made)
        raised = sum(1 for x in seen["taper plain"].get("seen", ()) if "exception" in x)
        self.counts["programs"] += 1
        self.counts["programs in which a call raises"] += bool(raised)
        return text, seen, self.compare(text, seen)


def summary(fz, kinds, bad, different, seconds):
    """The last lines of a run: the same for one process and for many."""
    print(f"{fz['counts'].get('programs', 0)} programs ({fz['counts'].get('programs in which a call raises', 0)} of them raise), {bad} disagree, {different} different; {fz['features']} features, {fz['kept']} kept; {seconds:.0f} s")
    for why, n in sorted(fz["explained"].items(), key=lambda x: -x[1]):
        print(f"  {n} explained: {why}")
    for rough, n in sorted(kinds.items(), key=lambda x: -x[1]):
        print(f"  {n} x {rough}")


def many(args):
    """args.jobs processes, a seed each; their counts added up."""
    out = args.out or os.path.join(ROOT, "build", "fuzz-programs")
    os.makedirs(out, exist_ok=True)
    env = {**os.environ, "TAPER_NUM_THREADS": os.environ.get("TAPER_NUM_THREADS", "2")}
    began, running = time.time(), []
    for j in range(args.jobs):
        seed = args.seed + j
        command = [sys.executable, os.path.abspath(__file__), "--seed", str(seed), "--count", str(args.count), "--seconds", str(args.seconds), "--start", str(args.start), "--torch", args.torch,
                   "--most", str(args.most), "--out", os.path.join(out, f"seed{seed}"), "--counts", os.path.join(out, f"seed{seed}.json")]
        command += [f"--{name.replace('_', '-')}" for name in ("every_way", "fixed", "no_reduce") if getattr(args, name)] + (["--known", args.known] if args.known else [])
        running.append((seed, subprocess.Popen(command, env=env, stdout=open(os.path.join(out, f"seed{seed}.log"), "w"), stderr=subprocess.STDOUT)))
    total, kinds = {"counts": collections.Counter(), "explained": collections.Counter(), "features": 0, "kept": 0}, collections.Counter()
    bad, different, lost = 0, 0, []
    for seed, process in running:
        process.wait()
        try:
            c = json.load(open(os.path.join(out, f"seed{seed}.json")))
        except (OSError, ValueError):
            lost.append(seed)
            continue
        total["counts"].update(c["counts"])
        total["explained"].update(c["explained"])
        kinds.update(c["kinds"])
        total["features"] = max(total["features"], c["features"])
        total["kept"] += c["kept"]
        bad += c["bad"]
        different += c["different"]
    summary(total, kinds, bad, different, time.time() - began)
    print(f"what disagrees lies in {out}")
    for seed in lost:
        print(f"  seed {seed} did not end: see {os.path.join(out, f'seed{seed}.log')}")
    return 1 if bad or lost else 0


def words(text):
    """What a reduced program is about: its names of functions and methods."""
    body = text
    return frozenset(re.findall(r"\.(\w+)|(?<!\w)(with|try|for|while|yield|global|lambda|class|match)\b", body))


def report(text, found, seen):
    out = ["```python", text.rstrip(), "```", ""]
    for a, b, ds in found:
        out.append(f"{a} / {b}:")
        for d in ds[:6]:
            out.append(f"  {d['kind']} at {d['at']}")
            out += [f"    {w}: {judge.brief(d[k])}" for w, k in ((a, "a"), (b, "b"))]
            if d.get("stderr"):
                out.append("    " + d["stderr"].replace("\n", "\n    "))
    return "\n".join(out) + "\n"


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--count", type=int, default=200)
    ap.add_argument("--seconds", type=float, default=0)
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--start", type=int, default=0)
    ap.add_argument("--jobs", type=int, default=1, help="so many processes, a seed each")
    ap.add_argument("--counts", help="a file for the counts of this run, as JSON")
    ap.add_argument("--torch", default="auto")
    ap.add_argument("--out")
    ap.add_argument("--every-way", action="store_true")
    ap.add_argument("--fixed", action="store_true", help="program N depends on the seed and N alone: nothing is kept and changed")
    ap.add_argument("--only", help="numbers of programs, with commas")
    ap.add_argument("--no-reduce", action="store_true")
    ap.add_argument("--most", type=int, default=4, help="reductions of one kind of disagreement")
    ap.add_argument("--show")
    ap.add_argument("--reduce")
    ap.add_argument("--known", help="a Python file with more reasons, for findings that wait to be mended")
    ap.add_argument("--features", action="store_true", help="list what was reached")
    ap.add_argument("--quiet", action="store_true")
    args = ap.parse_args()
    if args.known:
        exec(compile(open(args.known).read(), args.known, "exec"), vars(reasons))
    if args.jobs > 1:
        return many(args)
    fz = Fuzzer(args)
    if args.show or args.reduce:
        text = open(args.show or args.reduce).read()
        if "```python" in text:
            text = text.split("```python\n", 1)[1].split("```", 1)[0]
        seen = fz.run(text, ALWAYS + SOMETIMES, ("plain", "aot_eager"))
        found = fz.compare(text, seen)
        if args.show:
            for w, r in seen.items():
                print("==", w)
                for x in r.get("seen", [r]):
                    print("  ", json.dumps(x))
        if args.reduce and found:
            a, b, ds = found[0]
            text = reduce(text, fz.holds(a, b, fz.kind_of(a, b, ds[0]), not any(y == "torch plain" for _, y, _ in found)))
            found = fz.compare(text, fz.run(text, ALWAYS + SOMETIMES, ("plain", "aot_eager")))
        print(report(text, found, seen))
        return 1 if found else 0
    began, kinds, unique, bad, last, failed = time.time(), collections.Counter(), {}, 0, time.time(), []
    for number in map(int, args.only.split(",")) if args.only else range(args.start, args.start + args.count):
        if args.seconds and time.time() - began > args.seconds:
            break
        text, seen, found = fz.one(number)
        if not args.quiet and time.time() - last > 30:
            last = time.time()
            print(f"{number + 1 - args.start} programs, {bad} disagree, {len(unique)} kinds, {len(fz.features)} features, {len(fz.corpus)} kept, {time.time() - began:.0f} s", flush=True)
        if not found:
            continue
        bad += 1
        failed.append(number)
        a, b, ds = found[0]
        agrees = not any(y == "torch plain" for _, y, _ in found)
        kind = fz.kind_of(a, b, ds[0])
        rough = (b.split()[0],) + kind
        kinds[rough] += 1
        if args.out:
            os.makedirs(args.out, exist_ok=True)
            open(os.path.join(args.out, f"{number:06d}.py"), "w").write(f"# {kind}, {a} / {b}\n{text}")
        if kinds[rough] > args.most:
            continue
        if not args.no_reduce:
            text = reduce(text, fz.holds(a, b, kind, agrees), 600)
            seen = fz.run(text, ALWAYS + SOMETIMES, ("plain", "aot_eager"))
            found = fz.compare(text, seen) or found
        key = (rough, words(text))
        if key in unique:
            continue
        unique[key] = number
        ways = " ".join(y.split()[1] if y.startswith("taper") else y for _, y, _ in found)
        torchc = "torch aot_eager" in seen and "torch plain" in seen and not judge.disagreements(seen["torch plain"], seen["torch aot_eager"], False)
        body = f"# program {number} of seed {args.seed}: {kind}\nDisagree with taper plain: {ways}; torch.compile agrees with torch: {torchc}\n\n" + report(text, found, seen)
        if args.out:
            os.makedirs(args.out, exist_ok=True)
            open(os.path.join(args.out, f"{number:06d}-{b.replace(' ', '-')}-{kind[0].replace(' ', '-')}.md"), "w").write(body)
        if not args.quiet:
            print(body, flush=True)
    if args.features:
        print("\n".join(sorted(fz.features)))
    done = {"counts": fz.counts, "explained": fz.explained, "features": len(fz.features), "kept": len(fz.corpus)}
    if args.counts:
        json.dump({**done, "kinds": {str(k): n for k, n in kinds.items()}, "bad": bad, "different": len(unique)}, open(args.counts, "w"))
    summary(done, kinds, bad, len(unique), time.time() - began)
    if failed:
        print("numbers:", ",".join(map(str, failed)))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
