"""python -m taper.distributed.launch: the older name of taper.distributed.run."""
import sys

from .run import main  # noqa: F401

if __name__ == "__main__":
    sys.exit(main())
