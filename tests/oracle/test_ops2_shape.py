"""Shape operators against PyTorch."""
from aten import *


def each_layout(dtypes=(torch.float32, torch.int64, torch.float16, torch.bool)):
    torch.manual_seed(0)
    for dt in dtypes:
        for shape in ((3, 4), (2, 3, 4), (5,), (), (0, 3), (2, 1, 3, 4)):
            yield from layouts(rand(*shape, dtype=dt))


def test_views():
    c = Tally()
    for x in each_layout((torch.float32,)):
        n = x.dim()
        c("squeeze", x), c("squeeze.dim", x, 0), c("squeeze.dim", x, 1), c("squeeze.dims", x, [0, -1])
        for d in (-n - 2, -1, 0, n, n + 1):
            c("unsqueeze", x, d, text=True)
        c("t", x, text=True)
        for d in (0, -1, 5):
            for i in (0, 1, -1, 7, -7):
                c("select.int", x, d, i, text=True)
            for s, e, st in ((None, None, 1), (1, None, 1), (None, -1, 1), (-2, 10, 1), (0, 5, 2), (3, 1, 1), (0, 2, 0), (0, 1, -1)):
                c("slice.Tensor", x, d, s, e, st, text=True)
            for s, l in ((0, 1), (1, 2), (-1, 1), (2, 5), (-9, 1), (0, -1)):
                c("narrow", x, d, s, l)
            for k in (1, 2, 3, 10, 0, -1):
                c("split.Tensor", x, k, d), c("chunk", x, k, d), c("tensor_split.sections", x, k, d)
            c("split_with_sizes", x, [1, 2], d), c("split_with_sizes", x, [1, 3], d), c("split_with_sizes", x, [2, -1], d)
            c("split.sizes", x, [1, 2], d)
            c("tensor_split.indices", x, [1, 2], d), c("unbind.int", x, d)
            for w, st in ((1, 1), (2, 1), (2, 2), (9, 1), (1, 0), (-1, 1)):
                c("unfold", x, d, w, st)
        for off in (0, 1, -1, 9):
            c("diagonal", x, off, text=True), c("diagonal", x, off, -1, 0), c("diagonal", x, off, 1, 1)
        for a, b in ((0, -1), (0, 1), (1, 1), (1, 0)):
            c("flatten.using_ints", x, a, b, text=True)
        c("reshape", x, [-1]), c("reshape", x, [2, -1]), c("reshape", x, [4, 3]), c("reshape", x, [-1, -1]), c("reshape", x, [7])
        c("ravel", x), c("unflatten.int", x, 0, [1, -1]), c("unflatten.int", x, 0, [3, 1]), c("unflatten.int", x, -1, [2, 2])
        c("unflatten.int", x, 0, [])
        c("movedim.intlist", x, [0, 1], [1, 0]), c("movedim.int", x, 0, -1), c("movedim.intlist", x, [0, 0], [1, 0])
        c("numpy_T", x), c("mT", x), c("mH", x), c("adjoint", x), c("matrix_H", x)
        c("broadcast_to", x, [2, 3, 4]), c("view_as", x, torch.ones(12)), c("expand_as", x, torch.ones(2, 3, 4))
        for k in "123":
            c(f"atleast_{k}d", x)
        for k in "hvd":
            c(f"{k}split.int", x, 2, text=True), c(f"{k}split.array", x, [1, 2])
        c("contiguous", x), c("contiguous", x, memory_format=torch.channels_last)
    x = torch.randn(3, 4)
    c("as_strided", x, [5, 5], [1, 1], 0), c("as_strided", x, [50, 5], [1, 1], 0, text=True), c("as_strided", x, [5], [1, 1], text=True)
    c("as_strided", x, [5], [-1], text=True), c("as_strided", x, [5], [1], -1, text=True), c("as_strided", x, [2, 2], [2, 3], 1)
    for dt in (torch.int8, torch.int16, torch.float64, torch.int32):
        for v in (x, x.t(), x[:, 1:], x[:, 2:], torch.tensor(1.0), x[0]):
            c("view.dtype", v, dt, text=True)
    c.end(1000)


def test_headers_in_place():
    c = Tally()
    for shape in ((3, 1, 4), (1, 2), ()):
        x = lambda: torch.randn(shape)
        c("squeeze_", x()), c("squeeze_.dim", x(), 0), c("squeeze_.dims", x(), [0, 1]), c("unsqueeze_", x(), 0), c("t_", x())
        c("transpose_", x(), 0, -1)
        c("resize_", x(), [1], values=False), c("resize_", x(), [4, 5], values=False), c("resize_", x(), [2, -1], values=False)
        c("resize_as_", x(), torch.ones(2, 2), values=False)
    c("fill_diagonal_", torch.zeros(3, 4), 2), c("fill_diagonal_", torch.zeros(9, 3), 2, True), c("fill_diagonal_", torch.zeros(9, 3), 2)
    c("fill_diagonal_", torch.zeros(3, 3, 3), 2), c("fill_diagonal_", torch.zeros(3), 2, text=True), c("fill_diagonal_", torch.zeros(2, 3, 3), 2, text=True)
    c.end()


