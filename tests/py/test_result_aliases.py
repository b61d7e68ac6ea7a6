"""Results that are views, detached, written or made under no_grad: the same compiled as eager in everything that can be seen
(same_results.py), and the same again when something is written to them after the call."""
import taper

from same_results import check

PROGRAMS = []


def program(f):
    PROGRAMS.append(f)
    return f


@program
def detached_too(a):
    y=a*a
    return y, y.detach()


@program
def detached_first(a):
    y=a*2
    return y.detach(), y


@program
def view_under_no_grad(a):
    with taper.no_grad():
        v=a[0:1]
    return v, a*2


@program
def view_of_a_copy(a):
    v=a-a
    v.copy_(a)
    return v.view_as(v)


@program
def views_of_a_copy(a):
    v=a.new_zeros(a.shape)
    v.copy_(a)
    return v.reshape(-1)[1:], v[0], a.clone().view(-1)


@program
def view_of_a_written_view(a):
    v=a*2
    w=v.view(-1)
    w.copy_(a.reshape(-1))
    return w.view(a.shape), v.t()


@program
def write_through_detach(a):
    v=a.detach()
    v-=a
    return v


@program
def two_rows(a):
    y=a*2
    return y[0], y[1]


@program
def one_row(a):
    y=a*2
    return y[1]


@program
def whole_and_row(a):
    y=a*2
    return y, y[1]


@program
def transposed_and_whole(a):
    y=a*2
    return y.t(), y


@program
def columns(a):
    y=a*2
    return y[:, 1:]


@program
def written_by_a_flat_view(a):
    y=a*2
    z=y.view(-1)
    z[0]=7
    return y, z


@program
def detached_row_written(a):
    y=a*2
    y[0].detach().mul_(2)
    return y


@program
def detached_input(a):
    return a.detach()


@program
def detached_input_and_input(a):
    return a.detach(), a


@program
def computed_under_no_grad(a):
    with taper.no_grad():
        v=a*2
    return v, a*2


@program
def only_a_view_under_no_grad(a):
    with taper.no_grad():
        v=a.view(-1)
    return v


@program
def twice(a):
    y=a*2
    return y, y


@program
def view_as(a):
    y=a*2
    return y, y.view_as(y)


@program
def expanded_sum(a):
    y=a.sum(0)
    return y.expand(2,3)


@program
def expanded(a):
    y=a*2
    return y.expand(2,2,3)


@program
def row_under_no_grad(a):
    y=a*2
    with taper.no_grad():
        z=y[0]
    return y,z


@program
def written_under_no_grad(a):
    y=a*2
    with taper.no_grad():
        y.add_(1)
    return y


@program
def detached_and_written(a):
    y=a*2
    d=y.detach()
    d.add_(1)
    return y, d


@program
def new_leaf(a):
    y=(a*2).detach()
    y.requires_grad_()
    return y, y*2


@program
def data(a):
    return a.data, a*2


@program
def only_data(a):
    return a.data


@program
def row_of_data(a):
    return a.data[0]


@program
def data_written(a):
    y=a*2
    y.data.add_(1)
    return y


@program
def row_written(a):
    y=a*2
    v=y[0]
    v.mul_(3)
    return y, v


@program
def column_of_what_was_written(a):
    y=a*2
    v=y[0]
    w=y[:,0]
    v.mul_(3)
    return w


@program
def chunks_of_the_input(a):
    return a.chunk(2)


@program
def chunks(a):
    return (a*2).chunk(2)


@program
def unbound(a):
    return (a*2).unbind(0)


@program
def leaf_on_shared_memory(a):
    y=a*2
    return y.detach().requires_grad_(), y


@program
def transposed(a):
    y=a*2
    return y.transpose(0,1)


@program
def diagonal_and_view(a):
    y=a*2
    return y.diagonal(), y.view(3,2)


@program
def expanded_constant(a):
    return taper.zeros(3).expand(2,3), a+1


@program
def row_of_detached(a):
    y=a*2
    z=y.detach()
    return z[0], z, y


@program
def detached_row_and_row(a):
    y = a+1
    return y[0].detach(), y[0]


@program
def rows_of_written(a):
    y = a.clone()
    y[0] = 1
    return y[0], y[1]


@program
def leaf_under_no_grad(a):
    with taper.no_grad():
        y=a*2
        y.requires_grad_()
    return y*3, y


@program
def views_of_the_input(a):
    v=a.view(-1)
    return v, v.detach(), v[2:]


@program
def used_view_of_no_grad(a):
    with taper.no_grad():
        v=a.view(-1)
    return v*2, v[1:]


@program
def input_transposed(a):
    return a.T


@program
def reshaped(a):
    y=(a*2)
    return y.reshape(-1), y.flatten(), y.contiguous()


@program
def nothing_to_do(a):
    return a.contiguous(), a.reshape(2,3), a.to(taper.float32), a.expand(2,3)


