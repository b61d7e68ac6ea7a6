"""What signal handlers raise reaches the program, also when they run in Python code that the compiler calls for itself."""
import collections
import signal

import taper
from taper._dynamo.utils import counters


class Late(Exception):
    pass


def interrupted(handler, f, *args):
    """Call f while the first counter that the compiler makes raises a signal. What came out, and how often the handler ran."""
    ran = []

    def handle(number, frame):
        ran.append(number)
        handler()
    made = []

    def counter():
        if not made:
            made.append(1)
            signal.raise_signal(signal.SIGUSR1)
            [None for _ in range(3)]  # Python code goes on: handlers run
        return collections.Counter()
    was, factory = signal.signal(signal.SIGUSR1, handle), counters.default_factory
    counters.clear()
    counters.default_factory = counter
    try:
        return type(f(*args)).__name__, len(ran)
    except BaseException as e:
        return type(e).__name__, len(ran)
    finally:
        signal.signal(signal.SIGUSR1, was)
        counters.default_factory = factory


def fail(kind):
    raise kind("late")


def test_exceptions_of_handlers_are_raised_once():
    for backend in ("eager", "aot_eager", "inductor"):
        for kind in (Late, SystemExit, KeyboardInterrupt, TimeoutError):
            taper._dynamo.reset()
            f = taper.compile(lambda x: x.sin() + 1, backend=backend)
            assert interrupted(lambda: fail(kind), f, taper.ones(2)) == (kind.__name__, 1), (backend, kind)
            assert f(taper.zeros(2)).tolist() == [1, 1]


def test_the_program_may_catch_it():
    def f(x):
        try:
            for _ in range(3):
                x = x + 1
            return x
        except Late:
            return None
    taper._dynamo.reset()
    assert interrupted(lambda: fail(Late), taper.compile(f), taper.ones(2))[0] in ("NoneType", "Late")


def test_handlers_that_return_change_nothing():
    taper._dynamo.reset()
    assert interrupted(lambda: None, taper.compile(lambda x: x + 1), taper.ones(2)) == ("Tensor", 1)
