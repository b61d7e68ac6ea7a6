"""ONNX against its own packages: every case of onnx's list of node tests, and exported models in ONNX Runtime."""
import os
import sys
import unittest
import warnings

try:
    import numpy as np
    import onnx
    import onnxruntime
except ImportError as e:
    raise unittest.SkipTest(f"{e.name} is not importable")
import taper
import taper.onnx

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "py"))
from onnx_models import flat, models  # noqa: E402

RANDOM = ("bernoulli", "training_dropout")  # draws of its own
ROUGH = ("bf16",)


def tensor(a):
    if isinstance(a, list):
        return [tensor(v) for v in a]
    a = np.array(a)
    return taper.from_numpy(a.view(np.int16).copy()).view(taper.bfloat16) if str(a.dtype) == "bfloat16" else taper.from_numpy(a)


def differ(got, want, rough):
    got, want = (v if isinstance(v, list) else [v] for v in (got, want))
    for g, w in zip(got, want):
        if list(g.shape) != list(w.shape) or g.dtype != w.dtype:
            return f"{g.dtype} {list(g.shape)}, not {w.dtype} {list(w.shape)}"
        a, b = g.detach().double(), w.double()
        same = taper.isnan(a) & taper.isnan(b) | (a == b) | ((a - b).abs() <= (0.01 if rough else 1e-4) + 1e-3 * b.abs())
        if not bool(same.all()):
            return f"off by {float((a - b).abs().max())}"
    return None


def test_every_node_of_onnx_that_can_be_read_is_right():
    from onnx.backend.test.case.node import collect_testcases
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    right, refused, bad = 0, 0, []
    for case in cases:
        if any(n in case.name for n in RANDOM):
            continue
        try:
            model = taper.onnx.load(case.model.SerializeToString())
        except taper.onnx.OnnxError:
            refused += 1
            continue
        for inputs, want in case.data_sets:
            try:
                inputs, want = [None if v is None else tensor(v) for v in inputs], [tensor(v) for v in want]
            except (TypeError, KeyError):  # element types that NumPy tensors cannot become
                refused += 1
                continue
            try:
                with taper.no_grad():
                    got = model(*inputs)
                got = got if isinstance(got, tuple) else (got,)
                why = next((d for d in (differ(g, w, any(n in case.name for n in ROUGH)) for g, w in zip(got, want)) if d), None)
            except taper.onnx.OnnxError:
                refused += 1
                continue
            except NotImplementedError as e:  # arithmetic of wide unsigned numbers, which is not in PyTorch either
                if "not implemented for 'UInt" not in str(e):
                    raise
                refused += 1
                continue
            except Exception as e:
                why = f"{type(e).__name__}: {e}"
            if why:
                bad.append(f"{case.name}: {why}"[:300])
            else:
                right += 1
    print(f"{right} cases right, {refused} refused, {len(bad)} wrong", file=sys.stderr)
    assert not bad, "\n".join(bad)
    assert right > 1100, right


def test_exported_models_pass_the_checker_and_run_the_same_in_onnx_runtime():
    for name, (m, args, first) in models().items():
        m.eval()
        with taper.no_grad():
            want = flat(m(*args))
        for opset in (first, 16, 18, 20, 21):
            data = taper.onnx.export(m, args, opset_version=opset).model_proto
            onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
            run = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
            got = run.run(None, {i.name: a.numpy() for i, a in zip(run.get_inputs(), args)})
            for i, (a, b) in enumerate(zip(got, want)):
                assert np.allclose(np.asarray(a, dtype=np.float64), b.double().numpy(), atol=1e-4, rtol=1e-3, equal_nan=True), (name, opset, i)


def test_sizes_that_may_differ_do_so_in_onnx_runtime():
    for name, axes in (("attention", {0: "batch", 1: "time"}), ("convolutions", {0: "batch"}), ("shapes", {0: "batch"}), ("reductions", {0: "batch"})):
        m, args, _ = models()[name]
        m.eval()
        data = taper.onnx.export(m, args, input_names=["x"], dynamic_axes={"x": axes}).model_proto
        onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
        run = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        x = taper.cat([args[0], args[0].flip(0)])
        with taper.no_grad():
            want = flat(m(x))
        for i, (a, b) in enumerate(zip(run.run(None, {"x": x.numpy()}), want)):
            assert a.shape == tuple(b.shape) and np.allclose(np.asarray(a, dtype=np.float64), b.double().numpy(), atol=1e-4, rtol=1e-3, equal_nan=True), (name, i)


def test_models_that_pytorch_wrote():
    try:
        import torch
    except ImportError:
        raise unittest.SkipTest("PyTorch is not importable")
    import io
    x = torch.randn(2, 3, 16, 16)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                              torch.nn.Flatten(), torch.nn.Linear(8 * 64, 10), torch.nn.LayerNorm(10), torch.nn.GELU()).eval()
    file = io.BytesIO()
    try:
        torch.onnx.export(net, (x,), file, dynamo=False, opset_version=17)
    except Exception as e:  # an exporter without the packages it needs
        raise unittest.SkipTest(f"PyTorch's exporter does not run here: {type(e).__name__}: {e}"[:200])
    model = taper.onnx.load(file.getvalue())
    got = model(taper.from_numpy(x.numpy()))
    assert np.allclose(got.detach().numpy(), net(x).detach().numpy(), atol=1e-5)
    assert {"5.weight", "5.bias", "6.weight"} <= {n for n, _ in model.named_parameters()}  # it folds the batch norm into the convolution
