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


@reason("Random numbers: Taper's generator is its own (docs/autograd.md); only Taper's ways are compared on draws, eager ones counted as kernels draw (worker.py).")
def draws(d, a, b, text):
    return crossing(a, b) and bool(DRAWS.search(text)) and d["kind"] in ("value", "python value", "printed", "exception", "line", "structure")


@reason("A second backward is refused where the first freed something that was saved. PyTorch also saves numbers as tensors; Taper does not.")
def freed_numbers(d, a, b, text):
    return crossing(a, b) and d["kind"] in ("exception", "line") and "backward through the graph a second time" in str(d["b"])


@reason("Addresses: whether freed memory is used again is nobody's promise.")
def addresses(d, a, b, text):
    return d["kind"] in ("printed",) and "data_ptr" in text


@reason("Strides of a dimension of size 1, and strides and offsets of tensors without elements, reach no memory; which ones an operator leaves there is nobody's promise.")
def idle_strides(d, a, b, text):
    if d["kind"] == "offset" and 0 in (d.get("shape") or ()):
        return True
    return d["kind"] == "stride" and d.get("shape") is not None and d["a"] is not None and d["b"] is not None and (
        0 in d["shape"] or all(x == y or s == 1 for x, y, s in zip(d["a"], d["b"], d["shape"])))


FUNCTIONAL = ("aot_eager", "decomp", "inductor", "interpreter", "avx2", "base", "c")


def functional(way):
    """A way that turns writes into values (src/aot)."""
    return way.split()[1] in FUNCTIONAL and way.startswith("taper")


TAPE = ("modified by an inplace operation", "is a view and is being modified inplace", "refer to a single memory location", "refers to a single memory location", "view was created in no_grad mode", "is a view and its base or another view of its base has been modified inplace", "Inplace update to inference tensor outside",
        "a view of a leaf Variable that requires grad is being used")
LEAF = ("leaf Variable that requires grad is being used in an in-place",)  # a write may be refused for two reasons: which one is named first is open


@reason("Checks that protect the eager tape and overlapping memory are not needed where writes became values: the graph computes what the lines say. "
        "PyTorch's aot_eager does the same.")
def tape_checks(d, a, b, text):
    return compiled(a, b) and functional(b) and d["kind"] in ("exception", "message", "line", "structure") and any(m in str(d["a"]) for m in TAPE) or \
        compiled(a, b) and d["kind"] == "message" and all(any(m in str(x) for m in TAPE + LEAF) for x in (d["a"], d["b"]))


@reason("A statement that is wrong in two ways is refused for one of them: PyTorch looks at the history of views first, Taper at shapes.")
def two_refusals(d, a, b, text):
    lines = [re.match(r"\w+ at line (\d+): ", str(x)) for x in (d["a"], d["b"])]
    return crossing(a, b) and d["kind"] == "exception" and all(lines) and lines[0][1] == lines[1][1] and any(m in str(d["b"]) for m in TAPE)


@reason("A leaf that a compiled graph takes and does not need gets a gradient of zeros where the tape of eager execution never reaches it. PyTorch's aot_eager does the same.")
def zeros_for_none(d, a, b, text):
    if crossing(a, b) and d["kind"] == "structure" and d.get("zeros") and ".second." in d["at"]:
        return True  # PyTorch computes zeros where a formula does not depend on the leaf; Taper has no step there
    return compiled(a, b) and functional(b) and d["kind"] in ("structure", "grad") and bool(d.get("zeros")) and (".items[" in d["at"] or d["kind"] == "grad" or "double=True" in text)


@reason("PyTorch has written already when it refuses a write into an inference tensor; Taper refuses first.")
def refused_writes(d, a, b, text):
    return crossing(a, b) and d["kind"] in ("value", "written", "shape", "stride", "offset", "alias") and "inference_mode" in text


@reason("Gradients of gradients, and hooks on an input that the graph has written, run a compiled graph again; where the graph, or the program after it, writes to its inputs Taper says that it cannot. PyTorch's compiled functions have no double backward at all.")
def double_backward(d, a, b, text):
    again = "runs a compiled function's graph again" in str(d["b"])
    return compiled(a, b) and (again or "double=True" in text and functional(b) and "modified by an inplace operation" in str(d["b"]))


