"""Values by name that processes share: over TCP (rank 0 serves), in a file, or in one process."""
import datetime as _datetime
import fcntl as _fcntl
import os as _os
import socket as _socket
import struct as _struct
import threading as _threading
import time as _time

default_timeout = _datetime.timedelta(minutes=30)
_MOST = 1 << 31


def _bytes(value):
    return bytes(value) if isinstance(value, (bytes, bytearray, memoryview)) else str(value).encode()


class Store:
    """Values by name. get() waits until somebody has set the key."""

    def __init__(self, timeout=default_timeout):
        self._timeout = timeout

    # _ask(operation, fields..., until) is all that a kind of store has of its own
    def _ask(self, what, *fields, until=None):
        raise NotImplementedError(f"{type(self).__name__} keeps no values")

    def _until(self, timeout=None):
        return _time.monotonic() + (timeout or self._timeout).total_seconds()

    def _late(self, keys, timeout):
        from .distributed_c10d import DistStoreError
        seconds = (timeout or self._timeout).total_seconds()
        return DistStoreError(f"wait timeout after {seconds:g} s, keys: {', '.join(keys)}: no process has set them")

    def set(self, key, value):
        self._ask("set", key, value)

    def get(self, key):
        return self._got([key])[0]

    def multi_get(self, keys):
        return self._got(list(keys))

    def _got(self, keys):
        got = self._ask("get", *keys, until=self._until())
        if got is None:
            raise self._late(keys, None)
        return got

    def multi_set(self, keys, values):
        for k, v in zip(keys, values):
            self.set(k, v)

    def add(self, key, amount):
        """Adds to a number (0 where there is none) and returns it."""
        return int(self._ask("add", key, amount)[0])

    def append(self, key, value):
        self._ask("append", key, value)

    def compare_set(self, key, expected_value, desired_value):
        """The value afterwards: the desired one where the expected one was there, or nothing and nothing was expected."""
        return self._ask("compare_set", key, expected_value, desired_value)[0]

    def check(self, keys):
        return self._ask("check", *keys)[0] == b"1"

    def wait(self, keys, timeout=None):
        keys = list(keys)
        if self._ask("wait", *keys, until=self._until(timeout)) is None:
            raise self._late(keys, timeout)

    def delete_key(self, key):
        return self._ask("delete", key)[0] == b"1"

    def num_keys(self):
        return int(self._ask("count")[0])

    def set_timeout(self, timeout):
        self._timeout = timeout

    @property
    def timeout(self):
        return self._timeout

    def has_extended_api(self):
        return True


class _Values:
    """A table; answers are lists of bytes, None: what is waited for is not there yet."""

    def __init__(self):
        self.at = {}

    def do(self, what, key=b"", *rest):
        at = self.at
        if what == "set":
            at[key] = rest[0]
        elif what == "add":
            at[key] = b"%d" % (int(at.get(key, b"0")) + int(rest[0]))
            return [at[key]]
        elif what == "append":
            at[key] = at.get(key, b"") + rest[0]
        elif what == "compare_set":
            if at.get(key, b"") == rest[0]:
                at[key] = rest[1]
            return [at.get(key, rest[0])]
        elif what in ("check", "wait", "get"):
            there = all(k in at for k in (key, *rest))
            return [b"1" if there else b"0"] if what == "check" else None if not there else [at[k] for k in (key, *rest)] if what == "get" else []
        elif what == "delete":
            return [b"0" if at.pop(key, None) is None else b"1"]
        elif what == "count":
            return [b"%d" % len(at)]
        return []


class HashStore(Store):
    """Values of one process, for its threads."""

    def __init__(self):
        super().__init__()
        self._values, self._changed = _Values(), _threading.Condition()

    def _ask(self, what, *fields, until=None):
        fields = [_bytes(f) for f in fields]
        with self._changed:
            while True:
                answer = self._values.do(what, *fields)
                left = None if until is None else until - _time.monotonic()
                if answer is not None or left <= 0:
                    self._changed.notify_all()
                    return answer
                self._changed.wait(left)


class FileStore(Store):
    """Values in a file of a file system that all processes see; it must not exist, or be left by nobody else."""

    def __init__(self, file_name, world_size=-1):
        super().__init__()
        self.path, self._read, self._values = _os.path.abspath(file_name), 0, _Values()

    def _ask(self, what, *fields, until=None):
        fields = [_bytes(f) for f in fields]
        while True:
            with open(self.path, "a+b") as f:
                _fcntl.flock(f, _fcntl.LOCK_EX)
                f.seek(self._read)
                for old in _messages(f.read()):
                    self._values.do(old[0].decode(), *old[1:])
                if what not in ("get", "wait", "check", "count"):
                    f.seek(0, _os.SEEK_END)
                    f.write(_message(what.encode(), *fields))
                self._read = f.seek(0, _os.SEEK_END)
                answer = self._values.do(what, *fields)
            if answer is not None or _time.monotonic() > until:
                return answer
            _time.sleep(0.01)


def _message(*fields):
    body = b"".join(_struct.pack("<I", len(f)) + f for f in fields)
    return _struct.pack("<II", len(fields), len(body)) + body


