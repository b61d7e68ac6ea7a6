"""Python operators with the tensor on either side, compared with PyTorch."""
from both import compare


def test_operators_both_sides():
    names = {"x": "x", "i": "i", "b": "b"}
    exprs = []
    for op in ("+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">="):
        for t in "xi":
            for v in ("2", "2.5", "True", "y", "i", "x", "z"):
                exprs += [f"{t} {op} {v}", f"{v} {op} {t}"]
    for op in ("&", "|", "^", "<<", ">>"):
        exprs += [f"i {op} 2", f"2 {op} i", f"i {op} i", f"b {op} b", f"b {op} True", f"True {op} b", f"x {op} 2"]
    exprs += ["-x", "-i", "-b", "~i", "~b", "~x", "abs(i)", "+x", "x @ x", "x @ y", "2 @ x", "x + 'a'", "'a' + x", "[1] * x",
              "None - x", "x ** None", "x / None", "divmod(x, 2)", "round(x)", "x < 'a'", "x == 'a'", "x != None"]
    compare("\n".join(exprs), lambda T: dict(x=T.tensor([[1.5, -2.0], [0.5, 3.0]]), y=T.tensor([2.0, -1.0]),
                                             i=T.tensor([[1, -2], [3, 4]]), b=T.tensor([True, False]), z=T.tensor(3)),
            lambda w, g: w == g or w.replace("'Tensor'", "'torch.Tensor'") == g or w.split(":")[0] == g.split(":")[0] == "TypeError")


def test_inplace_operators():
    env = lambda T: dict(run=lambda op, a, b: exec_inplace(op, a, b), x=T.tensor([1.5, -2.0]), i=T.tensor([1, 2]), b=T.tensor([True, False]))
    compare("\n".join(f"run('{op}=', {a}, {v})" for op in ("+", "-", "*", "/", "//", "%", "**") for a in "xi" for v in ("2", "i", "x", "2.5")), env)
    compare("\n".join(f"run('{op}=', {a}, {v})" for op in ("&", "|", "^", "<<", ">>") for a in "ib" for v in ("1", "i", "b")), env)


def exec_inplace(op, a, b):
    d = {"a": a.clone(), "b": b}
    exec(f"a {op} b", d)
    return d["a"]
