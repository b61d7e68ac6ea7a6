"""Types that a kernel refuses are refused while capturing, so that the statement raises where it does without the compiler."""
import taper

SEEN = []
CALLS = {"and": lambda a, b: a & b, "shift": lambda a, b: a << 1, "invert": lambda a, b: ~a, "gcd": lambda a, b: taper.gcd(a, b), "sub": lambda a, b: a - b,
         "lerp": lambda a, b: taper.lerp(a, b, 0.5), "xor": lambda a, b: a.bitwise_xor(b), "iand": lambda a, b: a.__iand__(b), "nextafter": lambda a, b: taper.nextafter(a, b),
         "sin": lambda a, b: a.sin(), "mod": lambda a, b: a % b, "neg": lambda a, b: -a}


def test_effects_of_the_lines_before():
    for (name, call), dt in ((c, d) for c in CALLS.items() for d in (taper.float16, taper.float32, taper.int8, taper.int64, taper.bool)):
        def f(a, b):
            SEEN.append(1)
            call(a, b)
            SEEN.append(2)
            return a

        def outcome(g):
            SEEN.clear()
            a, b = taper.ones(3).to(dt), taper.ones(3).to(dt)
            try:
                g(a, b)
            except Exception as e:
                return type(e).__name__, str(e).split("\n")[0], list(SEEN)
            return list(SEEN), a.tolist()
        want = outcome(f)
        for backend in ("eager", "inductor"):
            taper._dynamo.reset()
            assert outcome(taper.compile(f, backend=backend)) == want, (name, dt, backend)


def test_the_line_of_a_failing_del():
    def f(a, o):
        del o.n
        return a + 1
    for g in (f, taper.compile(f, backend="eager")):
        try:
            g(taper.ones(1), taper.ones(1))
        except AttributeError as e:
            tb = e.__traceback__
            while tb.tb_next:
                tb = tb.tb_next
            assert tb.tb_lineno == f.__code__.co_firstlineno + 1, tb.tb_lineno
        else:
            raise AssertionError("no error")


def test_repeats_that_are_a_number():
    for f in (lambda x: x.repeat_interleave(2, dim=0), lambda x: taper.repeat_interleave(x, 2, dim=0)):
        assert taper.compile(f, fullgraph=True)(taper.ones(2, 2)).shape == (4, 2)
    f = taper.compile(lambda x, n: taper.repeat_interleave(x, n, dim=0))
    assert f(taper.ones(2, 2), taper.tensor([1, 3])).shape == (4, 2)


def test_closed_over_numbers_become_dynamic():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def make(k):
        def h(x):
            return x + k
        return taper.compile(h, backend=backend)
    for k in range(10):
        assert make(k)(taper.zeros(2)).tolist() == [float(k)] * 2
    assert len(graphs) <= 3


def test_generators_of_the_program():
    g = taper.Generator()
    draws = (lambda x: taper.randn([4], generator=g) + x, lambda x: x.clone().normal_(generator=g), lambda x: taper.randperm(4, generator=g) + x,
             lambda x: taper.multinomial(taper.ones(4), 2, generator=g) + x[:2], lambda x: x.clone().uniform_(0, 1, generator=g), lambda x: taper.normal(x, 1.0, generator=g))
    for k, f in enumerate(draws):
        for backend in ("eager", "inductor"):
            taper._dynamo.reset()
            seen = []
            for h in (f, taper.compile(f, backend=backend)):
                taper.manual_seed(3), g.manual_seed(5)
                seen.append([h(taper.zeros(4)).tolist() for _ in range(2)] + [taper.rand(1).item()])
            assert seen[0] == seen[1], (k, backend)