@program
def unsqueezed(a):
    y=a*2
    return y.unsqueeze(0), y.squeeze(), y.permute(1,0)


@program
def gaps(a):
    y=taper.empty_strided((2,3),(6,2))
    y.copy_(a)
    return y


@program
def gaps_written(a):
    y=taper.empty_strided((2,3),(6,2))
    y[:]=a*2
    return y, y+1


@program
def part_of_a_constant(a):
    return taper.ones(4,4)[1:3,:3]+0*a, taper.ones(4,4)[1:3,:3]


@program
def bits(a):
    return (a*2).view(taper.int32)


@program
def bits_of_the_input(a):
    return a.view(taper.int32)


@program
def detach_in_place(a):
    y=a*2
    y.detach_()
    return y


@program
def detached_element_written(a):
    y=a*2
    z=y.detach()
    z[0]=5
    return z, y*y


@program
def written_view_under_no_grad(a):
    y = a.exp()
    w = y.view(-1)
    with taper.no_grad():
        w[0] = 0
    return y


@program
def row_zeroed_under_no_grad(a):
    y = a*2
    v=y[0]
    with taper.no_grad():
        v.zero_()
    return v, y


@program
def parts_of_the_input(a):
    return a.split(1), a.narrow(1,1,2), a.select(0,1)


@program
def as_strided(a):
    y=a.sin()
    return y.as_strided((2,2),(1,2)), y


@program
def parts_of_new(a):
    return taper.cat([a,a])[1:], a.repeat(2,1)[::2]


@program
def numbers(a):
    return a.sum(), a.sum().detach(), a.mean().expand(3)


@program
def rows_one_by_one(a):
    o=[]
    y=a*1
    for i in range(2):
        y[i]+=i
        o.append(y[i])
    return o


@program
def written_rows_alone(a):
    v=a.abs()[1:]
    v.add_(1)
    return v


@program
def written_columns_alone(a):
    v=(a*2)[:, 1:]
    v*=a[:, :2]
    return v


@program
def written_and_turned(a):
    b=a.abs()
    v=b[:1].t()
    v.copy_(v)
    b.mul_(2)
    return v, a*2


@program
def filled_in_the_middle(a):
    b=taper.zeros(4, 4)
    b[1:3, 1:]=a
    return b[1:3]


def base():
    return taper.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])


INPUTS = {
    "leaf": lambda: [base().requires_grad_()],
    "plain": lambda: [base()],
    "inner": lambda: [base().requires_grad_() * 1],
    "slice": lambda: [taper.arange(12.0).reshape(4, 3)[1:3]],
    "transposed": lambda: [base().t().contiguous().t()],
}


def test_as_returned():
    for f in PROGRAMS:
        for kind, make in INPUTS.items():
            check(f, make, what=(f.__name__, kind))


def written_later(f, which):
    """f, then a write to one of its results: the others and the gradients must see it."""
    def g(a):
        out = f(a)
        out = list(out) if isinstance(out, (list, tuple)) else [out]
        taper._dynamo.graph_break()
        if which < len(out) and isinstance(out[which], taper.Tensor) and out[which].dtype == taper.float32:
            out[which].mul_(3)
        return out

    return g


def test_written_after_the_call():
    for f in PROGRAMS:
        if f.__name__ in ("unbound", "chunks", "chunks_of_the_input", "parts_of_the_input"):
            continue  # writes to one of several views made at once are refused by the tape
        for kind in ("leaf", "plain", "inner"):
            for which in range(3):
                check(written_later(f, which), INPUTS[kind], what=(f.__name__, kind, which), backends=("aot_eager", "inductor"))


def test_versions_of_tensors_made_inside_are_known():
    def f(a, seen):
        b = a * 2
        seen.append(b._version)
        b.mul_(3)
        seen.append(b._version)
        c = b.view(-1)
        c.add_(1)
        seen.append((b._version, c._version))
        return b
    want = []
    f(taper.ones(2, 2), want)
    for backend in ("eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        got = []
        taper.compile(f, backend=backend, fullgraph=True)(taper.ones(2, 2), got)
        assert got == want == [0, 1, (2, 2)], (backend, got, want)

    def g(a):
        a.add_(1)
        return a._version
    for backend in ("eager", "inductor"):  # of an input: nobody knows what it was
        x = taper.ones(2)
        x.add_(1)
        assert taper.compile(g, backend=backend)(x) == 2


def test_views_of_results_in_inference_mode():
    def detached(a):
        b = taper.nn.functional.layer_norm(a, a.shape)
        b -= 1
        return b, b.detach(), b.view(-1), a.detach(), a.view(-1)
    for backend in (None, "eager", "aot_eager", "inductor"):
        taper._dynamo.reset()
        f = taper.compile(detached, backend=backend) if backend else detached
        x = taper.arange(4.0)
        with taper.inference_mode():
            r = f(x)
        assert [t.is_inference() for t in r] == [True, True, True, False, False], (backend, [t.is_inference() for t in r])
