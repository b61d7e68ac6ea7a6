"""One rank, before the program: says in the environment who it is, as torchrun does, and becomes the program."""
import os
import signal
import sys

from . import _mpi
from .run import _die_with_parent


def main():
    log, *command = sys.argv[1:]
    e = os.environ
    told = _mpi.rank_and_size()
    if e.get("TAPER_COMM_BACKEND") == "mpi" and told:
        rank, size, local = told
        e.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(local), LOCAL_WORLD_SIZE=e.get("TAPER_LOCAL_SIZE", str(size)), ROLE_RANK=str(rank))
        e.setdefault("GROUP_RANK", "0")
        e.setdefault("TORCHELASTIC_RUN_ID", e.get("TAPER_RUN_ID", "none"))
    else:
        _die_with_parent()
    if log:
        os.makedirs(log, exist_ok=True)
        fd = os.open(os.path.join(log, f"rank{e['RANK']}.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(fd, 1)
        os.dup2(fd, 2)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
