"""python -m taper.torch COMMAND: the debugger for PyTorch programs.

  python -m taper.torch minify DIR [--out DIR] [--timeout SECONDS] [--memory MIB] [--jobs N] [--check-str TEXT]
  python -m taper.torch repro DIR                 does a saved failure fail here? exit status 1: it does
  python -m taper.torch doctor [--json] [--out DIR] [--timeout SECONDS] SCRIPT|-m MODULE [args ...]
"""
import argparse
import os
import sys


def minify(argv):
    from ._minify import minify
    p = argparse.ArgumentParser(prog="taper minify")
    p.add_argument("dir")
    p.add_argument("--out")
    p.add_argument("--timeout", type=float, default=120)
    p.add_argument("--memory", type=float)
    p.add_argument("--jobs", type=int)
    p.add_argument("--check-str")
    a = p.parse_args(argv)
    return minify(a.dir, a.out, a.timeout, int(a.memory * 1048576) if a.memory else None, a.jobs, a.check_str)


def repro(argv):
    from . import _case
    from ._trial import Trials, supervise
    p = argparse.ArgumentParser(prog="taper repro")
    p.add_argument("dir")
    p.add_argument("--timeout", type=float, default=120)
    a = p.parse_args(argv)
    case, was = _case.read(a.dir)

    def work(warm, warmed):
        warmed()
        now = Trials(a.timeout).one(case)
        print(f"recorded: {was}\nhere:     {now}")
        return 0 if now.kind == "pass" else 1
    return supervise(work)


def doctor(argv):
    from ._doctor import main
    return main(argv)


def run(argv):
    from ._run import main
    return main(argv)


COMMANDS = {"minify": minify, "repro": repro, "doctor": doctor, "run": run}


def main():
    args = sys.argv[1:]
    if args[:1] != ["run"]:
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    if not args or args[0] not in COMMANDS:
        print(__doc__.strip(), file=sys.stderr if args else sys.stdout)
        return 2
    try:
        return COMMANDS[args[0]](args[1:])
    except (ValueError, LookupError, OSError) as e:
        print(f"taper: {e}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
