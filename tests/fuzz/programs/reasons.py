"""Disagreements that are accepted, each with a sentence and a predicate.

A predicate sees one disagreement (judge.py), the two ways ("taper plain", "taper inductor", "torch plain", ...), and the text of
the program. The first entry that answers yes explains it. An entry says what differs and where that is documented; none may
explain a wrong value in general."""
import re

REASONS = []


def reason(sentence):
    def add(predicate):
        REASONS.append((sentence, predicate))
        return predicate
    return add


def explained(d, a, b, text):
    for sentence, predicate in REASONS:
        if predicate(d, a, b, text):
            return sentence
    return None


def compiled(a, b):
    """One Taper way against another."""
    return a.startswith("taper") and b.startswith("taper")


def crossing(a, b):
    """Taper against PyTorch."""
    return a.startswith("taper") != b.startswith("taper")


DRAWS = re.compile(r"torch\.(rand|randn|rand_like|bernoulli)\(|uniform_\(\)|dropout\([^)]*0\.5\)")


@reason("Random numbers: Taper's generator is its own (docs/autograd.md); only Taper's ways are compared on draws.")
def draws(d, a, b, text):
    return crossing(a, b) and bool(DRAWS.search(text)) and d["kind"] in ("value", "python value", "printed", "exception", "line", "structure")


@reason("Addresses: whether freed memory is used again is nobody's promise.")
def addresses(d, a, b, text):
    return d["kind"] in ("printed",) and "data_ptr" in text


@reason("Strides of a dimension of size 1, and of tensors without elements, reach no memory; PyTorch's depend on the operator that made them.")
def idle_strides(d, a, b, text):
    return crossing(a, b) and d["kind"] == "stride" and d.get("shape") is not None and d["a"] is not None and d["b"] is not None and (
        0 in d["shape"] or all(x == y or s == 1 for x, y, s in zip(d["a"], d["b"], d["shape"])))
