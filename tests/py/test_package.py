"""The package around the operators: settings, copying and pickling, operator namespaces, trees, checks."""
import copy, pickle, subprocess, sys
import taper
from taper import tensor


def raises(cls, fn, text=""):
    try:
        fn()
    except cls as e:
        assert text in str(e), str(e)
        return
    raise AssertionError(f"{cls.__name__} was expected")


def test_infos():
    assert repr(taper.finfo(taper.float32)) == ("finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, "
                                                 "eps=1.19209e-07, smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)")
    assert taper.finfo(taper.float16).max == 65504 and taper.finfo(taper.bfloat16).eps == 0.0078125
    assert repr(taper.iinfo(taper.int8)) == "iinfo(min=-128, max=127, dtype=int8)" and taper.iinfo(taper.uint8).max == 255
    raises(TypeError, lambda: taper.finfo(taper.int8), "requires a floating point input type")
    raises(TypeError, lambda: taper.iinfo(taper.float32), "requires an integer input type")


def test_promotion_questions():
    assert taper.promote_types(taper.int8, taper.uint8) is taper.int16
    assert taper.result_type(tensor([1], dtype=taper.int8), 1.5) is taper.float32
    assert taper.can_cast(taper.int32, taper.float32) and not taper.can_cast(taper.float32, taper.int32)


def test_copies_keep_sharing():
    x = tensor([1.0, 2.0, 3.0])
    for twin in (copy.deepcopy([x, x[1:]]), pickle.loads(pickle.dumps([x, x[1:]]))):
        twin[0].fill_(7)
        assert twin[1].tolist() == [7.0, 7.0] and x.tolist() == [1.0, 2.0, 3.0]
    y = copy.copy(x)
    y.fill_(0)
    assert x.tolist() == [0.0] * 3
    for v in (taper.float32, taper.Size([1, 2]), taper.device("cpu"), taper.channels_last, x[::2]):
        w = pickle.loads(pickle.dumps(v))
        assert type(w) is type(v) and (w is v or w.tolist() == v.tolist() if isinstance(v, taper.Tensor) else w == v)


def test_hostile_pickles_are_refused():
    s = tensor([1, 2]).untyped_storage()
    raises(ValueError, lambda: taper._C._tensor_on(s, taper.int64, 0, (3,), (1,)), "needs 24 bytes of storage, but there are 16")
    raises(ValueError, lambda: taper._C._tensor_on(s, taper.int64, -1, (1,), (1,)))
    raises(RuntimeError, lambda: taper._C._tensor_on(s, taper.int64, 0, (2,), (-1,)))
    raises(RuntimeError, lambda: taper._C._tensor_on(s, taper.int64, 0, (2**40, 2**40), (1, 1)))


def test_storage():
    x = tensor([1, 2], dtype=taper.int16)
    s = x.untyped_storage()
    assert s.nbytes() == 4 == len(s) and list(s) == [1, 0, 2, 0] and s.data_ptr() == x.data_ptr()
    assert x[1:].untyped_storage() is s
    y = taper.empty(0, dtype=taper.int16) if hasattr(taper, "empty") else tensor([], dtype=taper.int16)
    y.set_(s, 1, (1,))
    assert y.tolist() == [2]
    raises(RuntimeError, lambda: y.set_(s, 1, (5,)), "bytes are needed but the storage has 4")


def test_seeds():
    g = taper.manual_seed(5)
    assert g is not None and taper.initial_seed() == 5
    state = taper.get_rng_state()
    a = taper.randn(3).tolist()
    taper.set_rng_state(state)
    assert taper.randn(3).tolist() == a
    with taper.random.fork_rng():
        taper.randn(10)
    b = taper.randn(3).tolist()
    taper.manual_seed(5)
    taper.randn(3)
    assert taper.randn(3).tolist() == b
    raises(ValueError, lambda: taper.manual_seed("a"))
    raises(ValueError, lambda: taper.manual_seed(2**70))


def test_printoptions():
    x = tensor([1 / 3, 200.5])
    try:
        taper.set_printoptions(precision=2)
        assert repr(x) == "tensor([  0.33, 200.50])"
        taper.set_printoptions(profile="default", sci_mode=True)
        assert "e+02" in repr(x)
        taper.set_printoptions(threshold=3, edgeitems=1)
        assert repr(tensor([1, 2, 3, 4, 5])) == "tensor([1,  ..., 5])"
        raises(ValueError, lambda: taper.set_printoptions(precision=-1))
    finally:
        taper.set_printoptions(profile="default", sci_mode=None)


