"""Process groups and collectives, with PyTorch's names, over src/comm/: MPI where the program was started by mpirun, shared
memory between the processes of one machine otherwise. "gloo" means whichever of the two there is; "nccl" adds NCCL for tensors on GPUs."""
import atexit as _atexit
import datetime as _datetime
import enum as _enum
import hashlib as _hashlib
import os as _os
import socket as _socket
import sys as _sys
import threading as _threading

from .. import _C
from . import _mpi, _objects
from ._store import FileStore, HashStore, PrefixStore, Store, TCPStore  # noqa: F401

default_pg_timeout = _datetime.timedelta(minutes=30)
default_pg_nccl_timeout = _datetime.timedelta(minutes=10)


class DistError(RuntimeError):
    """Something went wrong between processes."""


class DistBackendError(DistError):
    """The job was aborted; the text says which rank is to blame."""


class DistNetworkError(DistError):
    """Processes do not reach each other."""


class DistStoreError(DistError):
    """A key did not come in time."""


class DistQueueEmptyError(DistStoreError):
    """A queue of a store is empty."""


_C._comm_setup(DistBackendError, _os.path.dirname(_os.path.dirname(_os.path.abspath(__file__))) + _os.sep)
_KIND = {n: i for i, n in enumerate(_C._comm_kinds)}
_RED = {n: i for i, n in enumerate(_C._comm_reductions)}


# --- what there is
def is_available():
    return True


def is_initialized():
    return _group is not None


def is_mpi_available():
    return _mpi.available()


def is_gloo_available():
    """Yes: programs written for it run on MPI or on shared memory."""
    return True


def _nccl_folder():
    """Where the package nvidia-nccl has its library, or None."""
    import importlib.util
    try:
        spec = importlib.util.find_spec("nvidia.nccl")
    except ModuleNotFoundError:
        return None
    at = [_os.path.join(p, "lib") for p in (spec.submodule_search_locations if spec else ())]
    return next((p for p in at if _os.path.isdir(p)), None)


def is_nccl_available():
    try:
        return _C._comm_nccl_version(_nccl_folder()) > 0
    except RuntimeError:
        return False


def is_ucc_available():
    return False


is_xccl_available = is_ucc_available


def is_torchelastic_launched():
    return "TORCHELASTIC_RUN_ID" in _os.environ


def is_backend_available(backend):
    there = {"gloo": is_gloo_available, "shm": is_gloo_available, "mpi": is_mpi_available, "nccl": is_nccl_available}
    return backend.lower() in there and there[backend.lower()]()


class ReduceOp(_enum.Enum):
    SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR, PREMUL_SUM, UNUSED = range(10)


ReduceOp.RedOpType = ReduceOp
reduce_op = ReduceOp
_OP = {ReduceOp.SUM: "sum", ReduceOp.AVG: "avg", ReduceOp.PRODUCT: "prod", ReduceOp.MIN: "min", ReduceOp.MAX: "max", ReduceOp.BAND: "band",
       ReduceOp.BOR: "bor", ReduceOp.BXOR: "bxor"}


_SUM = ReduceOp.SUM


def _reduction(op):
    if op is _SUM:  # enum members hash slowly
        return 0
    if op not in _OP:
        raise RuntimeError(f"Cannot use {op} here: sum, avg, product, min, max and operations on bits are supported")
    return _RED[_OP[op]]


class Backend(str):
    UNDEFINED, GLOO, NCCL, MPI, UCC, XCCL, FAKE = "undefined", "gloo", "nccl", "mpi", "ucc", "xccl", "fake"
    backend_list = ["undefined", "gloo", "nccl", "xccl", "ucc", "mpi"]
    default_device_backend_map = {"cpu": "gloo", "cuda": "nccl"}


# --- works
class Work:
    """What a collective with async_op=True gives. wait() makes the results visible."""

    def __init__(self, works=(), after=(), result=None, source=None):
        self._works, self._after, self._result, self._error, self._source = list(works), list(after), result, None, source
        self._done = False
        self._future = None

    def _finish(self):
        if not self._done:
            self._done = True
            for f in self._after:
                f()
            self._after = []
            if self._future is not None and not self._future.done():
                self._future.set_result(self._result)
        return True

    def wait(self, timeout=None):
        ms = -1 if not timeout else int(timeout.total_seconds() * 1000)
        try:
            for w in self._works:
                if not w.wait(ms):
                    raise RuntimeError(f"the collective has not finished within {timeout}")
        except Exception as e:
            self._error = e
            raise
        return self._finish()

    def is_completed(self):
        return self._done or (all(w.test() for w in self._works) and self._finish())

    def is_success(self):
        return self.is_completed() and self._error is None

    def exception(self):
        return self._error

    def result(self):
        self.wait()
        return self._result

    def source_rank(self):
        return self._source(self._works[0].source()) if self._source else 0

    _source_rank = source_rank

    def synchronize(self):
        self.wait()

    def get_future(self):
        from ..futures import Future
        if self._future is None:
            outer = self

            class Waiting(Future):
                def wait(self):
                    if not self.done():
                        outer.wait()
                    return self.value()

                def done(self):
                    return self._ended.is_set()

                def then(self, callback):
                    outer.wait()
                    return super().then(callback)
            self._future = Waiting()
            if self._done:
                self._future.set_result(self._result)
        return self._future


