"""python -m taper script.py [args]: runs a program with `import torch` meaning Taper.

  python -m taper script.py [args ...]      run a script
  python -m taper -m module [args ...]      run a module
  python -m taper -c 'code' [args ...]      run code
  python -m taper COMMAND [args ...]        the taper program (python -m taper help lists its commands)
"""
import os
import runpy
import sys


def program():
    """The taper program beside this package, or None."""
    here = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(os.path.dirname(here))
    for p in (os.path.join(here, "bin", "taper"), os.path.join(root, "build", "taper")):
        if os.access(p, os.X_OK) and os.path.isfile(p):
            return p
    return None


def command():
    """The console script `taper`: the program, with this Python first for the commands that run programs."""
    exe = program()
    if exe is None:
        print("taper: the program is not built; run make build in the source tree, or install the package again", file=sys.stderr)
        return 2
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", os.defpath)
    os.execv(exe, ["taper"] + sys.argv[1:])


def own(frame):
    """Does a frame belong to the way from `python -m taper` to the program?"""
    name = frame.f_code.co_filename
    return name == __file__ or name in ("<frozen runpy>", runpy.__file__)


def run(program):
    """Runs it; a traceback begins with the program's own frames."""
    try:
        program()
    except (SystemExit, KeyboardInterrupt):
        raise
    except BaseException as e:
        if sys.gettrace() is not None:  # under a debugger
            raise
        tb = e.__traceback__
        while tb is not None and own(tb.tb_frame):
            tb = tb.tb_next
        sys.excepthook(type(e), e.with_traceback(tb or e.__traceback__), tb or e.__traceback__)
        return 1
    return 0


def main():
    args = sys.argv[1:]
    if not args or args[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if args else 2
    first = args[0]
    if first in ("-m", "-c"):
        if len(args) < 2:
            print(f"python -m taper {first}: an argument is missing", file=sys.stderr)
            return 2
        import taper.torch_alias  # noqa: F401
        sys.path[0] = os.getcwd()
        if first == "-m":
            sys.argv = args[1:]
            return run(lambda: runpy.run_module(args[1], run_name="__main__", alter_sys=True))
        sys.argv = ["-c"] + args[2:]
        return run(lambda: exec(compile(args[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__}))
    if os.path.isfile(first):
        import taper.torch_alias  # noqa: F401
        sys.argv = args
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        return run(lambda: runpy.run_path(first, run_name="__main__"))
    if first.endswith(".py") or os.sep in first:
        print(f"python -m taper: there is no file {first!r}", file=sys.stderr)
        return 2
    exe = program()
    if exe is None:
        print(f"python -m taper: {first!r} is no file, and the taper program is not built (make build)", file=sys.stderr)
        return 2
    os.execv(exe, [exe] + args)


if __name__ == "__main__":
    sys.exit(main())