def test_operators_by_aten_name():
    op = taper.ops.aten.add.Tensor
    assert str(op) == "aten.add.Tensor" and op.name() == "aten::add.Tensor" and op is taper.ops.aten.add.Tensor
    assert str(op._schema) == "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"
    assert [a.name for a in op._schema.arguments] == ["self", "other", "alpha"] and op._schema.arguments[2].kwarg_only
    x = tensor([1.0])
    assert op(x, x, alpha=3).tolist() == [4.0] and taper.ops.aten.add(x, 1).tolist() == [2.0]
    assert taper.ops.aten.add_.Tensor(x, 1) is x and taper.ops.aten.sin.default(x).shape == (1,)
    assert taper.ops.aten.add_.Tensor._schema.is_mutable
    assert pickle.loads(pickle.dumps(op)) is op and copy.deepcopy(op) is op
    raises(AttributeError, lambda: taper.ops.aten.nosuch, "has no attribute 'nosuch'")
    raises(AttributeError, lambda: taper.ops.aten.add.nosuch, "has no overload name 'nosuch'")
    raises(AttributeError, lambda: taper.ops.mine.op)


def test_every_row_is_callable_by_name():
    for full, schema, *_ in taper._C._schemas():
        base, _, over = full.partition(".")
        op = getattr(getattr(taper.ops.aten, base), over or "default")
        assert op.name() == "aten::" + full and len(op._schema.arguments) >= 0


def test_checks():
    taper._check(True)
    raises(RuntimeError, lambda: taper._check(False), "Expected cond to be True")
    raises(RuntimeError, lambda: taper._check(1 == 2, lambda: "one is not two"), "one is not two")
    raises(IndexError, lambda: taper._check_index(False))
    raises(ValueError, lambda: taper._check_with(ValueError, False, lambda: "x"))
    raises(TypeError, lambda: taper._check(False, "text"), "message must be a callable")
    assert taper.sym_max(2, 3) == 3 and taper.sym_min(2, 3) == 2


def test_trees():
    from collections import OrderedDict, namedtuple
    from taper.utils import _pytree as pt
    P = namedtuple("P", "x y")
    tree = {"b": [1, (2, None)], "a": P(3, OrderedDict(k=4)), "e": []}
    leaves, spec = pt.tree_flatten(tree)
    assert leaves == [1, 2, None, 3, 4] and pt.tree_unflatten(leaves, spec) == tree and spec.num_leaves == 5
    assert pt.tree_map(lambda a, b: (a, b), [1, 2], [3, 4]) == [(1, 3), (2, 4)]
    assert pt.tree_map_only(int, lambda v: v + 1, {"a": 1, "b": "s"}) == {"a": 2, "b": "s"}
    assert pt.keystr(pt.tree_leaves_with_path(tree)[3][0]) == "['a'].x"
    assert pt.treespec_loads(pt.treespec_dumps(pt.tree_structure([1, (2,)]))) == pt.tree_structure([0, (0,)])
    raises(ValueError, lambda: pt.tree_unflatten([1], spec), "holds 5 items")
    raises(ValueError, lambda: pt.tree_map(lambda a, b: a, [1, 2], [1]), "arity mismatch")

    class Box:
        def __init__(self, v):
            self.v = v

    pt.register_pytree_node(Box, lambda b: ([b.v], None), lambda ch, _: Box(*ch))
    assert pt.tree_map(lambda v: v * 2, Box(4)).v == 8
    raises(ValueError, lambda: pt.register_pytree_node(Box, None, None), "already registered")


def test_import_is_light():
    code = ("import sys, taper; taper.nn.Linear(2, 2); bad = {'numpy', 'torch', 'inspect', 'asyncio', 'unittest', 'dataclasses', 'taper._dynamo'} & set(sys.modules);"
            "assert not bad, bad")
    subprocess.run([sys.executable, "-S", "-c", code], check=True)


def test_einsum_with_dimensions_of_size_one():
    a, b = taper.ones(1, 2, 3), taper.ones(1, 3, 4)
    assert taper.einsum("aij,ajk->aik", a, b).tolist() == [[[3.0] * 4] * 2]
    assert taper.einsum(a, [0, 1, 2], b, [0, 2, 3], [0, 1, 3]).shape == (1, 2, 4)
    assert taper.einsum("a,b->ba", taper.ones(1), taper.ones(1)).shape == (1, 1)