# --- groups
class ProcessGroup:
    """Ranks that call collectives together."""
    _count = 0

    def __init__(self, ranks, backend, handle, desc=None):
        self._ranks, self._backend, self._handle = list(ranks), backend, handle
        self._rank = self._ranks.index(_rank) if _rank in self._ranks else -1
        self._device = None  # joined by NCCL
        self.group_name = str(ProcessGroup._count)
        self.group_desc = desc or ("default_pg" if ProcessGroup._count == 0 else "undefined")
        ProcessGroup._count += 1
        _by_name[self.group_name] = self

    def size(self):
        return len(self._ranks)

    def rank(self):
        return self._rank

    def name(self):
        return self._backend

    def allreduce(self, tensors, opts=None):
        return all_reduce(tensors[0] if isinstance(tensors, (list, tuple)) else tensors, group=self, async_op=True)

    def broadcast(self, tensors, root=0):
        return broadcast(tensors[0] if isinstance(tensors, (list, tuple)) else tensors, group_src=root, group=self, async_op=True)

    def barrier(self, opts=None):
        return barrier(group=self, async_op=True)


_group = None
_rank = 0
_size = 1
_pid = None
_by_name = {}
_listener = None


class _Names(type):
    @property
    def WORLD(cls):
        return _group


class group(metaclass=_Names):
    """group.WORLD is the group of all processes, once there is one."""


class GroupMember(metaclass=_Names):
    NON_GROUP_MEMBER = -100


def _timeout_ms(timeout):
    env = _os.environ.get("TAPER_COMM_TIMEOUT")
    if env:
        try:
            seconds = float(env)
        except ValueError:
            raise ValueError(f"TAPER_COMM_TIMEOUT={env!r} is not a number of seconds") from None
        return max(1, int(seconds * 1000))
    return int((timeout or default_pg_timeout).total_seconds() * 1000)


