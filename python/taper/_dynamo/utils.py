"""Counters and helpers."""
import collections

from .. import _C

counters = collections.defaultdict(collections.Counter)


def istype(obj, allowed):
    if isinstance(allowed, (tuple, list, set)):
        return type(obj) in allowed
    return type(obj) is allowed


def counts():
    return {k: dict(v) for k, v in counters.items()}


# --- comparing results -------------------------------------------------------------------------------------------
_ATTRIBUTE_CLASSES = ("MaskedLMOutput", "Seq2SeqLMOutput", "CausalLMOutputWithCrossAttentions", "LongformerMaskedLMOutput", "Instances",
                      "SquashedNormal", "Boxes", "Normal", "TanhTransform", "Foo", "Variable")


def _log_error(msg, *args):
    import logging
    logging.getLogger("taper._dynamo.utils").error(msg, *args)


def _tensor(v, like=None):
    from .. import float64, tensor
    if isinstance(v, float):
        return tensor(v, dtype=like.dtype if like is not None and not isinstance(like, float) else float64)
    if type(v).__module__ == "numpy" and type(v).__name__ == "ndarray":
        from .. import from_numpy
        return from_numpy(v)
    return v


def same(ref, res, fp64_ref=None, cos_similarity=False, tol=1e-4, equal_nan=False, exact_dtype=True, relax_numpy_equality=False,
         ignore_non_fp=False, log_error=_log_error, use_larger_multiplier_for_smaller_tensor=False, force_max_multiplier=False,
         use_iou_for_bool=False, iou_threshold=0.99):
    """Whether two results agree: close to each other, or as near to a float64 reference as the first one is.

    Containers are compared item by item. What differs is said through log_error."""
    from .. import Tensor, _C
    from collections import deque
    if fp64_ref is None:
        fp64_ref = ref
    knobs = dict(cos_similarity=cos_similarity, tol=tol, equal_nan=equal_nan, exact_dtype=exact_dtype, relax_numpy_equality=relax_numpy_equality,
                 ignore_non_fp=ignore_non_fp, log_error=log_error, force_max_multiplier=force_max_multiplier, use_iou_for_bool=use_iou_for_bool,
                 use_larger_multiplier_for_smaller_tensor=use_larger_multiplier_for_smaller_tensor, iou_threshold=iou_threshold)
    kind = type(ref)
    numpy_kind = kind.__module__ == "numpy"
    if isinstance(ref, (list, tuple, deque)) or kind.__name__ == "ParameterList":
        assert isinstance(res, (list, tuple, deque)) or type(res).__name__ == "ParameterList", f"type mismatch {kind} {type(res)}"
        ref, res = list(ref), list(res)
        fp64_ref = list(fp64_ref) if isinstance(fp64_ref, (list, tuple, deque)) or type(fp64_ref).__name__ == "ParameterList" else ref
        if len(ref) != len(res):
            log_error("Length mismatch")
            return False
        return all(same(a, b, c, **knobs) for a, b, c in zip(ref, res, fp64_ref))
    if kind.__name__ == "QuestionAnsweringModelOutput":
        return same(ref.loss, res.loss, fp64_ref.loss, **knobs)
    if isinstance(ref, dict):
        assert isinstance(res, dict)
        assert set(ref) == set(res), f"keys mismatch {sorted(map(str, ref))} == {sorted(map(str, res))}"
        for k in sorted(ref, key=str):
            if not same(ref[k], res[k], fp64_ref[k], **knobs):
                log_error("Accuracy failed for key name %s", k)
                return False
        return True
    if isinstance(ref, set):
        assert isinstance(res, set)
        assert set(ref) == set(res), f"elements mismatch {set(ref)} == {set(res)}"
        return True
    if isinstance(ref, (Tensor, float)) or (numpy_kind and kind.__name__ == "ndarray"):
        if not isinstance(res, (Tensor, float)) and type(res).__name__ != "ndarray":
            log_error("type mismatch %s, %s", kind.__name__, type(res).__name__)
            return False
        ref, fp64_ref = _tensor(ref, res), _tensor(fp64_ref, res)
        res = _tensor(res, ref)
        if any(t._is_fake() for t in (ref, res)):
            raise AssertionError("same() needs tensors with data, not fake ones")
        if not exact_dtype:
            ref = ref.to(res.dtype)
        why = _C._acc_same(ref, res, fp64_ref, tol, equal_nan, ignore_non_fp, not exact_dtype, use_larger_multiplier_for_smaller_tensor,
                           force_max_multiplier, cos_similarity, iou_threshold if use_iou_for_bool else 0.0)
        if why is not None:
            log_error("%s", why)
        return why is None
    if isinstance(ref, (str, int, type(None), bool, _C.device)):
        if ignore_non_fp:
            return True
        ok = ref == res
        if not ok:
            log_error("Accuracy failed (%s): %s != %s", kind, ref, res)
        return ok
    if numpy_kind:
        return ref == res if relax_numpy_equality else type(ref) is type(res) and ref == res
    if kind.__name__ in _ATTRIBUTE_CLASSES:
        assert type(ref) is type(res)
        return all(same(getattr(ref, k), getattr(res, k), getattr(fp64_ref, k), **knobs) for k in ref.__dict__)
    raise RuntimeError(f"unsupported type: {kind.__name__}")


def bitwise_same(ref, res, equal_nan=False):
    return same(ref, res, tol=0.0, equal_nan=equal_nan)


def rmse(ref, res):
    """Root mean squared error."""
    from .. import sqrt
    return sqrt(((ref - res) ** 2).mean())


