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
            runpy.run_module(args[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = ["-c"] + args[2:]
            exec(compile(args[1], "<string>", "exec"), {"__name__": "__main__", "__builtins__": __builtins__})
        return 0
    if os.path.isfile(first):
        import taper.torch_alias  # noqa: F401
        sys.argv = args
        sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")
        return 0
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
