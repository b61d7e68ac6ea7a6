"""Pickles that nobody trusts: a machine for the opcodes that checkpoints use.

A pickle is a program. This machine runs it without running anything of its choosing: it makes plain values, and calls only the functions that the
caller's `find` hands it, each of which checks its arguments. Work and memory stay in proportion to the size of the pickle: lengths are compared with
the bytes that are left, whole numbers have a limit, and dictionary keys are small (a nested tuple of shared parts takes exponential time to hash)."""
import struct
from collections import Counter, OrderedDict
from pickle import UnpicklingError

_INT_BYTES, _KEY_PARTS, _NAME = 1024, 1000, 500
_MARK = object()


def check_key(key):
    """Refuses keys that are expensive to hash."""
    todo, left = [key], _KEY_PARTS
    while todo:
        k = todo.pop()
        left -= 1
        if left < 0:
            raise UnpicklingError(f"a dictionary key has more than {_KEY_PARTS} parts")
        if isinstance(k, (tuple, frozenset)):
            todo.extend(k)
        elif isinstance(k, (list, dict, set, bytearray)):
            raise UnpicklingError(f"a {type(k).__name__} is used as a dictionary key")
    return key


class Machine:
    """Machine(data, find, persistent).run(at) -> (value, where the pickle ends). find(module, name) -> (value, call): call(args, new) makes what
    REDUCE (or, with new, NEWOBJ) asks for; it is None where the value cannot be called. build(value, state) -> bool takes the state of other objects."""

    def __init__(self, data, find, persistent=None, build=None):
        self.data, self.find, self.persistent, self.build_other = data, find, persistent, build
        self.stack, self.memo, self.calls, self.at = [], {}, {}, 0

    def run(self, at=0):
        self.stack, self.memo, self.at = [], {}, at
        try:
            while True:
                op = self.take(1)[0]
                if op == 0x2e:  # STOP
                    value = self.pop()
                    if self.stack or value is _MARK:
                        raise UnpicklingError("values are left over at the end of the pickle")
                    return value, self.at
                act = _OPS.get(op)
                if act is None:
                    raise UnpicklingError(f"opcode {bytes([op])!r} at byte {self.at - 1} is not one that checkpoints use")
                act(self)
        except UnpicklingError:
            raise
        except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError, struct.error, UnicodeError) as e:
            raise UnpicklingError(f"{e} (at byte {self.at} of the pickle)") from None

    # --- the bytes ---
    def take(self, n):
        end = self.at + n
        if end > len(self.data):
            raise UnpicklingError(f"the pickle ends at byte {len(self.data)}, in the middle of a value")
        part = self.data[self.at:end]
        self.at = end
        return part

    def number(self, form, n):
        return struct.unpack(form, self.take(n))[0]

    def line(self):
        part = bytes(self.data[self.at:self.at + _NAME])
        n = part.find(b"\n")
        if n < 0:
            raise UnpicklingError(f"a name at byte {self.at} has no end")
        self.at += n + 1
        return part[:n].decode()

    # --- the stack ---
    def push(self, value):
        self.stack.append(value)

    def pop(self):
        if not self.stack:
            raise UnpicklingError(f"the stack is empty at byte {self.at}")
        return self.stack.pop()

    def value(self):
        v = self.pop()
        if v is _MARK:
            raise UnpicklingError(f"a mark stands where a value is expected, at byte {self.at}")
        return v

    def marked(self):
        """The values above the last mark."""
        s, i = self.stack, len(self.stack) - 1
        while i >= 0 and s[i] is not _MARK:
            i -= 1
        if i < 0:
            raise UnpicklingError(f"there is no mark at byte {self.at}")
        part = s[i + 1:]
        del s[i:]
        return part

    def top(self, *kinds):
        v = self.stack[-1] if self.stack else None
        if type(v) not in kinds:
            raise UnpicklingError(f"a {kinds[0].__name__} is expected at byte {self.at}, not a {type(v).__name__}")
        return v

    # --- the opcodes ---
    def proto(self):
        v = self.take(1)[0]
        if not 2 <= v <= 5:
            raise UnpicklingError(f"the pickle has protocol {v}; 2 to 5 are read")

    def frame(self):
        if self.number("<Q", 8) > len(self.data) - self.at:
            raise UnpicklingError("a frame is longer than the pickle")

    def popped(self):
        self.pop()

    def dup(self):
        v = self.value()
        self.stack += [v, v]

    def long(self, n):
        if n < 0 or n > _INT_BYTES:
            raise UnpicklingError(f"a whole number has {n} bytes; {_INT_BYTES} is the limit")
        self.push(int.from_bytes(self.take(n), "little", signed=True))

    def text(self, n):
        self.push(str(self.take(n), "utf-8", "surrogatepass"))

    def items(self, pairs):
        d = self.top(dict, OrderedDict, Counter)
        if len(pairs) % 2:
            raise UnpicklingError("a key has no value")
        for k, v in zip(pairs[::2], pairs[1::2]):
            d[check_key(k)] = v

    def setitem(self):
        v, k = self.value(), self.value()
        self.items([k, v])

    def append(self):
        v = self.value()
        self.top(list).append(v)

    def appends(self):
        part = self.marked()
        self.top(list).extend(part)

    def additems(self):
        part = self.marked()
        self.top(set).update(map(check_key, part))

    def dict(self):
        part = self.marked()
        self.push({})
        self.items(part)

    def tuples(self, n):
        part = [self.value() for _ in range(n)]
        self.push(tuple(part[::-1]))

    def put(self, i):
        if not self.stack or self.stack[-1] is _MARK:
            raise UnpicklingError("there is nothing to remember")
        self.memo[i] = self.stack[-1]

    def get(self, i):
        if i not in self.memo:
            raise UnpicklingError(f"value {i} is used before it is made")
        self.push(self.memo[i])

    def named(self, module, name):
        if type(module) is not str or type(name) is not str or len(module) + len(name) > 2 * _NAME:
            raise UnpicklingError(f"a name is expected at byte {self.at}")
        value, call = self.find(module, name)
        if call is not None:
            self.calls[id(value)] = call, value
        self.push(value)

    def glob(self):
        module = self.line()
        self.named(module, self.line())

    def stack_global(self):
        name, module = self.value(), self.value()
        self.named(module, name)

    def reduce(self, new=False):
        args, f = self.value(), self.value()
        call = self.calls.get(id(f))
        if call is None:
            raise UnpicklingError(f"a {type(f).__name__} is called at byte {self.at}")
        if type(args) is not tuple:
            raise UnpicklingError(f"arguments are a {type(args).__name__}")
        self.push(call[0](args, new))

    def build(self):
        state, v = self.value(), self.stack[-1] if self.stack else None
        if type(v) is OrderedDict and type(state) is dict and all(type(k) is str for k in state):
            v.__dict__.update(state)  # the _metadata of a state dict
        elif not (self.build_other and self.build_other(v, state)):
            raise UnpicklingError(f"state is set on a {type(v).__name__}")

    def persid(self):
        pid = self.value()
        if self.persistent is None:
            raise UnpicklingError("a storage is named where there are none")
        self.push(self.persistent(pid))