def test_copies():
    c = Tally()
    for x in each_layout():
        n = x.dim()
        c("repeat", x, [2] * (n + 1)), c("repeat", x, [2]), c("repeat", x, [1, 0, 2, 1]), c("repeat", x, [-1] * max(n, 1))
        c("tile", x, [2, 1]), c("tile", x, [])
        c("repeat_interleave.self_int", x, 2), c("repeat_interleave.self_int", x, 2, 0), c("repeat_interleave.self_int", x, 3, -1)
        c("repeat_interleave.self_int", x, -1)
        c("repeat_interleave.self_Tensor", x, torch.tensor([1, 0, 2]), 0), c("repeat_interleave.self_Tensor", x, torch.tensor([2]), 0)
        for dims in ([], [0], [-1], [0, 1], [0, 0], [9]):
            c("flip", x, dims)
        c("fliplr", x, text=True), c("flipud", x, text=True)
        for k in range(-1, 5):
            c("rot90", x, k, [0, 1])
        c("rot90", x, 1, [0, 0], text=True), c("rot90", x, 1, [0], text=True)
        for s, d in (([1], []), ([-2], [0]), ([1, 2], [0, -1]), ([1, 2], [0]), ([], []), ([7, 1], [0, 0]), ([1], [9])):
            c("roll", x, s, d)
        for k in (0, 1, -1, 5, -5):
            c("tril", x, k, text=True), c("triu", x, k, text=True), c("diag", x, k, text=True), c("diagflat", x, k)
            c("diag_embed", x, k), c("diag_embed", x, k, 0, -1), c("diag_embed", x, k, 0, 0)
        c("cat", [x, x], 0), c("cat", [x, x], -1), c("cat", [x, torch.zeros(0)], 0), c("cat", [x, torch.ones(2, 3)], 0, text=True)
        c("cat", [x, x.to(torch.float64)], 0), c("cat", [x, torch.ones(2, 2, 2, 2, 2)], 0, text=True), c("cat", [x, x.int() if x.dtype == torch.int64 else x], 1)
        c("stack", [x, x], 0), c("stack", [x, x], -1), c("stack", [x, torch.ones(9)], 0, text=True)
        for k in ("hstack", "vstack", "dstack", "column_stack"):
            c(k, [x, x]), c(k, [])
        c("broadcast_tensors", [x, torch.ones(4), torch.ones(1)]), c("block_diag", [x, x, torch.ones(2)], text=True)
        c("atleast_2d.Sequence", [x, torch.tensor(1)])
        for off in (0, 1, -1):
            c("diagonal_scatter", x, torch.ones(3, dtype=x.dtype), off)
        c("select_scatter", x, torch.ones(x.shape[1:], dtype=x.dtype), 0, 1), c("slice_scatter", x, x[:2] if n else x, 0, 1, 3, text=True)
        c("slice_scatter", x, torch.ones(7), 0, 1, 3, text=True)
    c("cat", [], 0, text=True), c("stack", [], 0, text=True), c("cat", [torch.tensor(1)], text=True)
    v = [torch.arange(3), torch.arange(2), torch.arange(4)]
    c("meshgrid", v), c("meshgrid.indexing", v, indexing="xy"), c("meshgrid.indexing", v, indexing="ij"), c("meshgrid.indexing", v, indexing="zz", text=True)
    c("cartesian_prod", v), c("cartesian_prod", v[:1]), c("cartesian_prod", [torch.ones(2, 2)], text=True)
    c("repeat_interleave.Tensor", torch.tensor([2, 0, 3])), c("repeat_interleave.Tensor", torch.tensor([2, -1])), c("repeat_interleave.Tensor", torch.tensor([2.0]))
    c.end(1000)


def test_padding():
    c = Tally()
    for dt in (torch.float32, torch.int64, torch.bfloat16):
        for x in layouts(rand(2, 3, 4, 5, dtype=dt)):
            for p in ([1, 2], [1, 0, 0, 2], [-1, 2, 1, -1], [0, 0, 1, 1, 2, 2, 1, 0], [1], [1] * 10, [-9, 0]):
                c("constant_pad_nd", x, p, 2), c("pad", x, p)
            for mode in ("reflect", "replicate", "circular"):
                for p in ([1, 2, 1, 1], [0, 3, 2, 0], [1, 1], [5, 0, 0, 0], [-1, 1, 0, -1], [3, 3, 3, 3], [1] * 6):
                    c("pad", x, p, mode), c("pad", x[0], p, mode), c("pad", x[0, 0], p, mode)
            c("pad", x, [1, 1], "what"), c("pad", x, [1, 1, 1, 1], "reflect", 1.0)
    for dt in (torch.float32, torch.float64, torch.float16):
        for k, e in (("reflection", 1), ("replication", 3)):
            x = rand(2, 3, 4, 5, 6, dtype=dt)
            c(f"{k}_pad3d", x, [1, 2, 1, 1, 2, 0])
            c(f"{k}_pad3d_backward", rand(2, 3, 6, 7, 9, dtype=dt), x, [1, 2, 1, 1, 2, 0])
            c(f"{k}_pad2d_backward", rand(3, 4, 7, 9, dtype=dt), x[0], [1, 2, 1, 1])
            c(f"{k}_pad1d_backward", rand(4, 5, 9, dtype=dt), x[0, 0], [1, 2])
    c.end(200)


def test_backward_forms_of_views():
    c = Tally()
    for dt in (torch.float32, torch.float64, torch.bfloat16):
        c("select_backward", rand(3, 5, dtype=dt), [3, 4, 5], 1, 2)
        c("slice_backward", rand(3, 2, 5, dtype=dt), [3, 4, 5], 1, 0, 9223372036854775807, 2)
        c("diagonal_backward", rand(5, 3, dtype=dt), [3, 4, 5], 1, 0, 1)
        c("unfold_backward", rand(3, 3, 2, dtype=dt), [3, 4], 1, 2, 1)
        c("unfold_backward", rand(3, 2, 2, dtype=dt), [3, 5], 1, 2, 2)
    c.end()
