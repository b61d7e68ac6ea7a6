"""Sorting and selecting on CUDA by kernels of its own, without a GPU: the libcuda of the tests runs their PTX."""
from test_cuda import has_fake, long_under_sanitizers, run

HEAD = "from order_cases import *\n"


def order(body, **env):
    if has_fake():
        long_under_sanitizers()
        return run(HEAD + body, **env)


def test_sort_of_all_types():
    order("long_rows(37, TYPES)\nsorts([(3, 5)], [taper.float16])\nsorts([(3, 257)], [taper.float32])")


def test_sort_of_odd_sizes():
    order("sorts([(0,), (4, 0), (0, 4), (2, 1), (9, 2)], [taper.float32])\nx = taper.tensor(3.0)\n"
          "for f in (lambda t: t.sort(), lambda t: t.topk(1), lambda t: t.argsort(), lambda t: t.kthvalue(1)): check(f, x, 'one element')")


def test_sort_of_long_rows():
    order("long_rows(4097, [taper.float32, taper.bfloat16, taper.int64, taper.bool])")


def test_sort_of_many_tiles():
    order("x = sample((1, 66000 * 4), taper.uint8, 1)\ncheck(lambda t: t.sort(stable=True), x, 'many tiles')")


def test_sort_compiled():
    order("compiled()")


def test_sort_at_random():
    order("random_sorts(8, 5000)")


def test_sort_writes_results():
    order("""
x = sample((3, 50), taper.float32, 2).nan_to_num(0)
y = x.cuda()
v, i = taper.empty(3, 50, device="cuda"), taper.empty(3, 50, dtype=taper.int64, device="cuda")
taper.sort(y, out=(v, i))
same(x.sort(), (v, i), "out")
taper.sort(y, out=(y, i))
same(x.sort(), (y, i), "into itself")
""")



def test_select_of_all_types():
    order("selects([(37,)])\nselects([(3, 41), (2, 3, 4)], [taper.float32])")


def test_select_of_many_tiles():
    order("for n in (4096, 4097, 9000): selects([(n,)], [taper.float32, taper.bool])")


def test_select_by_masks():
    order("masks()")


def test_search():
    order("searches()")


def test_median():
    order("medians([(4, 9), (3, 12)], [taper.float32, taper.int64])")


def test_select_compiled():
    order("compiled_selects()")


def test_without_memory():
    order("""
x = taper.zeros(1, 100000, device="cuda")
for f in (lambda: x.sort(), lambda: taper.unique(x)):
    try:
        f()
        print("no error")
    except RuntimeError as e:
        assert "out of memory" in str(e), e
assert x.sum().item() == 0
""", FAKE_CUDA_MEMORY=str(3 << 20))
