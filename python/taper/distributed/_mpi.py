"""Which MPI there is, and the small library around it: compiled once with its mpicc, kept in the cache directory."""
import hashlib
import os
import shutil
import subprocess
import tempfile

_HERE = os.path.dirname(os.path.abspath(__file__))


def launcher():
    """"openmpi" or "mpich" when this process was started by that mpirun, else None."""
    if "OMPI_COMM_WORLD_SIZE" in os.environ:
        return "openmpi"
    if "PMI_SIZE" in os.environ or "PMI_RANK" in os.environ:
        return "mpich"
    return None


def rank_and_size():
    """(rank, size, local rank) as the launcher of MPI tells, or None."""
    e = os.environ
    for rank, size, local in (("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"), ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID")):
        if rank in e and size in e:
            return int(e[rank]), int(e[size]), int(e.get(local, e[rank]))
    return None


def family(command):
    """Whose compiler wrapper or launcher that is."""
    try:
        out = subprocess.run([command, "--version" if "mpicc" not in os.path.basename(command) else "-show"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = (out.stdout + out.stderr).lower()
    return "openmpi" if "open mpi" in text or "openmpi" in text or "open-rte" in text else "mpich" if "mpich" in text or "hydra" in text else None


def find(program, kind=None):
    """The path of mpicc or mpirun, of that family when one is named. TAPER_MPI names a folder that is looked at first."""
    names = [f"{program}.{kind}", program] if kind else [program, f"{program}.openmpi", f"{program}.mpich"]
    for folder in [os.environ.get("TAPER_MPI")] + [None]:
        for n in names:
            path = shutil.which(n, path=folder) if folder else shutil.which(n)
            if path and (not kind or n.endswith("." + kind) or family(path) == kind):
                return path
    return None


def _source():
    for folder in (_HERE, os.path.join(_HERE, "..", "..", "..", "src", "comm", "shim")):
        if os.path.exists(os.path.join(folder, "mpi_shim.c")):
            return os.path.abspath(folder)
    return None


def shim(kind=None):
    """The library for that MPI (or for the one that is found). RuntimeError in words when it cannot be had."""
    mpicc = find("mpicc", kind)
    if not mpicc:
        raise RuntimeError(f"the mpi back end needs the compiler wrapper mpicc{' of ' + kind if kind else ''}, to build a small library around MPI once "
                           "(Debian: apt-get install libopenmpi-dev, or libmpich-dev)")
    folder = _source()
    if not folder:
        raise RuntimeError("mpi_shim.c is not installed with this package")
    show = subprocess.run([mpicc, "-show"], capture_output=True, text=True).stdout
    h = hashlib.sha256(show.encode())
    for name in ("shim.h", "mpi_shim.c"):
        with open(os.path.join(folder, name), "rb") as f:
            h.update(f.read())
    cache = os.environ.get("TAPER_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "taper")
    path = os.path.join(cache, f"mpi-{h.hexdigest()[:24]}.so")
    if os.path.exists(path):
        return path
    os.makedirs(cache, mode=0o700, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as tmp:
        out = os.path.join(tmp, "shim.so")
        p = subprocess.run([mpicc, "-O2", "-shared", "-fPIC", "-I", folder, "-o", out, os.path.join(folder, "mpi_shim.c")], capture_output=True, text=True)
        if p.returncode:
            raise RuntimeError(f"{mpicc} cannot build the library around MPI:\n{p.stderr[-2000:]}")
        os.replace(out, path)  # ranks that build it at the same time make the same file
    return path


def available():
    return find("mpicc") is not None and _source() is not None
