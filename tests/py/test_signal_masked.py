"""Windows, masked reductions, histograms and the functions that copy views, by values worked out by hand."""
import math

import taper
from taper.signal import windows


def same(t, want, tol=1e-6):
    got = t.flatten().tolist()
    return len(got) == len(want) and all(abs(a - b) <= tol for a, b in zip(got, want))


def test_windows():
    assert same(windows.hann(5), [0, .5, 1, .5, 0]) and same(windows.hann(4, sym=False), [0, .5, 1, .5])
    assert same(windows.hamming(3), [.08, 1, .08]) and same(windows.bartlett(5), [0, .5, 1, .5, 0])
    assert same(windows.cosine(2), [math.sqrt(.5)] * 2) and same(windows.exponential(3), [math.exp(-1), 1, math.exp(-1)])
    assert same(windows.gaussian(3), [math.exp(-.5), 1, math.exp(-.5)])
    assert same(windows.general_cosine(3, a=[.5, .5]), [0, 1, 0]) and same(windows.blackman(3), [0, 1, 0])
    assert windows.kaiser(5, beta=8.)[2].item() == 1 and windows.nuttall(1).tolist() == [1]
    assert same(taper.hann_window(4), [0, .5, 1, .5]) and taper.blackman_window(0).shape == (0,)
    for wrong in (lambda: windows.hann(-1), lambda: windows.gaussian(3, std=0), lambda: windows.kaiser(3, beta=-1.),
                  lambda: windows.hann(3, dtype=taper.int64), lambda: windows.general_cosine(3, a=[])):
        try:
            wrong()
        except ValueError:
            continue
        raise AssertionError("no error")


def test_masked():
    x = taper.tensor([[1., 2., 3.], [4., 5., 6.]])
    m = taper.tensor([[True, False, True], [False, False, False]])
    assert taper.masked.sum(x, 1, mask=m).tolist() == [4, 0] and taper.masked.prod(x, mask=m).item() == 3
    assert taper.masked.amax(x, 1, mask=m).tolist() == [3, -math.inf] and taper.masked.amin(x, mask=m).item() == 1
    assert taper.masked.mean(x, 1, mask=m).tolist()[0] == 2 and taper.masked.var(x, mask=m).item() == 2
    assert taper.masked.argmin(x, 1, mask=m).tolist() == [0, 0] and taper.masked.norm(x, 1, mask=m).item() == 4
    assert same(taper.masked.softmax(x[0], 0, mask=m[0])[1], [0])


def test_histograms():
    h, e = taper.histogram(taper.tensor([1., 2., 1., 3., 9.]), 3, range=(0., 3.))
    assert h.tolist() == [0, 2, 2] and e.tolist() == [0, 1, 2, 3]
    h, e = taper.histogram(taper.tensor([0., 1.]), taper.tensor([0., .5, 1.]), weight=taper.tensor([2., 3.]), density=True)
    assert same(h, [.8, 1.2])
    h, e = taper.histogramdd(taper.tensor([[0., 1.], [1., 0.], [2., 2.]]), bins=[2, 2])
    assert h.tolist() == [[0, 1], [1, 1]]


def test_copies_have_memory_of_their_own():
    x = taper.arange(6.)
    for y in (taper.view_copy(x, [2, 3]), taper.slice_copy(x, 0, 1, 4), taper.permute_copy(x.view(2, 3), [1, 0]), taper.alias_copy(x),
              taper.unbind_copy(x)[0], taper.expand_copy(x, [2, 6])):
        assert y.is_contiguous() and y.data_ptr() != x.data_ptr()


def test_eigenvalues_are_refused():
    for f in (taper.linalg.eig, taper.linalg.eigvals):
        try:
            f(taper.eye(2))
        except NotImplementedError as e:
            assert "complex" in str(e)
        else:
            raise AssertionError("no error")
