"""Two runs of one program are the same only when more than the values agree: types, layouts, what shares memory with what,
what requires a gradient and where gradients go. describe() turns what a call left behind into plain data, so that runs can be
compared between modes, backends and libraries."""
import math


def tensors(value, path="result", is_tensor=lambda x: hasattr(x, "untyped_storage")):
    """(path, tensor) for every tensor in lists, tuples, dicts; (path, plain value) for the rest."""
    if isinstance(value, (list, tuple)):
        for i, x in enumerate(value):
            yield from tensors(x, f"{path}[{i}]", is_tensor)
    elif isinstance(value, dict):
        for k, x in value.items():
            yield from tensors(x, f"{path}[{k!r}]", is_tensor)
    else:
        yield path, value


def is_tensor(x):
    return hasattr(x, "untyped_storage")


def versions(args):
    return [(x, x._version) for _, x in tensors(args) if is_tensor(x) and not x.is_inference()]


def describe(args, result, before=()):
    """Facts about arguments and results: {path: {fact: value}}. before: versions(args) from before the call."""
    facts, objects, memory = {}, {}, {}
    since = {id(x): v for x, v in before}
    for path, x in [*tensors(args, "args"), *tensors(result)]:
        if not is_tensor(x):
            facts[path] = {"value": x}
            continue
        f = facts[path] = {
            "type": str(x.dtype).split(".")[-1],
            "sizes": tuple(x.shape),
            "strides": x.stride(),
            "offset": x.storage_offset(),
            "requires_grad": x.requires_grad,
            "is_leaf": x.is_leaf,
            "the object first seen as": objects.setdefault(id(x), path),
            "value": x.detach().tolist(),
        }
        if x.numel():
            f["memory first seen as"] = memory.setdefault(x.untyped_storage().data_ptr(), path)
        if id(x) in since:
            f["written"] = x._version != since[id(x)]  # a compiled function writes once what eager writes step by step
    return facts


def gradients(args, result, leaves=()):
    """Backward from every result that requires a gradient, weighed by all results, then what reached the leaves."""
    loss = None
    rest = [x for _, x in tensors(result) if is_tensor(x) and x.dtype.is_floating_point]
    for k, x in enumerate(rest):
        if x.requires_grad:
            part = (x * x * (k + 1)).sum()
            loss = part if loss is None else loss + part
    if loss is None:
        return None
    for x in rest:
        loss = loss * (1 + 0.01 * x.sum())
    loss.backward()
    every = [*leaves, *(x for _, x in tensors([args, result]) if is_tensor(x) and x.is_leaf)]
    return [x.grad.tolist() if x.grad is not None else None for x in every]


def close(a, b, tol):
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(close(x, y, tol) for x, y in zip(a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= tol * max(1, abs(a), abs(b))
    return type(a) is type(b) and a == b


def difference(want, got, tol=1e-5):
    """The first fact in which two descriptions differ, in words; None when they agree."""
    if want.keys() != got.keys():
        return f"results {sorted(want)} against {sorted(got)}"
    for path, facts in want.items():
        for name in facts.keys() | got[path].keys():
            a, b = facts.get(name), got[path].get(name)
            if not (close(a, b, tol) if name == "value" else a == b):
                return f"{path}: {name} {a} against {b}"
    return None


def run(f, make, grads=True):
    """One call of f on fresh arguments: (facts, gradients), or the exception's type and message."""
    args = make()
    leaves = [x for _, x in tensors(args) if is_tensor(x) and x.is_leaf and x.requires_grad]
    for _, x in tensors(args):
        if is_tensor(x) and x.requires_grad and not x.is_leaf:
            x.retain_grad()
    before = versions(args)
    try:
        result = f(*args)
    except Exception as e:
        return type(e).__name__, str(e).splitlines()[0] if str(e) else ""
    facts = describe(args, result, before)
    try:
        reached = gradients(args, result, leaves) if grads else None
    except RuntimeError as e:
        reached = str(e)[:80]
    return facts, reached


def assert_same(want, got, what, tol=1e-5):
    if isinstance(want[0], str) or isinstance(got[0], str):
        assert want[0] == got[0], (what, want, got)
        return
    why = difference(want[0], got[0], tol)
    assert why is None, (what, why)
    assert close(want[1], got[1], max(tol, 1e-4)), (what, "gradients", want[1], got[1])


def check(f, make, backends=("eager", "aot_eager", "inductor"), what=None, grads=True, tol=1e-5, **options):
    """f is the same compiled by each backend as in eager mode, on arguments that make() makes anew each time."""
    import taper
    import taper._dynamo

    want = run(f, make, grads)
    for backend in backends:
        taper._dynamo.reset()
        compiled = taper.compile(f, backend=backend, **options)
        for again in range(2):  # captured, then from the cache of entries
            assert_same(want, run(compiled, make, grads), (what or f.__name__, backend, again), tol)
    return want
