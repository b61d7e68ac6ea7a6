"""Two ways of running one program: where do they disagree, and is it more than rounding?

disagreements(a, b) gives dicts with the kind (value, dtype, shape, stride, offset, requires_grad, leaf, fn, inference,
storage, identity, written, structure, exception, line, message, printed, state, crash) and the place of the difference."""
import math

TOL = {"float64": 1e-9, "float32": 5e-5, "float16": 6e-3, "bfloat16": 5e-2}
FLAGS = ("dtype", "type", "shape", "stride", "offset", "requires_grad", "leaf", "inference", "fn", "written")
NAMES = {"storage": "alias", "is": "identity"}


def near(a, b, tol):
    if isinstance(a, bool) or isinstance(b, bool) or isinstance(a, int) and isinstance(b, int):
        return a == b
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return a == b
    return abs(a - b) <= tol * (1 + max(abs(a), abs(b)))


def all_zeros(x):
    """Nothing, or tensors of zeros only."""
    if isinstance(x, dict) and "values" in x:
        return not any(x["values"])
    if isinstance(x, (dict, list)):
        return all(all_zeros(v) for k, v in (x.items() if isinstance(x, dict) else enumerate(x)) if k != "kind")
    return x is None


class Judge:
    def __init__(self, exact_message=True, coarse=None):
        self.out, self.exact_message, self.coarse = [], exact_message, coarse

    def note(self, kind, at, a, b, **more):
        self.out.append({"kind": kind, "at": at, "a": a, "b": b, **more})

    def tensor(self, a, b, at):
        if ("shape" in a) != ("shape" in b):  # one of them could not be looked at
            return self.note("structure", at, brief(a), brief(b))
        for k in FLAGS:
            if a.get(k) != b.get(k):
                self.note(k, at, a.get(k), b.get(k), shape=a["shape"])
        for k in ("storage", "is"):
            if a.get(k) != b.get(k):
                self.note(NAMES[k], at, a.get(k), b.get(k))
        if a["shape"] == b["shape"] and a["dtype"] == b["dtype"]:
            tol = self.coarse or TOL.get(a["dtype"], 0)
            if not all(near(x, y, tol) for x, y in zip(a["values"], b["values"])):
                self.note("value", at, a["values"], b["values"])
        if ("grad" in a) != ("grad" in b):
            self.note("grad", at, "grad" in a, "grad" in b, zeros=not any((a.get("grad") or b.get("grad"))["values"]))
        elif "grad" in a:
            self.thing(a["grad"], b["grad"], at + ".grad")

    def thing(self, a, b, at):
        if isinstance(a, dict) and isinstance(b, dict):
            if "dtype" in a and "dtype" in b and ("shape" in a or "shape" in b):  # and not the fields of an object
                return self.tensor(a, b, at)
            if isinstance(a.get("float"), float) and isinstance(b.get("float"), float):
                return None if near(float(a["float"]), float(b["float"]), 1e-4) else self.note("value", at, a, b)
            if "unshown" in a and "unshown" in b:
                return None
            if sorted(a) != sorted(b):
                return self.note("structure", at, brief(a), brief(b), zeros=all_zeros(a.get("show")) and all_zeros(b.get("show")))
            for k in a:
                self.thing(a[k], b[k], f"{at}.{k}")
            return None
        if isinstance(a, list) and isinstance(b, list):
            if len(a) != len(b):
                return self.note("structure", at, f"{len(a)} items", f"{len(b)} items")
            for i, (x, y) in enumerate(zip(a, b)):
                self.thing(x, y, f"{at}[{i}]")
            return None
        if type(a) is not type(b) or a != b:
            zeros = [x is None or isinstance(x, dict) and not any(x.get("values", [1])) for x in (a, b)]
            self.note("structure" if isinstance(a, (dict, list)) or isinstance(b, (dict, list)) else "python value", at, brief(a), brief(b), zeros=all(zeros))

    def records(self, a, b):
        for i, (x, y) in enumerate(zip(a, b)):
            if ("exception" in x) != ("exception" in y):
                return self.note("exception", str(i), raised(x), raised(y))
            if "exception" in x:
                if x["exception"].lstrip("_") != y["exception"].lstrip("_"):  # torch._C._LinAlgError is torch.linalg.LinAlgError
                    return self.note("exception", str(i), raised(x), raised(y))
                if x["line"] != y["line"]:
                    self.note("line", str(i), raised(x), raised(y))
                if self.exact_message and opening(x["message"]) != opening(y["message"]):
                    self.note("message", str(i), raised(x), raised(y))
            elif "show" in x and "show" in y:
                self.thing(x["show"], y["show"], str(i))
            elif "state" in x and "state" in y:
                if x["state"] != y["state"]:
                    self.note("state", str(i), x["state"], y["state"])
            elif "printed" in x and "printed" in y:
                if x["printed"] != y["printed"]:
                    self.note("printed", str(i), x["printed"], y["printed"])
            else:
                return self.note("structure", str(i), brief(x), brief(y))
        if len(a) != len(b):
            self.note("structure", "end", len(a), len(b))


def brief(x):
    s = repr(x)
    return s if len(s) < 160 else s[:160] + "..."


def opening(message):
    """The part of a message that all ways must share: a compiled one goes on with the node and the line."""
    return message.split("\n")[0][:60]


def raised(x):
    return f"{x['exception']} at line {x['line']}: {x['message'][:200]}" if "exception" in x else "no exception, " + next(iter(x))


def disagreements(a, b, exact_message=True, coarse=None):
    if "crash" in a or "crash" in b:
        if a.get("crash") == b.get("crash"):
            return []
        return [{"kind": "crash", "at": "", "a": a.get("crash"), "b": b.get("crash"), "stderr": (b.get("stderr") or a.get("stderr") or "")[-600:]}]
    j = Judge(exact_message, coarse)
    j.records(a["seen"], b["seen"])
    return j.out


def error(a, truth, at_kinds=("value",)):
    """The largest relative difference of values of a from those of truth, where both have them."""
    worst = 0.0

    def walk(x, y):
        nonlocal worst
        if isinstance(x, dict) and isinstance(y, dict):
            if "values" in x and "values" in y:
                for p, q in zip(x["values"], y["values"]):
                    p, q = float(p), float(q)
                    if math.isfinite(p) and math.isfinite(q):
                        worst = max(worst, abs(p - q) / (1 + abs(q)))
                    elif not (math.isnan(p) and math.isnan(q)) and p != q:
                        worst = max(worst, 0.0 if math.isinf(p) and abs(q) > 6e4 else math.inf)
            for k in x:
                if k in y and k != "values":
                    walk(x[k], y[k])
        elif isinstance(x, list) and isinstance(y, list):
            for p, q in zip(x, y):
                walk(p, q)
    walk(a["seen"], truth["seen"])
    return worst


def rounding_only(found, a, b, truth, dtypes_tol):
    """All differences are values, and b is about as near to the float64 run as a is."""
    if not found or any(d["kind"] != "value" for d in found) or "seen" not in truth or "seen" not in a or "seen" not in b:
        return False
    ea, eb = error(a, truth), error(b, truth)
    return math.isfinite(eb) and eb <= 4 * ea + dtypes_tol
