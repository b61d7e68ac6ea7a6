"""Names that few programs use: each does what the original's does (numbers recorded from PyTorch 2.13)."""
import taper
from taper import nn


def test_questions_about_tensors():
    x = taper.ones(2, 3)
    assert taper.is_signed(x) and not taper.is_signed(x.to(taper.uint8)) and not taper.is_conj(x) and not taper.is_neg(x)
    assert taper.is_same_size(x, x + 1) and not taper.is_same_size(x, x[0]) and taper.get_device(x) == -1
    with taper.inference_mode():
        assert taper.is_inference(taper.ones(1))
    assert not taper.is_inference(x)


def test_losses_with_the_number_of_a_reduction():
    F = nn.functional
    taper.manual_seed(1)
    a, b, t = taper.randn(5), taper.randn(5), taper.tensor([1, -1, 1, -1, 1])
    for number, name in enumerate(("none", "mean", "sum")):
        for got, want in ((taper.hinge_embedding_loss(a, t, 0.5, number), F.hinge_embedding_loss(a, t, 0.5, reduction=name)),
                          (taper.margin_ranking_loss(a, b, t, 0.1, number), F.margin_ranking_loss(a, b, t, 0.1, reduction=name)),
                          (taper.kl_div(a, b.softmax(0), number), F.kl_div(a, b.softmax(0), reduction=name)),
                          (taper.kl_div(a, b, number, log_target=True), F.kl_div(a, b, reduction=name, log_target=True))):
            assert taper.allclose(got, want), (number, got, want)


def test_norms_and_parts():
    x = taper.arange(24.0).reshape(2, 3, 4)
    assert taper.allclose(taper.norm_except_dim(x, 2, 1), x.norm(2, (0, 2), True)) and taper.norm_except_dim(x, 2, 1).shape == (1, 3, 1)
    assert taper.allclose(taper.frobenius_norm(x, [1, 2]), x.norm(2, (1, 2))) and taper.allclose(taper.nuclear_norm(taper.eye(3)), taper.tensor(3.0))
    parts = taper.unsafe_split_with_sizes(x, [1, 3], 2)
    assert [p.shape[2] for p in parts] == [1, 3] and parts[0].data_ptr() != x.data_ptr()
    assert taper.native_channel_shuffle(taper.arange(4.0).reshape(1, 4, 1, 1), 2).flatten().tolist() == [0, 2, 1, 3]
    assert [p.tolist() for p in taper._foreach_pow(2.0, [taper.ones(2), taper.zeros(1)])] == [[2, 2], [1]]


def test_muon():
    for adjust, want in ((None, [1.5, -0.229, -2.177, 0.552, -0.837]), ("match_rms_adamw", [1.498, -0.26, -2.142, 0.552, -0.956])):
        taper.manual_seed(0)
        p = nn.Parameter(taper.randn(3, 5))
        o = taper.optim.Muon([p], lr=0.1, adjust_lr_fn=adjust)
        for _ in range(3):
            p.grad = taper.randn(3, 5)
            o.step()
        assert all(abs(a - b) < 4e-3 for a, b in zip(p[0].tolist(), want)), p[0]
        assert list(o.state_dict()["state"][0]) == ["momentum_buffer"]
    for bad in (lambda: taper.optim.Muon([nn.Parameter(taper.ones(3))]), lambda: taper.optim.Muon([p], adjust_lr_fn="other"), lambda: taper.optim.Muon([p], lr=-1)):
        try:
            bad()
        except ValueError:
            continue
        raise AssertionError


def test_meta_of_nodes_that_are_made():
    import taper.fx.traceback as meta

    def f(x):
        with meta.annotate({"stage": 1}):
            with meta.annotate({"part": "a"}):
                y = x.sin()
            y = y.cos()
        return y + 1
    nodes = taper.fx.symbolic_trace(f).graph.nodes
    assert {n.name: n.meta.get("custom") for n in nodes if n.op.startswith("call")} == {"sin": {"stage": 1, "part": "a"}, "cos": {"stage": 1}, "add": None}
    with meta.preserve_node_meta():
        meta.set_stack_trace(["here\n"])
        assert meta.has_preserved_node_meta() and meta.format_stack() == ["here\n"]
    assert not meta.has_preserved_node_meta() and meta.get_current_meta() == {}
