"""Public functions and classes have docstrings with an example, and the examples print what they say."""
import doctest, io, os, sys, types, warnings

import taper
import taper.compiler
from taper import nn
from taper._op_examples import EXAMPLES

MODULES = {"taper": taper, "taper.nn": nn, "taper.optim": taper.optim, "taper.nn.functional": nn.functional, "taper.compiler": taper.compiler}
WITHOUT = {"taper": 0, "taper.nn": 0, "taper.optim": 0, "taper.nn.functional": 0, "taper.compiler": 0}  # at most; fewer is better


def public(module):
    for n in sorted(dir(module)):
        if n.startswith("_") or n in getattr(module, "_SUBMODULES", ()):  # importing taper.torch would change what is printed
            continue
        o = getattr(module, n, None)
        ours = str(getattr(o, "__module__", "") or "taper").startswith(("taper", "builtins"))
        if callable(o) and ours and not isinstance(o, types.ModuleType):
            yield n, o


def text(o):
    return o.__doc__ if isinstance(o.__doc__, str) else ""


def test_every_public_name_has_an_example():
    for name, module in MODULES.items():
        without = [n for n, o in public(module) if ">>>" not in text(o)]
        assert len(without) <= WITHOUT[name], f"{name}: {len(without)} without an example: {' '.join(without)}"


def test_examples_print_what_they_say():
    parser, runner, seen = doctest.DocTestParser(), doctest.DocTestRunner(verbose=False), set()
    out = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, module in MODULES.items():
            for n, o in public(module):
                doc = text(o)
                if ">>>" in doc and doc not in seen:
                    seen.add(doc)
                    test = parser.get_doctest(doc, {"taper": taper, "nn": nn, "F": nn.functional}, f"{name}.{n}", None, None)
                    runner.run(test, out=out.write)
        for name, doc in EXAMPLES.items():
            runner.run(parser.get_doctest(doc, {"taper": taper}, name, None, None), out=out.write)
    assert runner.failures == 0, out.getvalue()[:4000]
    assert runner.tries > 1200, runner.tries


def test_the_examples_of_operators_are_generated():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    sys.path.insert(0, os.path.join(root, "tools"))
    import gendocs_examples
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        new, without = gendocs_examples.text()
    with open(gendocs_examples.OUT) as f:
        assert f.read() == new, "run make docs"
    assert len(without) <= 12, without
    assert ">>> taper.sin(x)" in taper.sin.__doc__ and ">>> taper.sin(x)" in taper.Tensor.sin.__doc__
    assert ">>> taper.nn.functional.gelu(x)" in nn.functional.gelu.__doc__


def test_a_name_that_is_listed_but_absent_is_not_suggested():
    try:
        taper.quasirandom
    except AttributeError as e:
        assert "did you mean 'quasirandom'" not in str(e), e