@reason("A compiled backward bypasses the views of inputs that the function returned: a gradient with respect to one, or a hook on it, is refused. PyTorch's aot_eager gives None.")
def bypassed_views(d, a, b, text):
    return compiled(a, b) and functional(b) and d["kind"] in ("exception", "line", "message") and "with respect to a view of an input that a compiled function" in str(d["b"])


@reason("The layout of a gradient is that of the formula's first operand; formulas are Taper's own. A leaf's .grad has the leaf's layout in both.")
def gradient_layout(d, a, b, text):
    if crossing(a, b) and "jacfwd(" in text and (d["kind"] == "stride" or "Can't detach views in-place" in str(d["b"])):
        return True  # a matrix by rows in Taper; PyTorch's is a transposed view of one by columns
    if crossing(a, b) and d["kind"] == "offset" and ".grads." in d["at"] and "as_strided(" in text:
        return True
    return (crossing(a, b) or functional(b)) and d["kind"] == "stride" and (".first." in d["at"] or ".second." in d["at"]) and 0 not in (d["a"] or [0])


@reason("Errors of a backward name the step: a compiled graph is one step.")
def names_of_steps(d, a, b, text):
    return compiled(a, b) and d["kind"] == "message" and "CompiledFunctionBackward" in str(d["b"])


@reason("In PyTorch .data and .detach() of an inference tensor may be written outside inference mode; Taper keeps the rule for them too.")
def inference_aliases(d, a, b, text):
    return crossing(a, b) and d["kind"] in ("exception", "line") and "Inplace update to inference tensor" in str(d["a"])


@reason("PyTorch's own limits: torch.cond compiles in eager code, too, a second derivative of half precision may fail inside, torch.func takes no saved tensor hooks, index_fill_ of nothing names the storage, autocast joins no float16 on CPUs, vmap over nothing looks for its first element, MKL takes no empty transforms.")
def failures_of_pytorch(d, a, b, text):
    if crossing(a, b) and d["kind"] == "structure" and "torch.cond(" in text and "double=True" in text and "'second'" in str(d["a"]):
        return True  # no second derivative
    return crossing(a, b) and d["kind"] in ("exception", "line") and any(m in str(d["b"]) for m in ("Dynamo", "Unsupported", "UncapturedHigherOrderOpError", "invalid python storage", "derivative for '_cdist_backward'", "yet support saved tensor hooks", "setStorage: sizes", "Unexpected floating ScalarType in at::autocast", "index 0 out of range for tensor of size [0", "MKL FFT error"))


@reason("The partitioner may keep an input and compute from it again where eager keeps a result; a write to that input after the graph (behind a break, or by the caller) is then refused in the backward. "
        "So is one to a result whose value is kept, where a graph behind the write passes zeros on to it. "
        "PyTorch's partitioner does the same.")
def kept_inputs(d, a, b, text):
    keeps = functional(b) and (b != "taper aot_eager" or re.search(r"\w_\(", text)) or compiled(a, b) and "checkpoint(" in text  # what is checkpointed keeps its inputs
    return compiled(a, b) and keeps and d["kind"] == "exception" and "no exception" in str(d["a"]) and "modified by an inplace operation" in str(d["b"])


@reason("copy_ of a number is fill_ in Taper, and writes of a view over another one go through a copy: PyTorch refuses both where memory is shared.")
def shared_copies(d, a, b, text):
    passed = d["kind"] in ("exception", "line")  # a later line may refuse, for whatever reason
    return crossing(a, b) and passed and "to a single memory location" in str(d["b"]) and re.search(r"\.copy_\(|\] = ", text) is not None


@reason("Where PyTorch keeps a tensor for its size alone (gather, index_select, expand), a later write makes its backward refuse; Taper keeps the size.")
def sizes_kept(d, a, b, text):
    return crossing(a, b) and d["kind"] == "exception" and "no exception" in str(d["a"]) and "modified by an inplace operation" in str(d["b"])