def _fields(count, body):
    out, at = [], 0
    for _ in range(count):
        n, = _struct.unpack_from("<I", body, at)
        if at + 4 + n > len(body):
            raise ValueError("a damaged message")
        out.append(body[at + 4:at + 4 + n])
        at += 4 + n
    return out


def _messages(data):
    at = 0
    while at + 8 <= len(data):
        count, n = _struct.unpack_from("<II", data, at)
        yield _fields(count, data[at + 8:at + 8 + n])
        at += 8 + n


def _exactly(s, n):
    parts, left = [], n
    while left:
        got = s.recv(min(left, 1 << 20))
        if not got:
            raise ConnectionError("the other end has closed the connection")
        parts.append(got)
        left -= len(got)
    return b"".join(parts)


def _receive(s):
    count, n = _struct.unpack("<II", _exactly(s, 8))
    if n > _MOST or count * 4 > n:
        raise ConnectionError("what comes in is no message of a store")
    return _fields(count, _exactly(s, n))


class _Server:
    """Serves a table; a thread a connection."""

    def __init__(self, host, port):
        self.values = HashStore()
        family = _socket.getaddrinfo(host, port, type=_socket.SOCK_STREAM)[0][0]
        self.socket = _socket.socket(family, _socket.SOCK_STREAM)
        self.socket.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((host, port))
        except OSError as e:
            from .distributed_c10d import DistNetworkError
            raise DistNetworkError(f"The server socket has failed to listen on {host}:{port}: {e.strerror}. Is another program there?") from None
        self.socket.listen(1024)
        self.port = self.socket.getsockname()[1]
        _threading.Thread(target=self.accept, name="taper-store", daemon=True).start()

    def accept(self):
        while True:
            try:
                s, _ = self.socket.accept()
            except OSError:
                return
            _threading.Thread(target=self.serve, args=(s,), name="taper-store", daemon=True).start()

    def serve(self, s):
        s.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)
        try:
            with s:
                while True:
                    what, seconds, *fields = _receive(s)
                    until = _time.monotonic() + float(seconds)
                    answer = self.values._ask(what.decode(), *fields, until=until)
                    s.sendall(_message(*([b"late"] if answer is None else [b"done", *answer])))
        except (OSError, ValueError, _struct.error):
            return

    def close(self):
        self.socket.close()


class TCPStore(Store):
    """Values that one process (is_master) serves to the others. port=0: the system chooses one, read it from .port."""

    def __init__(self, host_name, port=0, world_size=None, is_master=False, timeout=_datetime.timedelta(seconds=300), wait_for_workers=True,
                 multi_tenant=False, master_listen_fd=None, use_libuv=True):
        super().__init__(timeout)
        self._server = _Server(host_name, port) if is_master else None
        self.host, self.port = host_name, self._server.port if is_master else port
        self._lock, self._socket = _threading.Lock(), None
        self._connect()
        if wait_for_workers and world_size and world_size > 0:
            self.add("taper/workers", 1)
            until = self._until()
            while self.add("taper/workers", 0) < world_size and is_master:
                if _time.monotonic() > until:
                    from .distributed_c10d import DistStoreError
                    raise DistStoreError(f"Timed out after {timeout.total_seconds():g} seconds waiting for clients. {self.add('taper/workers', 0)}/{world_size} clients joined.")
                _time.sleep(0.01)

    def _connect(self):
        until = self._until()
        while True:
            try:
                self._socket = _socket.create_connection((self.host, self.port), timeout=max(0.1, until - _time.monotonic()))
                break
            except OSError as e:
                if _time.monotonic() > until:
                    from .distributed_c10d import DistNetworkError
                    raise DistNetworkError(f"The client socket has timed out after {self._timeout.total_seconds():g} s while trying to connect to "
                                           f"({self.host}, {self.port}): {e}. Does the rank with is_master=True run?") from None
                _time.sleep(0.05)
        self._socket.settimeout(None)
        self._socket.setsockopt(_socket.IPPROTO_TCP, _socket.TCP_NODELAY, 1)

    def _ask(self, what, *fields, until=None):
        seconds = 0 if until is None else max(0.0, until - _time.monotonic())
        try:
            with self._lock:
                self._socket.sendall(_message(what.encode(), b"%.3f" % seconds, *map(_bytes, fields)))
                state, *answer = _receive(self._socket)
        except OSError as e:
            from .distributed_c10d import DistNetworkError
            raise DistNetworkError(f"the store at {self.host}:{self.port} does not answer ({e}): has the rank that serves it ended?") from None
        return None if state == b"late" else answer

    def num_keys(self):
        return super().num_keys() - self.check(["taper/workers"])


class PrefixStore(Store):
    """Keys of another store behind a prefix."""

    def __init__(self, prefix, store):
        super().__init__(store.timeout)
        self.prefix, self.underlying_store = prefix, store

    def _ask(self, what, *fields, until=None):
        n = {"get": len(fields), "wait": len(fields), "check": len(fields), "count": 0}.get(what, 1)
        return self.underlying_store._ask(what, *[f"{self.prefix}/{f}" for f in fields[:n]], *fields[n:], until=until)