def _need(name):
    v = _os.environ.get(name)
    if v is None:
        raise ValueError(f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, but not set")
    return v


def _key(init_method, store, rank):
    """A name for the job that its ranks agree on."""
    if store is not None:
        if rank == 0:
            store.set(f"taper/job/{_epoch}", _os.urandom(12).hex())
        return "s" + store.get(f"taper/job/{_epoch}").decode()
    run = _os.environ.get("TAPER_RUN_ID") or _os.environ.get("TORCHELASTIC_RUN_ID") or ""
    if init_method in (None, "env://"):
        what = f"{_os.environ.get('MASTER_ADDR', '')}:{_os.environ.get('MASTER_PORT', '')}:{run}:{_os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}"
    elif init_method.startswith(("tcp://", "file://")):
        what = init_method.split("?")[0] + run
    else:
        raise RuntimeError(f"No rendezvous handler for {init_method.split(':')[0]}://")
    return "e" + _hashlib.sha256(f"{what}:{_epoch}".encode()).hexdigest()[:16]


_epoch = 0  # groups of this process before: a program may join, leave and join again


def _backend_name(backend):
    """(the name of a group with this back end, does NCCL take its tensors on GPUs)"""
    text = str(backend or "gloo").lower()
    parts = dict(p.split(":", 1) if ":" in p else ("", p) for p in text.split(","))
    for name in parts.values():
        if name not in ("gloo", "mpi", "nccl", "shm", "ucc", "xccl", "fake"):
            raise ValueError(f"Invalid backend: '{name}'")
        if name in ("ucc", "xccl"):
            raise RuntimeError(f"Distributed package doesn't have {name.upper()} built in; 'gloo', 'mpi' and 'nccl' are supported")
    gpus = parts.get("cuda", parts.get("")) == "nccl"
    if gpus:
        import taper
        if not taper.cuda.is_available():
            raise RuntimeError("ProcessGroupNCCL is only supported with GPUs, no GPUs found!")
        _C._comm_nccl_version(_nccl_folder())
    name = parts.get("cpu") or next(iter(parts.values()))
    return ("mpi" if name == "mpi" else "nccl" if gpus and name == "nccl" else name), gpus


def _each_its_own(g, index):
    """NCCL takes a GPU once in a group, and calls anything else an invalid usage."""
    import taper
    card = taper.cuda.get_device_properties(index)
    card = f"{card.pci_domain_id:x}:{card.pci_bus_id:x}:{card.pci_device_id:x} {_socket.gethostname()}".encode()[:128].ljust(128)
    mine, every = _bytes_tensor(card), _bytes_tensor(bytes(128 * g.size()))
    _call(g, "all_gather", mine, every)
    every = _tensor_bytes(every)
    cards = [every[128 * i:128 * i + 128] for i in range(g.size())]
    who = next(([i for i, c in enumerate(cards) if c == one] for one in cards if cards.count(one) > 1), None)
    if who:  # on every rank: none waits for those that stopped here
        raise ValueError(f"ranks {', '.join(map(str, who))} of this group have the same GPU ({cards[who[0]].decode().strip()}): NCCL needs one for each rank. "
                         "Call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group, start at most as many ranks as there are GPUs, or use backend=\"gloo\"")


def _on_gpus(g, device_id=None):
    """All ranks of a group join NCCL, each on its GPU: device_id, the current one where it was set, or that of its rank on the host."""
    import taper
    index = taper.device("cuda", device_id).index if isinstance(device_id, int) else getattr(device_id, "index", None)
    if index is None:
        index = taper.cuda.current_device() or int(_os.environ.get("LOCAL_RANK", _rank)) % taper.cuda.device_count()
    _each_its_own(g, index)
    box = _bytes_tensor(_C._comm_nccl_id(_nccl_folder()) if g.rank() == 0 else bytes(128))
    _call(g, "broadcast", box, box)
    _C._comm_group_on(g._handle, index, _tensor_bytes(box))
    g._device = taper.device("cuda", index)
    return g


def init_process_group(backend=None, init_method=None, timeout=None, world_size=-1, rank=-1, store=None, group_name="", pg_options=None, device_id=None, _ranks=None):
    """Joins the job; returns when every rank has. Rank and size come from the arguments, the environment, or the launcher of MPI."""
    global _group, _rank, _size, _pid, _epoch
    if _group is not None:
        raise ValueError("trying to initialize the default process group twice!")
    if store is not None and init_method is not None:
        raise ValueError("Cannot specify both init_method and store.")
    name, gpus = _backend_name(backend)
    world_size = -1 if world_size is None else world_size
    ms = _timeout_ms(timeout)
    under = _mpi.launcher()
    told = _os.environ.get("TAPER_COMM_BACKEND") or ("mpi" if under and world_size != 1 and "RANK" not in _os.environ else "shm")
    if told not in ("mpi", "shm"):
        raise ValueError(f"TAPER_COMM_BACKEND={told!r}: mpi or shm")
    if name == "mpi" or (name in ("gloo", "nccl") and told == "mpi"):
        rank_, size_ = _C._comm_open("mpi", None, _mpi.shim(under), rank, world_size, ms)
    else:
        if rank < 0 or world_size < 0:
            if store is not None:
                raise ValueError("world_size must be positive if using store" if world_size < 0 else "rank must be non-negative if using store")
            rank = int(_need("RANK")) if rank < 0 else rank
            world_size = int(_need("WORLD_SIZE")) if world_size < 0 else world_size
        if world_size > 1 and store is None and init_method in (None, "env://"):
            _need("MASTER_ADDR")
            _need("MASTER_PORT")
        if rank >= world_size:
            raise ValueError(f"rank {rank} of a world of {world_size}")
        key = f"p{_os.getpid()}-{_epoch}" if world_size == 1 else _key(init_method, store, rank)
        rank_, size_ = _C._comm_open("shm", key, None, rank, world_size, ms)
    _rank, _size, _pid = rank_, size_, _os.getpid()
    _epoch += 1
    ProcessGroup._count = 0
    _by_name.clear()
    _listen()
    ranks = tuple(range(_size))
    _group = ProcessGroup(ranks, name, _C._comm_group(ranks))
    if gpus:
        try:
            _on_gpus(_group, device_id)
        except BaseException:
            if not _C._comm_abort_text():
                _leave()
            raise


def _frames():
    """The stacks of this process's Python threads, the main thread first, innermost line last."""
    import traceback
    main = _threading.main_thread().ident
    out = []
    for ident, frame in sorted(_sys._current_frames().items(), key=lambda x: x[0] != main):
        if ident == _threading.get_ident():
            continue
        lines = [f"{f.filename}:{f.lineno} in {f.name}" for f in traceback.extract_stack(frame)]
        out.append(("main thread:\n  " if ident == main else "another thread:\n  ") + "\n  ".join(lines[-12:]))
    return "\n".join(out)


def _listen():
    global _listener

    def run():
        while True:
            what = _C._comm_listen()
            if what == 1:
                _C._comm_stack(_frames())
            elif what == 2:
                _sys.stdout.flush()
                print(f"rank {_rank} ends: {_C._comm_abort_text()}", file=_sys.stderr, flush=True)
                _C._comm_acknowledged()
                _os._exit(1)
            else:
                return
    _listener = _threading.Thread(target=run, name="taper-comm", daemon=True)
    _listener.start()
    if not getattr(_sys.excepthook, "_taper_comm", False):
        before = _sys.excepthook

        def hook(cls, value, tb):
            if _group is not None and _os.getpid() == _pid and not issubclass(cls, DistBackendError):
                last = tb
                while last is not None and last.tb_next is not None:
                    last = last.tb_next
                where = f" at {last.tb_frame.f_code.co_filename}:{last.tb_lineno} in {last.tb_frame.f_code.co_name}" if last is not None else ""
                text = f"{cls.__name__}: {str(value)[:400]}{where}"
                _C._comm_note(text)
                _C._comm_abort(f"rank {_rank} ended with {text}\n{_C._comm_status()}")
            before(cls, value, tb)
        hook._taper_comm = True
        _sys.excepthook = hook
    _atexit.unregister(_leave)
    _atexit.register(_leave)


def _leave():
    global _group
    if _group is not None and _os.getpid() == _pid:
        _group = None
        _C._comm_close()


def destroy_process_group(group=None):
    """Leaves the job; with a group that is not the default one, forgets that group."""
    if _group is None:
        raise ValueError("Invalid process group specified or has been destroyed.")
    if group is None or group is _group:
        _leave()
        _by_name.clear()
    else:
        _by_name.pop(group.group_name, None)


def abort_process_group(group=None):
    """Ends the job on every rank."""
    if _group is not None:
        _C._comm_abort(f"rank {_rank} called abort_process_group()\n")


def _check(g=None):
    if _group is None:
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    return _group if g is None else g


def _get_default_group():
    return _check()


def _get_process_group_name(pg):
    return pg.group_name


def _resolve_process_group(name):
    if name not in _by_name:
        raise RuntimeError(f"Could not resolve the process group registered under the name {name}")
    return _by_name[name]


def _find_pg_by_ranks_and_tag(tag, ranks):
    for g in _by_name.values():
        if g._ranks == list(ranks):
            return g
    return None


def _rank_not_in_group(g):
    return g is GroupMember.NON_GROUP_MEMBER or (g is not None and g._rank < 0)


def get_world_size(group=None):
    if _rank_not_in_group(group):
        return -1
    return _check(group).size()


def get_rank(group=None):
    if _rank_not_in_group(group):
        return -1
    return _check(group).rank()


def get_global_rank(group, group_rank):
    g = _check(group)
    if not 0 <= group_rank < g.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {g}")
    return g._ranks[group_rank]


def get_group_rank(group, global_rank):
    g = _check(group)
    if global_rank not in g._ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {g}")
    return g._ranks.index(global_rank)


def get_process_group_ranks(group=None):
    return list(_check(group)._ranks)


def get_backend(group=None):
    return _check(group).name()


def get_backend_config(group=None):
    return f"cpu:{get_backend(group)},cuda:{get_backend(group)}"


def get_node_local_rank(fallback_rank=None):
    if "LOCAL_RANK" in _os.environ:
        return int(_os.environ["LOCAL_RANK"])
    told = _mpi.rank_and_size()
    if told:
        return told[2]
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError("LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, "
                       "assuming you are not running in a multi-device context and want the code to run locally instead.")


def new_group(ranks=None, timeout=None, backend=None, pg_options=None, use_local_synchronization=False, group_desc=None, device_id=None, sort_ranks=True):
    """A group of some ranks. Every rank calls it; those outside get GroupMember.NON_GROUP_MEMBER."""
    _check()
    ranks = list(range(_size)) if ranks is None else (sorted(ranks) if sort_ranks else list(ranks))
    for r in ranks:
        if not 0 <= r < _size:
            raise ValueError(f"Rank {r} is out of range. Valid ranks are 0 to {_size - 1} (world_size={_size})")
    if len(set(ranks)) != len(ranks):
        raise ValueError("a rank is listed twice")
    name, gpus = _backend_name(backend) if backend else (_group.name(), _group._device is not None)
    if _rank not in ranks:
        ProcessGroup._count += 1
        return GroupMember.NON_GROUP_MEMBER
    g = ProcessGroup(ranks, name, _C._comm_group(tuple(ranks)), group_desc)
    return _on_gpus(g, device_id or _group._device) if gpus else g


def new_subgroups(group_size=None, group=None, timeout=None, backend=None, pg_options=None, group_desc=None):
    """(the group of this rank, all groups): ranks in runs of group_size."""
    group_size = group_size or _size
    if _size % group_size:
        raise ValueError(f"The world size ({_size}) must be divisible by the group size ({group_size})")
    return new_subgroups_by_enumeration([list(range(i, i + group_size)) for i in range(0, _size, group_size)], timeout, backend, pg_options, group_desc)


def new_subgroups_by_enumeration(ranks_per_subgroup_list, timeout=None, backend=None, pg_options=None, group_desc=None):
    groups, mine = [], None
    for ranks in ranks_per_subgroup_list:
        g = new_group(ranks, timeout, backend, pg_options, group_desc=group_desc)
        groups.append(g)
        if _rank in ranks:
            mine = g
    return mine, groups


def split_group(parent_pg=None, split_ranks=None, timeout=None, pg_options=None, group_desc=None):
    mine = None
    for ranks in split_ranks or []:
        g = new_group(ranks, timeout, group_desc=group_desc)
        mine = g if _rank in ranks else mine
    return mine


# --- calls
def _one(t, name="tensor"):
    if not isinstance(t, _C.Tensor):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n             but got {type(t)} instead.")
    return t


def _many(ts, name):
    if not isinstance(ts, (list, tuple)) or not all(isinstance(t, _C.Tensor) for t in ts):
        raise TypeError(f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n             but got {type(ts)} instead.")
    if len({t.dtype for t in ts}) > 1:
        raise ValueError("Invalid usage of tensors with different dtypes")
    return ts


def _raw(g, t):
    """Elements in order where the group's back end takes them, on the host or its GPU: t itself where they are that, and whether they are."""
    if not t.is_cuda and not t.is_meta and t.is_contiguous():
        return t, True
    t = t.detach()
    here = t.device.type == "cpu" or (t.device.type == "cuda" and g._device is not None)
    if here and t.is_contiguous():
        return t, True
    return (t if here else t.cpu()).contiguous(), False


def _copy(to, values):
    import taper
    with taper.no_grad():
        to.detach().copy_(values)


# While a program is captured the calls that write into tensors become their functional forms and a copy.
_compiling = None


def _captured():
    global _compiling
    if _compiling is None:
        from ..compiler import is_compiling
        _compiling = is_compiling
    return _compiling()


def _functional():
    from . import _functional_collectives
    return _functional_collectives


_GRAPH_OP = {ReduceOp.SUM: "sum", ReduceOp.AVG: "avg", ReduceOp.PRODUCT: "product", ReduceOp.MIN: "min", ReduceOp.MAX: "max", ReduceOp.BAND: "band",
             ReduceOp.BOR: "bor", ReduceOp.BXOR: "bxor"}


def _call(g, kind, inp, out, op=0, root=0, tag=0, in_counts=None, out_counts=None, async_op=False, after=(), result=None, source=None):
    w = _C._comm_start(g._handle, _KIND[kind], inp, out, op, root, tag, in_counts, out_counts, bool(async_op))
    if async_op:
        return Work([w], after, result, source)
    for f in after:
        f()
    return w


def _in_place(g, kind, tensor, op, root, async_op):
    raw, same = _raw(g, tensor)
    after = [] if same else [lambda: _copy(tensor, raw)]
    w = _call(g, kind, raw, raw, op, root, async_op=async_op, after=after, result=[tensor])
    return w if async_op else None


def _root(g, global_rank, group_rank, what):
    if group_rank is not None:
        if global_rank is not None:
            raise ValueError(f"Can't specify both group_{what} and {what}")
        return group_rank
    if global_rank is None:
        raise ValueError(f"Must specify {what} or group_{what}")
    if global_rank not in g._ranks:
        if g is _group:
            raise RuntimeError(f"invalid root rank: {global_rank}")
        raise ValueError(f"Global rank {global_rank} is not part of group {g}")
    return g._ranks.index(global_rank)


def _outside(g):
    return g is not None and _rank_not_in_group(g)


def barrier(group=None, async_op=False, device_ids=None):
    if _outside(group):
        return None
    w = _call(_check(group), "barrier", None, None, async_op=async_op)
    return w if async_op else None


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """A barrier; the watchdog says which rank did not come."""
    barrier(group)


def all_reduce(tensor, op=ReduceOp.SUM, group=None, async_op=False):
    """Each rank's tensor becomes the sum (or what op says) of all."""
    _one(tensor)
    if _outside(group):
        return None
    red = _reduction(op)
    if red >= _RED["band"] and tensor.dtype.is_floating_point:
        raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
    if not async_op and _captured():
        tensor.copy_(_functional().all_reduce(tensor, _GRAPH_OP[op], _check(group)))
        return None
    return _in_place(_check(group), "all_reduce", tensor, red, 0, async_op)


def all_reduce_coalesced(tensors, op=ReduceOp.SUM, group=None, async_op=False):
    works = [all_reduce(t, op, group, True) for t in tensors]
    w = Work([x for p in works for x in p._works], [f for p in works for f in p._after])
    return w if async_op else (w.wait(), None)[1]


def reduce(tensor, dst=None, op=ReduceOp.SUM, group=None, async_op=False, group_dst=None):
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    root = _root(g, dst if dst is not None or group_dst is not None else 0, group_dst, "dst")
    raw, same = _raw(g, tensor)
    after = [] if same or g.rank() != root else [lambda: _copy(tensor, raw)]
    w = _call(g, "reduce", raw, raw, _reduction(op), root, async_op=async_op, after=after, result=[tensor])
    return w if async_op else None


def broadcast(tensor, src=None, group=None, async_op=False, group_src=None):
    """Every rank's tensor becomes that of rank src."""
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    if not async_op and _captured():
        tensor.copy_(_functional().broadcast(tensor, _root(g, src if src is not None or group_src is not None else 0, group_src, "src"), g))
        return None
    return _in_place(g, "broadcast", tensor, 0, _root(g, src if src is not None or group_src is not None else 0, group_src, "src"), async_op)


def _flat(n, like, count):
    import taper
    return taper.empty((count * n,), dtype=like.dtype, device=like.device)


def _split(flat, outs):
    def f():
        at = 0
        for o in outs:
            _copy(o, flat[at:at + o.numel()].view(o.shape))
            at += o.numel()
    return f


def all_gather(tensor_list, tensor, group=None, async_op=False):
    """tensor_list[r] becomes the tensor of rank r."""
    _many(tensor_list, "tensor_list")
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    if len(tensor_list) != g.size():
        raise RuntimeError(f"ProcessGroupGloo::allgather: invalid output tensor list at index 0 (expected length {g.size()}, got {len(tensor_list)})")
    if not async_op and _captured():
        whole = _functional().all_gather_tensor(tensor.reshape(1, -1), 0, g)
        for i, t in enumerate(tensor_list):
            t.copy_(whole[i].view(t.shape))
        return None
    raw, _ = _raw(g, tensor)
    sizes = [t.numel() for t in tensor_list]
    if any(n != sizes[0] for n in sizes):
        return _all_gather_uneven(g, tensor_list, raw, sizes, async_op)
    if sizes[0] != tensor.numel():
        raise RuntimeError(f"ProcessGroupGloo::allgather: invalid tensor size at index 0 (expected ({', '.join(map(str, tensor.shape))}), "
                           f"got ({', '.join(map(str, tensor_list[0].shape))}))")
    flat = _flat(tensor.numel(), raw, g.size())
    w = _call(g, "all_gather", raw, flat, async_op=async_op, after=[_split(flat, tensor_list)], result=[list(tensor_list)])
    return w if async_op else None


def _all_gather_uneven(g, outs, raw, sizes, async_op):
    import taper
    flat = taper.empty((sum(sizes),), dtype=raw.dtype, device=raw.device)
    n = raw.numel()
    inp = raw.reshape(-1).repeat(g.size())
    w = _call(g, "all_to_all", inp, flat, in_counts=(n,) * g.size(), out_counts=tuple(sizes), async_op=async_op, after=[_split(flat, outs)], result=[list(outs)])
    return w if async_op else None


def all_gather_coalesced(output_tensor_lists, input_tensor_list, group=None, async_op=False):
    outs = list(zip(*output_tensor_lists)) if output_tensor_lists else []
    for o, i in zip(outs, input_tensor_list):
        all_gather(list(o), i, group)
    return Work() if async_op else None


def all_gather_into_tensor(output_tensor, input_tensor, group=None, async_op=False):
    """The tensors of all ranks, one after the other along the first dimension (or stacked)."""
    _one(output_tensor, "output_tensor")
    _one(input_tensor, "input_tensor")
    if _outside(group):
        return None
    g = _check(group)
    if output_tensor.dtype != input_tensor.dtype:
        raise RuntimeError("output tensor must have the same type as input tensor")
    if output_tensor.numel() != input_tensor.numel() * g.size():
        raise RuntimeError(f"output tensor size must be equal to world_size times input tensor size ({g.size()} x {input_tensor.numel()}, got {output_tensor.numel()})")
    if not async_op and _captured():
        whole = _functional().all_gather_tensor(input_tensor if input_tensor.ndim else input_tensor.view(1), 0, g)
        output_tensor.copy_(whole.view(output_tensor.shape))
        return None
    raw, _ = _raw(g, input_tensor)
    out, same = _raw(g, output_tensor)
    w = _call(g, "all_gather", raw, out, async_op=async_op, after=[] if same else [lambda: _copy(output_tensor, out)], result=[output_tensor])
    return w if async_op else None


_all_gather_base = all_gather_into_tensor


def gather(tensor, gather_list=None, dst=None, group=None, async_op=False, group_dst=None):
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    root = _root(g, dst if dst is not None or group_dst is not None else 0, group_dst, "dst")
    raw, _ = _raw(g, tensor)
    if g.rank() == root:
        if not gather_list:
            raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
        _many(gather_list, "gather_list")
        flat = _flat(tensor.numel(), raw, g.size())
        w = _call(g, "gather", raw, flat, root=root, async_op=async_op, after=[_split(flat, gather_list)], result=[list(gather_list)])
    else:
        if gather_list:
            raise ValueError("Argument ``gather_list`` must NOT be specified on non-destination ranks.")
        w = _call(g, "gather", raw, None, root=root, async_op=async_op, result=[])
    return w if async_op else None


def _joined(g, tensors):
    import taper
    with taper.no_grad():
        return taper.cat([_raw(g, t)[0].reshape(-1) for t in tensors])


def scatter(tensor, scatter_list=None, src=None, group=None, async_op=False, group_src=None):
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    root = _root(g, src if src is not None or group_src is not None else 0, group_src, "src")
    out, same = _raw(g, tensor)
    after = [] if same else [lambda: _copy(tensor, out)]
    inp = None
    if g.rank() == root:
        if not scatter_list:
            raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
        inp = _joined(g, _many(scatter_list, "scatter_list"))
    elif scatter_list:
        raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    w = _call(g, "scatter", inp, out, root=root, async_op=async_op, after=after, result=[tensor])
    return w if async_op else None


def reduce_scatter_tensor(output, input, op=ReduceOp.SUM, group=None, async_op=False):
    """This rank's part of the sum of all inputs."""
    _one(output, "output")
    _one(input, "input")
    if _outside(group):
        return None
    g = _check(group)
    if input.numel() != output.numel() * g.size():
        raise RuntimeError(f"input tensor must be the same size as output size times world size ({g.size()} x {output.numel()}, got {input.numel()})")
    if not async_op and _captured():
        part = _functional().reduce_scatter_tensor(input.reshape(g.size(), -1), _GRAPH_OP[op], 0, g)
        output.copy_(part.view(output.shape))
        return None
    raw, _ = _raw(g, input)
    out, same = _raw(g, output)
    w = _call(g, "reduce_scatter", raw, out, _reduction(op), async_op=async_op, after=[] if same else [lambda: _copy(output, out)], result=[output])
    return w if async_op else None


_reduce_scatter_base = reduce_scatter_tensor


def reduce_scatter(output, input_list, op=ReduceOp.SUM, group=None, async_op=False):
    _one(output, "output")
    _many(input_list, "input_list")
    if _outside(group):
        return None
    return reduce_scatter_tensor(output, _joined(_check(group), input_list), op, group, async_op)


def all_to_all_single(output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False):
    """Part r of the input goes to rank r; parts come back in the order of ranks."""
    _one(output, "output")
    _one(input, "input")
    if _outside(group):
        return None
    g = _check(group)
    raw, _ = _raw(g, input)
    out, same = _raw(g, output)
    counts = None, None
    if output_split_sizes or input_split_sizes:
        counts = []
        for t, sizes in ((input, input_split_sizes), (output, output_split_sizes)):
            row = t[0].numel() if t.ndim > 1 and t.shape[0] else 1
            if not sizes:
                if t.shape[0] % g.size():
                    raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
                sizes = [t.shape[0] // g.size()] * g.size()
            if len(sizes) != g.size():
                raise RuntimeError("Number of tensor splits not equal to group size")
            if sum(sizes) != t.shape[0]:
                raise RuntimeError("Split sizes doesn't match total dim 0 size")
            counts.append(tuple(int(n) * row for n in sizes))
    elif input.shape[0] % g.size():
        raise RuntimeError("Tensor's dim 0 does not divide equally across group size")
    w = _call(g, "all_to_all", raw, out, in_counts=counts[0], out_counts=counts[1], async_op=async_op, after=[] if same else [lambda: _copy(output, out)], result=[output])
    return w if async_op else None


def all_to_all(output_tensor_list, input_tensor_list, group=None, async_op=False):
    _many(output_tensor_list, "output_tensor_list")
    _many(input_tensor_list, "input_tensor_list")
    if _outside(group):
        return None
    import taper
    g = _check(group)
    inp = _joined(g, input_tensor_list)
    flat = taper.empty((sum(t.numel() for t in output_tensor_list),), dtype=inp.dtype, device=inp.device)
    w = _call(g, "all_to_all", inp, flat, in_counts=tuple(t.numel() for t in input_tensor_list),
              out_counts=tuple(t.numel() for t in output_tensor_list), async_op=async_op, after=[_split(flat, output_tensor_list)], result=[list(output_tensor_list)])
    return w if async_op else None


# --- two ranks
def isend(tensor, dst=None, group=None, tag=0, group_dst=None):
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    to = _root(g, dst, group_dst, "dst")
    if to == g.rank():
        raise ValueError("Invalid destination rank: destination rank should not be the same as the rank of the current process.")
    return _call(g, "send", _raw(g, tensor)[0], None, root=to, tag=tag, async_op=True, result=[tensor])


def irecv(tensor, src=None, group=None, tag=0, group_src=None):
    _one(tensor)
    if _outside(group):
        return None
    g = _check(group)
    at = -1 if src is None and group_src is None else _root(g, src, group_src, "src")
    if at == g.rank():
        raise ValueError("Invalid source rank: source rank should not be the same as the rank of the current process.")
    out, same = _raw(g, tensor)
    return _call(g, "recv", None, out, root=at, tag=tag, async_op=True, after=[] if same else [lambda: _copy(tensor, out)], result=[tensor],
                 source=lambda r: g._ranks[r] if at < 0 else g._ranks[at])


def send(tensor, dst=None, group=None, tag=0, group_dst=None):
    w = isend(tensor, dst, group, tag, group_dst)
    if w is not None:
        w.wait()


def recv(tensor, src=None, group=None, tag=0, group_src=None):
    """Returns the rank that sent."""
    w = irecv(tensor, src, group, tag, group_src)
    if w is None:
        return -1
    w.wait()
    return w.source_rank()


class P2POp:
    """One send or receive of batch_isend_irecv."""

    def __init__(self, op, tensor, peer=None, group=None, tag=0, group_peer=None):
        if op not in (isend, irecv):
            raise ValueError("Invalid ``op``. Expected ``op`` to be of type ``torch.distributed.isend`` or ``torch.distributed.irecv``.")
        self.op, self.tensor, self.peer, self.group, self.tag, self.group_peer = op, tensor, peer, group, tag, group_peer


def batch_isend_irecv(p2p_op_list):
    if not p2p_op_list or not all(isinstance(p, P2POp) for p in p2p_op_list):
        raise ValueError("Invalid ``p2p_op_list``. Each op is expected to to be of type ``torch.distributed.P2POp``.")
    _C._comm_hold(True)  # on GPUs they start together
    try:
        return [p.op(p.tensor, p.peer, p.group, p.tag, p.group_peer) for p in p2p_op_list]
    finally:
        _C._comm_hold(False)


# --- objects
def _bytes_tensor(data):
    import taper
    return taper.frombuffer(bytearray(data), dtype=taper.uint8) if data else taper.empty((0,), dtype=taper.uint8)


def _tensor_bytes(t):
    return memoryview(t.contiguous()).tobytes()


def all_gather_object(object_list, obj, group=None):
    """object_list[r] becomes the object of rank r. Numbers, text, containers and tensors; see _objects.py."""
    import taper
    if _outside(group):
        return
    g = _check(group)
    data = _bytes_tensor(_objects.encode(obj))
    sizes = taper.empty((g.size(),), dtype=taper.int64)
    all_gather_into_tensor(sizes, taper.tensor([data.numel()]), g)
    sizes = sizes.tolist()
    flat = taper.empty((sum(sizes),), dtype=taper.uint8)
    all_to_all_single(flat, data.repeat(g.size()), sizes, [data.numel()] * g.size(), g)
    at = 0
    for r, n in enumerate(sizes):
        object_list[r] = _objects.decode(_tensor_bytes(flat[at:at + n]))
        at += n


def gather_object(obj, object_gather_list=None, dst=None, group=None, group_dst=None):
    if _outside(group):
        return
    g = _check(group)
    root = _root(g, dst if dst is not None or group_dst is not None else 0, group_dst, "dst")
    if g.rank() == root and object_gather_list is None:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")
    everything = [None] * g.size()
    all_gather_object(everything, obj, g)
    if g.rank() == root:
        object_gather_list[:] = everything


def broadcast_object_list(object_list, src=None, group=None, device=None, group_src=None):
    import taper
    if _outside(group):
        return
    g = _check(group)
    root = _root(g, src if src is not None or group_src is not None else 0, group_src, "src")
    data = _bytes_tensor(_objects.encode(list(object_list))) if g.rank() == root else None
    size = taper.tensor([data.numel() if data is not None else 0])
    broadcast(size, group=g, group_src=root)
    if data is None:
        data = taper.empty((int(size),), dtype=taper.uint8)
    broadcast(data, group=g, group_src=root)
    if g.rank() != root:
        got = _objects.decode(_tensor_bytes(data))
        if len(got) != len(object_list):
            raise RuntimeError(f"rank {root} sends {len(got)} objects, and {len(object_list)} are expected here")
        object_list[:] = got


def scatter_object_list(scatter_object_output_list, scatter_object_input_list=None, src=None, group=None, group_src=None):
    if _outside(group):
        return
    g = _check(group)
    if not isinstance(scatter_object_output_list, list) or len(scatter_object_output_list) < 1:
        raise ValueError("Expected argument scatter_object_output_list to be a list of size at least 1.")
    root = _root(g, src if src is not None or group_src is not None else 0, group_src, "src")
    box = [list(scatter_object_input_list) if g.rank() == root else None]
    broadcast_object_list(box, group=g, group_src=root)
    scatter_object_output_list[0] = box[0][g.rank()]


def send_object_list(object_list, dst=None, group=None, device=None, group_dst=None, use_batch=False):
    import taper
    data = _bytes_tensor(_objects.encode(list(object_list)))
    send(taper.tensor([data.numel()]), dst, group, 0, group_dst)
    send(data, dst, group, 0, group_dst)


def recv_object_list(object_list, src=None, group=None, device=None, group_src=None, use_batch=False):
    import taper
    size = taper.empty((1,), dtype=taper.int64)
    at = recv(size, src, group, 0, group_src)
    data = taper.empty((int(size),), dtype=taper.uint8)
    recv(data, at, group)
    object_list[:] = _objects.decode(_tensor_bytes(data))
    return at


class DebugLevel(_enum.Enum):
    OFF, INFO, DETAIL = range(3)


_debug = DebugLevel[_os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()] if _os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper() in DebugLevel.__members__ else DebugLevel.OFF


def set_debug_level(level):
    """Kept for programs that ask; the watchdog is always on."""
    global _debug
    _debug = DebugLevel(level)


def get_debug_level():
    return _debug


def set_debug_level_from_env():
    text = _os.environ.get("TORCH_DISTRIBUTED_DEBUG", "OFF").upper()
    if text not in DebugLevel.__members__:
        raise ValueError(f"The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL, not {text}")
    set_debug_level(DebugLevel[text])


def get_pg_count():
    """How many groups this process has made."""
    return ProcessGroup._count


def get_default_backend_for_device(device):
    import taper
    kind = device.type if isinstance(device, taper.device) else str(device).split(":")[0]
    if kind not in Backend.default_device_backend_map:
        raise ValueError(f"Default backend not registered for device : {device}")
    return Backend.default_device_backend_map[kind]


def supports_complex(reduceOp):
    return reduceOp in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)


def breakpoint(rank=0, skip=0):
    """pdb on one rank; the others wait for it."""
    if get_rank() == rank:
        import pdb
        pdb.set_trace()
    barrier()


def __getattr__(name):
    if name in ("GradBucket", "Reducer"):
        from ..nn.parallel import distributed
        return getattr(distributed, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