def _op(code, f):
    return (code if isinstance(code, int) else ord(code)), f


_M = Machine
_OPS = dict([
    _op(0x80, _M.proto), _op(0x95, _M.frame), _op("(", lambda m: m.push(_MARK)), _op("0", _M.popped), _op("1", lambda m: m.marked() and None),
    _op("2", _M.dup), _op("N", lambda m: m.push(None)), _op(0x88, lambda m: m.push(True)), _op(0x89, lambda m: m.push(False)),
    _op("J", lambda m: m.push(m.number("<i", 4))), _op("K", lambda m: m.push(m.take(1)[0])), _op("M", lambda m: m.push(m.number("<H", 2))),
    _op(0x8a, lambda m: m.long(m.take(1)[0])), _op(0x8b, lambda m: m.long(m.number("<i", 4))), _op("G", lambda m: m.push(m.number(">d", 8))),
    _op("X", lambda m: m.text(m.number("<I", 4))), _op(0x8c, lambda m: m.text(m.take(1)[0])), _op(0x8d, lambda m: m.text(m.number("<Q", 8))),
    _op("U", lambda m: m.text(m.take(1)[0])), _op("T", lambda m: m.text(m.number("<I", 4))),  # strings of Python 2
    _op("C", lambda m: m.push(bytes(m.take(m.take(1)[0])))), _op("B", lambda m: m.push(bytes(m.take(m.number("<I", 4))))),
    _op(0x8e, lambda m: m.push(bytes(m.take(m.number("<Q", 8))))), _op(0x96, lambda m: m.push(bytearray(m.take(m.number("<Q", 8))))),
    _op("]", lambda m: m.push([])), _op("}", lambda m: m.push({})), _op(")", lambda m: m.push(())), _op(0x8f, lambda m: m.push(set())),
    _op("a", _M.append), _op("e", _M.appends), _op("s", _M.setitem), _op("u", lambda m: m.items(m.marked())), _op("d", _M.dict),
    _op("l", lambda m: m.push(m.marked())), _op("t", lambda m: m.push(tuple(m.marked()))), _op(0x85, lambda m: m.tuples(1)),
    _op(0x86, lambda m: m.tuples(2)), _op(0x87, lambda m: m.tuples(3)), _op(0x90, _M.additems),
    _op(0x91, lambda m: m.push(frozenset(map(check_key, m.marked())))), _op("q", lambda m: m.put(m.take(1)[0])),
    _op("r", lambda m: m.put(m.number("<I", 4))), _op(0x94, lambda m: m.put(len(m.memo))), _op("h", lambda m: m.get(m.take(1)[0])),
    _op("j", lambda m: m.get(m.number("<I", 4))), _op("c", _M.glob), _op(0x93, _M.stack_global), _op("R", _M.reduce), _op(0x81, lambda m: m.reduce(True)),
    _op("b", _M.build), _op("Q", _M.persid)])
