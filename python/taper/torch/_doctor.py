"""taper doctor --torch SCRIPT: where torch.compile goes wrong in a PyTorch program, in one sentence, with the evidence."""
import argparse
import concurrent.futures
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

from . import _prints

WELL, FAULT, UNDECIDED = 0, 1, 2
STATUS = ("nothing wrong", "fault found", "could not decide")
STORM = 8  # recompilations of one function: PyTorch's own limit


class Run:
    def __init__(self, what, status, out, err, seconds, hung, facts):
        self.what, self.status, self.out, self.err, self.seconds, self.hung, self.facts = what, status, out, err, seconds, hung, facts

    def error(self):
        """The line of stderr that names an error."""
        lines = [l for l in self.err.splitlines() if l.strip()]
        named = [l for l in lines if re.match(r"\s*[\w.]*(Error|Exception|Failed|Unsupported)\b.*", l) and not l.lstrip().startswith("File ")]
        return (named or lines or [""])[-1].strip()[:300]

    def outcome(self):
        if self.hung:
            return "does not end"
        if self.status < 0:
            try:
                return f"dies of {signal.Signals(-self.status).name}"
            except ValueError:
                return f"dies of signal {-self.status}"
        return "runs" if self.status == 0 else f"exit status {self.status}: {self.error()}"


