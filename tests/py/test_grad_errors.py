"""What is wrong with gradients is the same error, with the same words, in eager and on every backend."""
import taper

BACKENDS = ["eager", "aot_eager", "aot_eager_decomp_partition", "inductor"]


def outcome(run):
    try:
        return ("returned", run())
    except Exception as e:
        return (type(e).__name__, str(e).split("\n")[0])


def same(make, word, backends=BACKENDS):
    """make(wrap) runs the program, its function wrapped; every way fails alike."""
    want = outcome(lambda: make(lambda f: f))
    assert want[0] != "returned" and word in want[1], want
    for b in backends:
        taper._dynamo.reset()
        got = outcome(lambda: make(lambda f: taper.compile(f, backend=b)))
        assert got == want, (b, got, want)


def leaf(*shape):
    return taper.ones(*shape, requires_grad=True)


def test_in_place_on_a_leaf():
    same(lambda wrap: wrap(lambda x: x.add_(1))(leaf(3)), "a leaf Variable that requires grad is being used in an in-place operation")
    same(lambda wrap: wrap(lambda x: x.view(-1).mul_(2))(leaf(3)), "a view of a leaf Variable that requires grad is being used in an in-place operation")


def test_in_place_after_it_was_saved():
    def inside(wrap):
        def f(x):
            y = x.exp()
            z = y * y
            y.add_(1)
            return z.sum()

        return wrap(f)(leaf(3)).backward()

    same(inside, "one of the variables needed for gradient computation has been modified by an inplace operation")


def test_input_written_between_forward_and_backward():
    def run(wrap):
        x, w = taper.ones(3), leaf(3)
        loss = wrap(lambda x, w: (x * w).sum())(x, w)
        x.add_(1)
        loss.backward()

    same(run, "one of the variables needed for gradient computation has been modified by an inplace operation")


def test_outputs_without_a_derivative():
    same(lambda wrap: wrap(lambda x: x.argmax())(leaf(3)).backward(), "does not require grad and does not have a grad_fn")
    same(lambda wrap: wrap(lambda x: (x > 0).float().sum())(leaf(3)).backward(), "does not require grad and does not have a grad_fn")
    same(lambda wrap: wrap(lambda x: x.detach().sum())(leaf(3)).backward(), "does not require grad and does not have a grad_fn")


def test_integers_have_no_gradient():
    def run(wrap):
        def f(x):
            return x.long().requires_grad_()

        return wrap(f)(leaf(3))

    same(run, "only Tensors of floating point")
    same(lambda wrap: wrap(lambda x: taper.autograd.grad(x.sum(), x))(taper.ones(3).long()), "require grad")


def test_backward_twice():
    def run(wrap):
        loss = wrap(lambda x: (x * x).sum())(leaf(3))
        loss.backward()
        loss.backward()

    same(run, "Trying to backward through the graph a second time")

    def inside(wrap):
        def f(x):
            loss = (x * x).sum()
            loss.backward()
            loss.backward()

        wrap(f)(leaf(3))

    same(inside, "Trying to backward through the graph a second time")


def test_retain_graph_allows_it():
    for b in BACKENDS:
        taper._dynamo.reset()
        x = leaf(3)
        loss = taper.compile(lambda x: (x * x).sum(), backend=b)(x)
        loss.backward(retain_graph=True)
        loss.backward()
        assert x.grad.tolist() == [4, 4, 4]


def test_gradients_of_the_wrong_shape():
    same(lambda wrap: wrap(lambda x: x * 2)(leaf(3)).backward(taper.ones(4)), "Mismatch in shape")
    same(lambda wrap: wrap(lambda x: x * 2)(leaf(3)).backward(), "grad can be implicitly created only for scalar outputs")

    def inside(wrap):
        def f(x):
            (x * 2).backward(taper.ones(4))

        wrap(f)(leaf(3))

    same(inside, "Mismatch in shape")


def test_writing_an_expanded_tensor():
    same(lambda wrap: wrap(lambda x: x.expand(4, 3).add_(1))(taper.ones(1, 3)), "more than one element of the written-to tensor refers to a single memory location")
    same(lambda wrap: wrap(lambda x: (x * 2).expand(4, 3).mul_(2).sum())(leaf(1, 3)), "more than one element of the written-to tensor refers to a single memory location")


def test_unused_input():
    def run(wrap):
        def f(x, y):
            return taper.autograd.grad((x * 2).sum(), [x, y])

        return wrap(f)(leaf(3), leaf(3))

    same(run, "appears to not have been used in the graph")


def test_grad_of_a_compiled_function_outside():
    def run(wrap):
        x, y = leaf(3), leaf(3)
        out = wrap(lambda x, y: (x * 2).sum())(x, y)
        return taper.autograd.grad(out, [x, y])

    same(run, "appears to not have been used in the graph")


def test_inference_tensors_are_not_saved():
    def run(wrap):
        with taper.inference_mode():
            t = taper.ones(3)
        return wrap(lambda t, w: (t * w).sum())(t, leaf(3)).backward()

    same(run, "Inference tensors cannot be saved for backward")


def test_what_runs_eagerly_instead_says_why():
    """Every way the stage steps aside: in the counters, the ledger and the log."""
    def reshapes_in_place(x, w):
        y = x * w
        y.unsqueeze_(0)
        return y.sum()

    def cannot_work(x, w):
        y = w.exp()
        z = (y * y).sum()
        y.add_(1)
        return z

    def mode(x, w):
        with taper.inference_mode():
            y = x * 2
        return (w * 2).sum()

    from taper._dynamo.utils import counters
    cases = [(reshapes_in_place, "has no functional form"), (cannot_work, "backward of this graph cannot work"), (mode, "switches modes")]
    for f, word in cases:
        for b in BACKENDS[1:]:
            taper._dynamo.reset()
            counters.clear()
            w = leaf(3)
            outcome(lambda: taper.compile(f, backend=b)(taper.ones(3), w))
            assert any(word in k for k in counters["aot_fallback"]), (f.__name__, b, dict(counters))
            assert any(word in str(r) for r in taper.compiler.ledger()), (f.__name__, b, taper.compiler.ledger())
