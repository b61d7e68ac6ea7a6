"""python -m taper.utils.collect_env: what a report of a problem should say about the machine."""
import os as _os
import platform as _platform
import shutil as _shutil
import subprocess as _subprocess
import sys as _sys


def run(command):
    """(exit code, output, errors) of a command."""
    p = _subprocess.run(command, shell=isinstance(command, str), capture_output=True, text=True)
    return p.returncode, p.stdout.strip(), p.stderr.strip()


def _first_line(*command):
    if not _shutil.which(command[0]):
        return "not found"
    try:
        return (run(list(command))[1].splitlines() or ["unknown"])[0]
    except OSError:
        return "unknown"


def _release():
    try:
        with open("/etc/os-release") as f:
            rows = dict(line.rstrip("\n").split("=", 1) for line in f if "=" in line)
        return rows.get("PRETTY_NAME", "").strip('"') or _platform.system()
    except OSError:
        return _platform.platform()


def _cpu():
    try:
        with open("/proc/cpuinfo") as f:
            return next((line.split(":", 1)[1].strip() for line in f if line.startswith("model name")), _platform.machine())
    except OSError:
        return _platform.machine()


def _packages():
    import importlib.metadata as m
    names = ("numpy", "torch", "safetensors", "taper-compiler")
    out = []
    for n in names:
        try:
            out.append(f"{n}=={m.version(n)}")
        except m.PackageNotFoundError:
            pass
    return out


def get_env_info():
    """{what: value}, in the order of the report."""
    import taper
    from taper import cuda, version
    ours = sorted(f"{k}={v}" for k, v in _os.environ.items() if k.startswith(("TAPER_", "TORCH", "OMP_", "OPENBLAS_")))
    return {
        "Taper": version.taper, "PyTorch that programs are told": version.__version__, "Taper is in": _os.path.dirname(taper.__file__),
        "OS": _release(), "Kernel": _platform.release(), "C library": " ".join(_platform.libc_ver()) or "unknown", "CPU": _cpu(),
        "Cores": str(len(_os.sched_getaffinity(0)) if hasattr(_os, "sched_getaffinity") else _os.cpu_count()), "Threads of Taper": str(taper.get_num_threads()),
        "Instruction set": taper.backends.cpu.get_cpu_capability() if hasattr(taper.backends, "cpu") else "unknown",
        "CUDA": "available" if cuda.is_available() else "not available", "GCC": _first_line("gcc", "--version"), "Clang": _first_line("clang", "--version"),
        "CMake": _first_line("cmake", "--version"), "Python": f"{_platform.python_version()} ({_platform.python_implementation()}, {_sys.executable})",
        "Packages": ", ".join(_packages()) or "none of interest", "Environment": " ".join(ours) or "no variables of Taper",
    }


def get_pretty_env_info():
    """The report as text."""
    info = get_env_info()
    wide = max(map(len, info))
    return "\n".join(f"{k + ':':<{wide + 2}}{v}" for k, v in info.items())


pretty_str = get_pretty_env_info


def main():
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