class Doctor:
    def __init__(self, argv, out, timeout, quiet):
        self.argv, self.out, self.timeout, self.quiet = argv, os.path.abspath(out), timeout, quiet
        self.runs, self.notes, self.found = [], [], {}
        self.limit = timeout

    def say(self, text):
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def run(self, what, **plan):
        facts = os.path.join(self.out, f"facts_{len(self.runs)}_{threading.get_ident()}.json")
        env = dict(os.environ, TAPER_TORCH_PLAN=json.dumps({**plan, "facts": facts}), TAPER_COMPILE_DEBUG_DIR=self.out)
        env.setdefault("PYTHONHASHSEED", "0")
        env.setdefault("PYTHONFAULTHANDLER", "1")  # says where a run was when it is ended
        with tempfile.TemporaryFile() as o, tempfile.TemporaryFile() as e:
            t = time.monotonic()
            p = subprocess.Popen([sys.executable, "-m", "taper.torch", "run", *self.argv], stdout=o, stderr=e, stdin=subprocess.DEVNULL, env=env, start_new_session=True)
            hung = False
            try:
                p.wait(self.limit)
            except subprocess.TimeoutExpired:
                hung = True
            if hung:
                try:
                    os.kill(p.pid, signal.SIGABRT)
                    p.wait(5)
                except (ProcessLookupError, PermissionError, subprocess.TimeoutExpired):
                    pass
            for kill in (os.killpg, os.kill) if hung else (os.killpg,):
                try:
                    kill(p.pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            p.wait()
            texts = []
            for f in (o, e):
                f.seek(0)
                texts.append(f.read().decode(errors="replace"))
        try:
            with open(facts, encoding="utf-8") as f:
                seen = json.load(f)
            os.unlink(facts)
        except (OSError, ValueError):
            seen = {}
        r = Run(what, p.returncode, *texts, time.monotonic() - t, hung, seen)
        self.runs.append(r)
        self.say(f"{what}: {r.outcome()} ({r.seconds:.1f} s)")
        return r

    # -- judging --
    def bad(self, r):
        """What is wrong with a run, or None."""
        if r.hung:
            return "does not end"
        if r.status != self.plain.status:
            return r.outcome()
        if r.status == 0:
            return _prints.compare(self.plain.out, self.also.out, r.out)
        return None if r.error() == self.plain.error() else r.outcome()

    def examine(self):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:  # they know nothing of each other
            self.plain, self.also = pool.map(lambda what: self.run(what, disable=True), ("without the compiler", "without the compiler, again"))
        if self.plain.hung:
            return self.end(UNDECIDED, "the program does not end in time without the compiler either (--timeout)")
        if self.plain.status != self.also.status:
            return self.end(UNDECIDED, "two runs without the compiler end differently")
        slowest = max(self.plain.seconds, self.also.seconds)
        self.limit = min(self.timeout, 120 + 20 * slowest)
        with_ = self.run("as it is")
        self.compiled = with_
        bad = self.bad(with_)
        if self.plain.status and bad is None:
            return self.end(UNDECIDED, f"the program also fails without the compiler, in the same way: {self.plain.outcome()}")
        if bad and not with_.hung and with_.status == 0:  # was it noise that two runs happened to agree on?
            third = self.run("without the compiler, once more", disable=True)
            if third.status == 0 and _prints.compare(self.plain.out, self.also.out, third.out):
                self.also = third
                bad = self.bad(with_)
        if bad and with_.status == 0 and not with_.hung:
            same = self.run("as it is, with PyTorch's random numbers", settings=["torch._inductor.config.fallback_random = True"], fresh=True)
            if self.bad(same) is None:
                self.notes.append("Compiled code draws other random numbers for the same seed; with `torch._inductor.config.fallback_random = True` it prints the same.")
                bad = None
        self.storms()
        died = bool(bad) and (with_.hung or with_.status < 0)
        if with_.hung:
            self.stuck(with_)
            self.limit = min(self.limit, 30 + 10 * slowest)  # how long it takes to hang is known now
        rung = self.climb() if bad and not died else None
        folder = self.check(died)
        if not bad and not folder:
            return self.end(WELL, "the program prints the same with and without the compiler, and every compiled graph agrees with eager PyTorch and float64")
        if bad:
            self.found["wrong"] = (f"compiled, the program {'' if with_.hung else 'ends with '}{bad}" if died or with_.status != self.plain.status else f"the program prints something else compiled: {bad}")
            if with_.status == 0 and not died:
                self.found["prints"] = bad
        if folder:
            self.locate(folder)
        elif rung:
            from ._bisect import STAGES
            self.found["stage"] = STAGES.get(rung, f"the backend '{rung}'") + " (every graph alone is right)" * (rung != "eager")
        elif bad:
            again = self.run("as it is, again")
            if self.bad(again) is None:
                return self.end(UNDECIDED, f"{self.found['wrong']}; it comes and goes, and no single graph shows it")
            self.found["stage"] = "what is around the compiled graphs: guards, graph breaks, or the backend's own state"
        self.work_around(rung)
        if "wrong" not in self.found:
            self.found["wrong"] = "a compiled graph is wrong, although the program prints the same"
        return self.end(FAULT, self.found["wrong"])

    def stuck(self, r):
        """The innermost Python frames of a run that was ended, the user's own one among them."""
        frames = re.findall(r'^  File "(.+?)", line (\d+) in (\S+)', r.err.split("Current thread")[-1], re.M)
        if not frames:
            return
        self.notes.append("It was ended in (the innermost first):\n\n" + "\n".join(f"    {f}:{n} in {name}" for f, n, name in frames[:12]))
        f, n, name = next((x for x in frames if "threading.py" not in x[0]), frames[0])
        own = next((x for x in frames if not re.search(r"/lib/python3|site-packages|^<", x[0])), None)
        self.found["stuck"] = f"`{name}` ({f}:{n})" + (f", called from `{own[2]}` ({own[0]}:{own[1]})" if own and own[0] != f else "")

    def climb(self):
        from ._bisect import LADDER
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = list(pool.map(lambda b: self.run(f'backend="{b}"', backend=b, fresh=b == "inductor"), LADDER))
        self.rungs = dict(zip(LADDER, runs))
        return next((b for b, r in self.rungs.items() if self.bad(r)), None)

    def check(self, died):
        """Every graph compared with eager: the folder of one that fails, or None."""
        level = 3 if died else 4
        for after in ("dynamo", "aot"):
            what = "saved before every call" if died else "every graph compared with eager"
            r = self.run(f"{what} ({after})", debug={"level": level, "after": after, "out": self.out}, fresh=True)
            folder = next(iter(r.facts.get("saved", [])), None) or (self.newest() if r.hung or r.status < 0 else None)
            if folder:
                return folder
            if not died and not self.found.get("again") and self.bad(r) is None:
                break
        return None

    def newest(self):
        top, best = os.path.join(self.out, "taper_compile_debug"), None
        for base, _, files in os.walk(top):
            if "failure.json" in files and (best is None or os.path.getmtime(base) > os.path.getmtime(best)):
                best = base
        return best

    def storms(self):
        for f in self.compiled.facts.get("findings", []):
            times = f"{f['times']} times" if f["times"] > 1 else "once"
            self.notes.append(f"{f['kind']} at {f['where']}, {times}: {f['what']}; fix: {f['fix']}")
            if f["kind"] == "recompilation" and f["times"] >= STORM - 1:
                self.found.setdefault("storm", f"a recompilation storm at {f['where']} ({f['times']} times): {f['what']}; fix: {f['fix']}")

    # -- the graph --
    def locate(self, folder):
        """Minimises and bisects a saved graph, in a child: what it found comes back as a file."""
        answer = os.path.join(self.out, "minimal")
        self.found["saved"] = folder
        result = os.path.join(self.out, "found.json")
        if os.path.exists(result):  # of an earlier examination
            os.unlink(result)
        code = ("import sys, taper.torch._doctor as d; sys.exit(d.examine_graph(*sys.argv[1:]))")
        slowest = max(self.plain.seconds, self.also.seconds)
        trial = min(self.limit, 120, 5 + 2 * slowest if self.compiled.hung else 120)  # a trial does less than the program
        env = dict(os.environ, **({"TAPER_TORCH_SCRIPT": os.path.abspath(self.argv[0])} if self.argv[0] != "-m" else {}))
        p = subprocess.run([sys.executable, "-c", code, folder, answer, result, str(trial)], env=env, stdout=subprocess.PIPE, stderr=None if not self.quiet else subprocess.DEVNULL)
        self.notes.append("```\n" + p.stdout.decode(errors="replace").strip() + "\n```")
        try:
            with open(result, encoding="utf-8") as f:
                self.found.update({k: v for k, v in json.load(f).items() if v})
        except (OSError, ValueError):
            self.notes.append("The saved graph does not fail alone.")

    def work_around(self, rung):
        """The first of a few ways with which the program is right."""
        from ._bisect import LADDER
        tries = [s for s in [self.found.get("help")] + self.found.get("passes", [])[:2] if s and s.startswith("torch.")]
        for setting in tries:
            r = self.run(f"with {setting}", settings=[setting], fresh=True)
            if self.bad(r) is None:
                self.found["workaround"] = setting
                return
        at = LADDER.index(rung) if rung in LADDER else len(LADDER)
        for b in reversed(LADDER[:at]):
            r = getattr(self, "rungs", {}).get(b) or self.run(f'work-around backend="{b}"', backend=b)
            if self.bad(r) is None:
                self.found["workaround"] = f'backend="{b}"'
                return

    # -- the verdict --
    def end(self, status, wrong):
        self.status, f = status, self.found
        text = ("Nothing wrong: ", "Fault found: ", "Could not decide: ")[status] + wrong
        if status == FAULT:
            text += f"; the smallest graph that shows it ({f['nodes']} operator{'s' * (f['nodes'] != 1)}): {f['failure']}" if f.get("failure") else ""
            text += f"; the fault is in {f['stage']}" if f.get("stage") else ""
            text += f"; it does not come back from {f['stuck']}" if f.get("stuck") else ""
            text += f"; operator{'s' * (',' in f['operators'])} {f['operators']}" if f.get("operators") else ""
            text += f" at {f['line']}" if f.get("line") else ""
            text += f"; work-around, tried: {f['workaround']}" if f.get("workaround") else ""
        if f.get("storm"):
            text += f"; also {f['storm']}"
        self.verdict = text.replace("\n", " ").rstrip(".") + "."
        return status

    def report(self):
        lines = [f"# What `taper doctor --torch` found for {' '.join(self.argv)}", "", f"**{self.verdict}**", "", "| run | outcome | time |", "| --- | --- | --- |"]
        for r in self.runs:
            outcome = r.outcome().replace("|", "\\|")
            lines.append(f"| {r.what} | {outcome} | {r.seconds:.1f} s |")
        lines += [""] + [n + "\n" for n in self.notes]
        if self.found.get("repro"):
            lines.append(f"The smallest program that fails: {self.found['repro']}")
        return "\n".join(lines) + "\n"


def examine_graph(folder, answer, result, timeout):
    """In a process of its own: the smallest graph, and what of the compiler is at fault."""
    from . import _bisect, _case, _minify, _repro
    from ._trial import Trials, supervise
    case, was = _case.read(folder)
    try:
        _case.find_backend(case.how["backend"])
    except LookupError as e:
        print(e)
        return 1

    def work(warm, warmed):
        say = lambda text: print(text, file=sys.stderr, flush=True)
        trials = Trials(float(timeout))
        if warm:
            trials.warm(case.how)
        warmed()
        now = trials.one(case)
        if now.kind in ("pass", "cannot run"):
            print(f"{folder}: {now} (recorded: {was})")
            return 1
        m = _minify.Minifier(case, now, trials, say)
        if now.kind == "time-out":  # every trial that shows it takes all of its time
            m.until = time.monotonic() + 60
        m.run()
        best = m.best
        now = trials.one(best)
        os.makedirs(answer, exist_ok=True)
        _case.save(answer, best, now)
        script = _repro.write(answer, best, now, m.before)
        ok, said = _repro.verify(script, now, float(timeout))
        found = _bisect.bisect(best, trials, say)
        from ._graph import function
        print(function(best.graph))
        print(now)
        print(f"{m.before} operators before, {best.size} after, {trials.count} trials; repro.py {'shows it in a fresh process' if ok else 'does not show it in a fresh process: ' + said}")
        print(f"It fails in {found.stage}." + (" It passes with: " + "; ".join(found.passes) if found.passes else ""))
        names = dict.fromkeys(op.target.split(".")[-2] if op.target.startswith("torch.ops.") and op.target.count(".") > 3 else op.target.split(".")[-1]
                              for op in best.graph.ops if op.kind != "graph")
        with open(result, "w", encoding="utf-8") as f:
            json.dump({"stage": found.stage, "operators": ", ".join(names), "line": next((op.line for op in reversed(best.graph.ops) if op.line), ""),
                       "help": found.help, "passes": found.passes, "repro": script, "failure": repr(now), "nodes": best.size, "verified": bool(ok)}, f)
        return 0
    return supervise(work)


def main(argv):
    p = argparse.ArgumentParser(prog="taper doctor --torch", add_help=True)
    p.add_argument("--json", action="store_true")
    p.add_argument("--out", default="taper_doctor")
    p.add_argument("--timeout", type=float, default=900)
    p.add_argument("rest", nargs=argparse.REMAINDER)
    a = p.parse_args(argv)
    if not a.rest:
        p.error("SCRIPT or -m MODULE")
    if a.rest[0] != "-m" and not os.path.isfile(a.rest[0]):
        print(f"taper: no such file: {a.rest[0]}", file=sys.stderr)
        return 2
    os.makedirs(a.out, exist_ok=True)
    d = Doctor(a.rest, a.out, a.timeout, a.json)
    status = d.examine()
    path = os.path.join(a.out, "report.md")
    text = d.report()
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    if a.json:
        keys = ("wrong", "prints", "stage", "operators", "line", "workaround", "saved", "repro", "storm")
        print(json.dumps({"status": STATUS[status], "verdict": d.verdict, **{k: d.found.get(k) for k in keys}, "passes": d.found.get("passes", []),
                          "findings": d.compiled.facts.get("findings", []) if hasattr(d, "compiled") else [], "report": path,
                          "runs": [{"what": r.what, "outcome": r.outcome(), "seconds": round(r.seconds, 2)} for r in d.runs]}))
    else:
        print(d.verdict + "\n\n" + text + f"\nWritten to {path}")
    return status