def clone_input(x, *, dtype=None):
    """A copy with the same strides and the same alignment; a gradient comes along."""
    from .. import Tensor, empty, no_grad
    if not isinstance(x, Tensor) or x._is_fake():
        return x
    with no_grad():
        if any(n > 1 and s == 0 for n, s in zip(x.shape, x.stride())):
            out = x.detach().clone()  # overlapping memory cannot be written element by element
        else:
            size = x.element_size()
            room = sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1 if x.numel() else 0
            buf = empty(room + 32, dtype=dtype or x.dtype)
            at = next((i for i in range(32) if (buf.data_ptr() + i * size - x.data_ptr()) % 32 == 0), 0)
            out = buf.as_strided(x.shape, x.stride(), at).detach()
            out.copy_(x.detach())
    out.requires_grad_(x.requires_grad and x.is_leaf) if out.dtype.is_floating_point else out
    if x.is_leaf and x.grad is not None:
        out.grad = clone_input(x.grad, dtype=dtype)
    return out


def clone_inputs(example_inputs):
    """A copy of each tensor of a list or dict; everything else as it is."""
    if isinstance(example_inputs, dict):
        return {k: clone_inputs(v) if isinstance(v, (list, tuple, dict)) else clone_input(v) for k, v in example_inputs.items()}
    return [clone_inputs(v) if isinstance(v, (list, tuple, dict)) else clone_input(v) for v in example_inputs]


# --- the recompilation profiler ----------------------------------------------------------------------------------
_contexts = []


def _recompile_contexts():
    import json
    return json.dumps(sorted({hook()[:256] for hook in _contexts}))


def register_hook_for_recompile_user_context(hook):
    """hook() is called when a function is compiled again. It returns a text that says where the program is, such as the epoch of
    training; the first 256 characters of it stand in recompile_user_contexts of that compile's metrics."""
    if not callable(hook):
        raise TypeError(f"register_hook_for_recompile_user_context takes a function, not a {type(hook).__name__}")
    _contexts.append(hook)
    _C._recompile_contexts(_recompile_contexts)


def reset_recompile_user_contexts():
    """Forget the hooks."""
    _contexts.clear()
    _C._recompile_contexts(None)


class CompilationProfiler:
    """A backend that only watches: it runs graphs as they are and remembers every graph break and every guard failure.

        prof = CompilationProfiler()
        with taper._dynamo.optimize(prof):   # or taper.compile(fn, backend=prof)
            my_model()
        print(prof.report())

    No failure is lost: the limit on recompiles does not count while the profiler is there. Statistics add up until read."""

    def __init__(self):
        self.frame_count = self.op_count = 0
        self._breaks, self._failures = collections.Counter(), collections.OrderedDict()
        self.backend_ctx_ctor = None
        self._last = None
        from . import config
        self._config = config
        self._limit = config.cache_size_limit
        config.cache_size_limit = max(self._limit, 1 << 20)
        self._base = collections.Counter(counters["graph_break"])
        self._seen = len(self._records())

    def _records(self):
        import json
        from .. import _C
        return [json.loads(t) for t in _C._capture_metrics()[0]]

    def __call__(self, gm, example_inputs):
        self.frame_count += 1
        self.op_count += sum(1 for n in gm.graph.nodes if n.op.startswith("call"))
        return gm.forward

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()
        return False

    def close(self):
        """Give the limit on recompiles its old value back."""
        if self._limit is not None:
            self._config.cache_size_limit = self._limit
            self._limit = None

    def __del__(self):
        try:
            self.close()
        except Exception:
            pass

    def graph_breaks(self):
        """{reason: count}"""
        now = counters["graph_break"]
        return {k: n - self._base[k] for k, n in now.items() if n > self._base[k]}

    def recompiles(self):
        """{(function, file, line): [reasons of its recompiles]}"""
        out = collections.OrderedDict()
        for c in self._records()[self._seen:]:
            if not c["recompile_reason"]:
                continue
            out.setdefault((c["co_name"], c["co_filename"], c["co_firstlineno"]), []).append(c["recompile_reason"])
        return out

    def report(self):
        import os
        title = "Torchdynamo Profiler Report"
        out = [title, "=" * len(title), "", "Graph Breaks", "------------"]
        breaks = self.graph_breaks()
        if breaks:
            out += ["Graph breaks happen when something cannot be captured: the graph ends there and a new one begins.", "",
                    *_table(("Graph Break Reason", "Count"), sorted(breaks.items(), key=lambda kv: -kv[1]))]
        else:
            out.append("No graph breaks detected.")
        out += ["", "Recompilation", "-------------"]
        again = self.recompiles()
        if again:
            rows = []
            for (name, file, line), reasons in again.items():
                rows.append((f"'{name}' ({os.path.basename(file)}:{line})", len(reasons), reasons[0]))
                rows += [("", "", r) for r in reasons[1:]]
            most = max(len(r) for r in again.values())
            out += ["These functions were compiled again because a guard failed.", "", *_table(("Function", "Recompiles", "Recompile Reasons"), rows),
                    "", f"Set config.cache_size_limit to {most + 1} or more to keep every variant, or remove the cause of the failures."]
        else:
            out.append("No recompilation detected.")
        return "\n".join(out) + "\n"


CompileProfiler = CompilationProfiler


def _table(head, rows):
    rows = [tuple(map(str, r)) for r in rows]
    width = [max(len(r[i]) for r in [head, *rows]) for i in range(len(head))]

    def line(r):
        return "  ".join(c.ljust(w) for c, w in zip(r, width)).rstrip()
    return [line(head), line(tuple("-" * w for w in width)), *map(line, rows)]


def is_compile_supported(device_type):
    """Whether functions on this kind of device can be compiled."""
    return device_type == "cpu"