@reason("PyTorch refuses to look at the history of a view that a custom Function returned and whose base was written since; Taper shows it as it was.")
def old_views(d, a, b, text):
    return crossing(a, b) and d["kind"] == "structure" and "unshown" in str(d["b"]) and "is a view and its base or another view of its base has been modified" in str(d["b"])


@reason("vmap calls the function once for each element and stacks the results (docs/autograd.md): it is seen in side effects and in the layout. PyTorch calls it once.")
def elements(d, a, b, text):
    return crossing(a, b) and "vmap(" in text and d["kind"] in ("structure", "stride", "printed", "alias")


@reason("A compiled graph is one step of the tape: backward through one of its results frees what another one needs. PyTorch's aot_eager does the same.")
def freed_together(d, a, b, text):
    return compiled(a, b) and functional(b) and d["kind"] in ("exception", "line") and "no exception" in str(d["a"]) and "backward through the graph a second time" in str(d["b"])


CHANGED = re.compile(r"saved_tensors_hooks\(.*lambda t: t (\+ 1|\* 2)")


@reason("Hooks that change what was saved: a compiled graph saves other values than the steps of eager execution do, and Taper's formulas others than PyTorch's. "
        "PyTorch's aot_eager does the same.")
def saved_values(d, a, b, text):
    if CHANGED.search(text) and crossing(a, b):
        return d["kind"] == "exception" or d["kind"] == "value" and re.search(r"\.(grads|first|second)\.|\.grad$", d["at"]) is not None
    if CHANGED.search(text) and d["kind"] == "value" and "torch.optim." in text and re.fullmatch(r"\d+\.[abc]0?", d["at"]):  # a leaf that was stepped by them
        return True
    return compiled(a, b) and (functional(b) or "checkpoint(" in text) and "saved_tensors_hooks(" in text and (
        d["kind"] == "value" and (".grads." in d["at"] or ".first." in d["at"] or ".second." in d["at"] or ".grad" in d["at"]) or d["kind"] in ("message", "exception") and "lambda t: t + 1" in text)


@reason("An index that hooks have changed is out of bounds: which one is named first depends on the kernel.")
def changed_indices(d, a, b, text):
    return bool(CHANGED.search(text)) and d["kind"] == "message" and all("is out of bounds" in str(x) for x in (d["a"], d["b"]))


@reason("Which of several equal values topk, kthvalue, mode and median of PyTorch choose is open; Taper takes the first. It shows in indices and gradients.")
def equal_values(d, a, b, text):
    return crossing(a, b) and d["kind"] == "value" and re.search(r"\.(topk|kthvalue|mode|median)\(", text) is not None and re.search(r"\.(grads|first|second)\.|\.grad$", d["at"]) is not None


@reason("Taper computes more types than PyTorch's kernels do: half precision and integers where the formula allows them.")
def more_types(d, a, b, text):
    refused = re.match(r"(NotImplementedError|RuntimeError) at line \d+: \"\w+\" not implemented for", str(d["b"]))
    return crossing(a, b) and d["kind"] == "exception" and refused is not None


@reason("Taper has no complex32: float16 with a complex number is complex64.")
def no_complex_half(d, a, b, text):
    return crossing(a, b) and d["kind"] == "dtype" and "1j" in text and d["a"] == "float32" and d["b"] == "float16"


@reason("A write that reads other elements of the memory that it writes: PyTorch does it in the order of its loops, Taper as if it read all of them first.")
def reads_while_writing(d, a, b, text):
    part = any(re.search(rf"\b{m[2]} = {m[1]}(\[|\.)", text) for m in re.finditer(r"\b(\w+)(?:\.(?:mul|add|sub|div)_\(| [-+*/]= )(\w+)\)?", text))
    return crossing(a, b) and d["kind"] == "value" and part and "grads(" not in text


@reason("Half precision in decompositions of matrices: both refuse it, with classes of their own.")
def half_matrices(d, a, b, text):
    return crossing(a, b) and d["kind"] == "exception" and "Low precision dtypes not supported" in str(d["a"]) and "not implemented for" in str(d["b"])


@reason("A tensor's counter of writes belongs to its storage in Taper: set_() and .data = give it another one.")
def other_storage(d, a, b, text):
    return crossing(a, b) and d["kind"] == "written" and (".set_(" in text or ".data = " in text)


