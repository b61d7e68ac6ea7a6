"""x[i] of a 0-dim tensor i is a view of x in eager code. A graph has a value there: it ends where the difference would be seen."""
import operator

import taper
import taper._dynamo
from same_results import check


def rows():
    return taper.arange(9.0).reshape(3, 3), taper.tensor(1)


def write_to_result(x, i):
    v = x[i]
    v.add_(1)
    return x.sum()


def write_to_source(x, i):
    v = x[i]
    x.mul_(2)
    return v + 1


def write_to_column(x, i):
    x[:, i].zero_()
    return x * 1


def write_to_view_of_result(x, i):
    x[i].view(-1)[1:].fill_(5)
    return x[0], x * 1


def write_to_other_result(x, i):
    a, b = x[i], x[i]
    a.mul_(3)
    return b + 1


def source_made_here(x, i):
    y = x * 2
    v = y[i]
    y.add_(1)
    return v * 1


def returned(x, i):
    return x[i], x


def over_break(x, i):
    v = x[i]
    taper._dynamo.graph_break()
    v.add_(1)
    return x * 1


def last_of_them(x, i):
    j = x[0].argmax()
    v = x[j]
    x.add_(1)
    return v * 1


def added_in_place(x, i):
    x[i] += 1
    x[..., i] *= 2
    x[i, i] -= 3
    return x * 1


def added_in_place_here(x, i):
    y = x * 2
    y[i] += x[i]
    v = y[i]
    v += 1
    y[i] = v
    return y, v * 1


def copied_within(x, i):
    x[i] = x[0]
    x[:, i] = x[i] * 2
    return x * 1


def stored_elsewhere(x, i):
    v = x[i]
    v += 1
    x[0] = v
    return x * 1


def index_moves(x, i):
    j = i * 1
    v = x[j]
    v += 1
    j.sub_(1)
    x[j] = v
    return x * 1


def by_functions(x, i):
    operator.getitem(x, i).add_(1)
    x.__getitem__(i).mul_(2)
    operator.itemgetter(i)(x).sub_(1)
    operator.setitem(x, i, x[0] + x[i])
    x.__setitem__((slice(None), i), x[0])
    return x * 1


def test_writes_beside_an_index():
    for f in (by_functions, index_moves, added_in_place, added_in_place_here, copied_within, stored_elsewhere, write_to_result, write_to_source, write_to_column, write_to_view_of_result, write_to_other_result, source_made_here, returned, over_break, last_of_them):
        for dynamic in (None, True):
            check(f, rows, dynamic=dynamic)


def test_gradients_pass_through_the_view():
    def grads():
        return (taper.arange(9.0).reshape(3, 3) * taper.ones(3, 3, requires_grad=True), taper.tensor(2))
    for f in (write_to_result, write_to_source, source_made_here):
        check(f, grads)


def graphs(f, *args):
    seen = []
    taper._dynamo.reset()

    def backend(gm, inputs):
        seen.append(gm)
        return gm.forward
    taper.compile(f, backend=backend)(*args)
    return len(seen)


def test_reading_alone_breaks_nothing():
    def lookup(x, i):
        return x[i] * 2 + x[:, i]

    def written_before(x, i):
        x.add_(1)
        return x[i] + 1

    def written_after_use(x, i):
        y = x[i] * 2
        x[i] = y + 1
        return y

    def source_dies(x, i):
        return (x * 2)[i]
    for f in (lookup, written_before, written_after_use):
        check(f, rows)
    for f in (lookup, written_before, written_after_use, source_dies, added_in_place, added_in_place_here, copied_within):
        assert graphs(f, *rows()) == 1, f.__name__


def test_fullgraph_says_why():
    try:
        taper.compile(write_to_source, fullgraph=True)(*rows())
    except Exception as e:
        assert "x[i] of a tensor i, which is a view of x" in str(e), e
    else:
        raise AssertionError("the write is lost")
