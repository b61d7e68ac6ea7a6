"""Tensors made with given strides, and views that show an element twice: layouts, values and gradients as in eager code."""
import taper
from same_results import check


def filled_like(x):
    y = taper.empty_strided(x.shape, x.stride()).fill_(1)
    return y, y + 1


def filled_in_part(x):
    y = x.new_empty_strided(x.shape, x.stride()).zero_()
    y[0, :2].fill_(3)
    y[0] += 1
    return y * 1


LAYOUTS = {
    "dense": lambda: (taper.ones(2, 3),),
    "turned": lambda: (taper.ones(4, 5).t(),),
    "gaps": lambda: (taper.ones(6, 7)[:, ::2],),
    "one row again": lambda: (taper.arange(3.0).expand(2, 3),),
    "windows": lambda: (taper.arange(3.0).as_strided((2, 2), (1, 1)),),
}


def test_made_with_strides():
    for f in (filled_like, filled_in_part):
        for name, make in LAYOUTS.items():
            for dynamic in (False, True):
                check(f, make, dynamic=dynamic, what=f"{f.__name__} {name} {dynamic}")


def test_gradients_of_windows_over_a_written_base():
    def windows(a):
        x = a * 1
        u = x.unfold(0, 2, 1)
        x[1] = 50
        return u * 1, u.clone()

    def strided(a):
        x = a * 1
        v = x.as_strided((2, 2), (1, 1))
        x[0] = 7
        return v.sum(0), v * 2
    for f in (windows, strided):
        for dynamic in (False, True):
            check(f, lambda: (taper.arange(4.0).requires_grad_(),), dynamic=dynamic)


def test_results_that_keep_gaps_of_a_written_tensor():
    def f(x):
        x += x
        return taper.diagonal_scatter(x, x.diagonal() + 1), taper.select_scatter(x, x[0] * 2, 0, 1)
    check(f, lambda: (taper.arange(8)[::2].reshape(2, 2),))