@reason("prod whose intermediate products leave the range: whether a zero or an infinity comes first depends on the order of the factors, which is that of the lanes.")
def order_of_factors(d, a, b, text):
    return d["kind"] == "value" and "prod(" in text and re.search(r"nan|inf", f"{d['a']} {d['b']}") is not None


@reason("A second backward: one inside the function is part of the compiled graph, and frees nothing that a backward from its results needs.")
def freed_inside(d, a, b, text):
    inside = functional(b) or ".backward(" in text or "autograd.grad(" in text  # captured for backend eager, too
    return compiled(a, b) and inside and d["kind"] == "exception" and "no exception" in str(d["b"]) and "backward through the graph a second time" in str(d["a"])


ITSELF = re.compile(r"\b(\w+)\.(scatter_|scatter_add_|scatter_reduce_|index_add_|index_copy_|index_put_|put_|index_reduce_)\(.*\b\1\b")


@reason("A write that reads the tensor that it writes is refused in eager code and computed where writes became values, also inside of a handler.")
def refused_inside_a_handler(d, a, b, text):
    return d["kind"] in ("exception", "message") and compiled(a, b) and functional(b) and bool(ITSELF.search(text)) and re.search(r"except|suppress\(|__exit__", text) is not None


@reason("PyTorch's select_scatter, slice_scatter and diagonal_scatter copy the whole memory of their operand and begin where it does; Taper's results begin at 0.")
def scattered_offsets(d, a, b, text):
    return crossing(a, b) and d["kind"] == "offset" and "_scatter(" in text and d["a"] == 0


@reason("A backward that fails has added to some gradients before: to which depends on the order of steps that do not depend on one another.")
def half_a_backward(d, a, b, text):
    return crossing(a, b) and d["kind"] in ("value", "structure") and d["at"].endswith(".grad") and "grads(" in text and re.search(r"//|floor_divide|unique|heaviside", text) is not None


@reason("PyTorch refuses a saved tensor that was detached in place since; Taper has kept its history.")
def detached_since(d, a, b, text):
    return crossing(a, b) and d["kind"] in ("exception", "line") and "saved tensor that has been detached in-place" in str(d["b"])


@reason("Backend eager: a line fails behind a write that went onto the tape, which cannot be taken back: the lines before it are not run again, and what they did to Python objects is not seen.")
def effects_before_a_failure(d, a, b, text):
    return compiled(a, b) and b == "taper eager" and d["kind"] in ("structure", "python value", "printed") and "LOG" in d["at"] and "requires_grad_()" in text and re.search(r"\w_\(| [-+*/]= ", text) is not None


@reason("as_strided beyond memory of symbolic size is noticed where its elements are used.")
def unused_as_strided(d, a, b, text):
    return compiled(a, b) and "dynamic=True" in text and d["kind"] in ("exception", "line") and "setStorage: sizes" in str(d["a"])


@reason("A derivative that neither has: PyTorch's class depends on how its formula was left out.")
def no_derivative(d, a, b, text):
    return crossing(a, b) and d["kind"] == "exception" and all(re.search(r"derivative for .* is not implemented", str(x)) for x in (d["a"], d["b"]))


@reason("Whether a result without elements is a view of its operand reaches no memory.")
def views_of_nothing(d, a, b, text):
    return crossing(a, b) and d["kind"] == "written" and 0 in (d.get("shape") or ())


@reason("A value that a graph made and wrote comes out of it written: its counter begins there. PyTorch's aot_eager does the same.")
def counters_of_results(d, a, b, text):
    return compiled(a, b) and functional(b) and "._version > 0" in text and d["kind"] == "python value" and {str(d["a"]), str(d["b"])} == {"True", "False"}


@reason("torch.func of inference tensors: PyTorch's transforms wrap them in tensors of their own, Taper's use the tape.")
def transforms_of_inference_tensors(d, a, b, text):
    return crossing(a, b) and d["kind"] in ("exception", "line") and "torch.func." in text and "Inference tensors cannot be saved" in str(d["a"])
