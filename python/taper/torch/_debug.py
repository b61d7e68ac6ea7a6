"""debug(): stands around any backend of torch.compile, checks each graph and saves what fails."""
import os
import sys
import threading

import torch
import torch._dynamo
from . import _case, _compare, _graph

_lock = threading.Lock()
_count = {}
_found = []  # folders of this process


class AccuracyError(RuntimeError):
    """A compiled graph gives other values than eager PyTorch. folder: where it was saved."""

    folder = None


def saved():
    """Folders of the failures that were saved in this process."""
    return list(_found)


def _name(kind):
    with _lock:
        n = _count[kind] = _count.get(kind, -1) + 1
    return f"{kind}_{n}"


def _real(inputs):
    """Inputs with data: a fake one gets random numbers, a symbolic number its hint."""
    out, g = [], torch.Generator().manual_seed(0)
    for x in inputs:
        if isinstance(x, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            x = x.node.hint
        elif isinstance(x, torch._subclasses.FakeTensor):
            with torch.utils._python_dispatch._disable_current_modes():
                hint = lambda v: v.node.hint if isinstance(v, torch.SymInt) else int(v)
                y = torch.empty_strided([hint(d) for d in x.shape], [hint(d) for d in x.stride()], dtype=x.dtype, device=x.device)
                if x.dtype.is_floating_point:
                    y.copy_(torch.randn(y.shape, generator=g))
                else:
                    y.zero_()
                x = y.requires_grad_(x.requires_grad) if x.requires_grad else y
        out.append(x)
    return out


class _Watch:
    """One compiled graph."""

    def __init__(self, owner, kind, gm, examples, compile_graph):
        self.owner, self.name, self.kind, self.calls = owner, _name(kind), kind, 0
        self.boxed = kind != "dynamo"
        try:
            self.graph, self.constants = _graph.from_fx(gm)
            with torch.utils._python_dispatch._disable_current_modes():
                self.constants = [c.detach().clone() for c in self.constants]
        except _graph.NoName as e:
            self.graph, self.constants = None, []
            owner.note(f"{self.name} is not checked: {e}")
        self.grad = kind == "dynamo" and torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in examples)
        self.dynamic = any(isinstance(x, (torch.SymInt,)) or isinstance(x, torch.Tensor) and not all(type(d) is int for d in x.shape) for x in examples)
        self.eager = _graph.make(self.graph) if self.graph is not None else None
        if owner.level >= 3:
            self.save(_real(examples), _case.Outcome("pass", "saved before it was compiled"), "before")
        try:
            self.run = compile_graph()
        except Exception as e:
            o = _case.Outcome("compile error", _case.describe(e), _case.identity(e))
            self.fail(e, self.save(_real(examples), o))
            raise
        self.done()

    def case(self, inputs):
        how = _case.new_how(self.owner.backend, mode=self.owner.mode, options=self.owner.options, dynamic=True if self.dynamic else None,
                            fallback_random=self.owner.random)
        return _case.Case(self.graph, list(inputs) + self.constants, self.grad, how)

    def save(self, inputs, outcome, when=""):
        if self.graph is None:
            return None
        folder = os.path.join(_case.run_folder(self.owner.out), self.name)
        try:
            with torch.utils._python_dispatch._disable_current_modes():  # inside of a compile tensors are fake
                _case.save(folder, self.case(inputs), outcome, self.name)
        except (OSError, RuntimeError) as e:
            self.owner.note(f"{self.name} cannot be saved: {e}")
            return None
        if not when:
            _found.append(folder)
        return folder

    def done(self):
        """What was saved in case the process dies is not needed any more."""
        if self.owner.level >= 3 and self.graph is not None:
            folder = os.path.join(_case.run_folder(self.owner.out), self.name)
            if folder not in _found:
                for f in ("graph.py", "inputs.pt", "failure.json"):
                    try:
                        os.unlink(os.path.join(folder, f))
                    except OSError:
                        pass
                for d in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):  # as far as they are empty
                    try:
                        os.rmdir(d)
                    except OSError:
                        break

    def fail(self, error, folder):
        if folder:  # Dynamo wraps what a backend raises, and the note of what is inside is not shown
            error.add_note(f"taper.torch.debug: the graph and its inputs are in {folder}\n  next: taper minify {folder}")
            print(f"taper.torch.debug: {self.name} fails; next: taper minify {folder}", file=sys.stderr, flush=True)

    def due(self):
        """The first eight calls, then ever fewer: 16, 32, 64, ..."""
        self.calls += 1
        return self.calls <= 8 or self.calls & (self.calls - 1) == 0

    def check(self, inputs):
        """Compares on copies of the inputs: None or an Outcome."""
        state, seed = torch.get_rng_state(), 0
        runs = []
        try:
            given = list(inputs)
            want = _case.execute(self.eager, given + self.constants, self.grad, seed)
            for _ in range(2):
                runs.append(_case.execute(self.call, given, self.grad, seed))
            try:
                exact = None
                if _compare.differs(runs, [want] * 2):
                    exact = _case.execute(_graph.make(_graph.in_double(self.graph)), given + self.constants, self.grad, seed, double=True)
            except Exception:  # no float64 of an operator
                pass
        finally:
            torch.set_rng_state(state)
        n = len([x for x in given if isinstance(x, torch.Tensor)])
        want[2], exact = want[2][:n], exact and [exact[0], exact[1], exact[2][:n]]
        want[1] = want[1][:len(runs[0][1])]
        why = _compare.differs(runs[0], want, exact)
        if why:
            return _case.Outcome("wrong result", _case._plain_place(why, want))
        why = _compare.differs(runs[1], want, exact)
        return _case.Outcome("comes and goes", _case._plain_place(why, want)) if why else None

    def call(self, *args):
        return self.run(list(args)) if self.boxed and getattr(self.run, "_boxed_call", False) else self.run(*args)

    def __call__(self, *args):
        if self.boxed:
            given = args[0]
            inputs = list(given)
        else:
            given = inputs = list(args)
        due = self.owner.level >= 4 and self.eager is not None and self.due()
        if self.owner.level == 3 or due:  # in case the process dies
            self.save(inputs, _case.Outcome("pass", "saved before it was called"), "before")
        try:
            o = self.check(inputs) if due else None
            if o is None:
                if not self.boxed:
                    out = self.run(*args)
                elif getattr(self.run, "_boxed_call", False):
                    out = self.run(given)
                else:
                    out = self.run(*inputs)
        except AccuracyError:
            raise
        except Exception as e:
            self.fail(e, self.save(inputs, _case.Outcome("exception", _case.describe(e), _case.identity(e))))
            raise
        self.done()
        if o is not None:
            folder = self.save(inputs, o)
            e = AccuracyError(f"{self.name}: {o}" + self.places())
            e.folder = folder
            self.fail(e, folder)
            raise e
        return out

    def places(self):
        lines = list(dict.fromkeys(op.line for op in self.graph.ops if op.line))
        return f"\n  from {lines[0]}" + (f"\n    to {lines[-1]}" if len(lines) > 1 else "") if lines else ""


class debug:
    """A backend for torch.compile that is another backend, watched.

        model = torch.compile(model, backend=taper.torch.debug(backend="inductor", level=4, after="aot"))

    after: "dynamo" checks the graphs that Dynamo captures, forward and backward together; "aot" those that AOTAutograd hands to the
    backend's compilers. level 1 and 2 save a graph whose compiler or code raises; 3 saves every graph before it is compiled and called, so
    that one which ends the process is left; 4 also compares results with eager PyTorch and float64, and two runs with each other.
    """

    def __init__(self, backend="inductor", level=4, after="dynamo", out=None, mode=None, options=None):
        if after not in ("dynamo", "aot"):
            raise ValueError(f"after is 'dynamo' or 'aot', not {after!r}")
        if level not in (1, 2, 3, 4):
            raise ValueError(f"level is 1, 2, 3 or 4, not {level!r}")
        self.backend, self.level, self.after, self.out, self.mode, self.options = backend, level, after, out, mode, options
        self.random = True
        self.notes = []
        self.__name__ = f"debug_{_case.backend_name(backend)}"

    def note(self, text):
        self.notes.append(text)

    def inner(self, gm, examples):
        import torch._inductor.config as inductor
        backend = _case.find_backend(self.backend)
        if isinstance(backend, debug):
            raise TypeError("taper.torch.debug around itself")
        kw = {k: v for k, v in (("mode", self.mode), ("options", self.options)) if v}
        with inductor.patch(fallback_random=True) if self.level >= 4 else _nothing():
            if backend == "inductor" and kw:
                return torch._TorchCompileInductorWrapper(self.mode, self.options, None)(gm, examples)
            if isinstance(backend, str):
                backend = torch._dynamo.backends.registry.lookup_backend(backend)
            return backend(gm, examples, **kw)

    def __call__(self, gm, examples, **kw):
        if kw:
            self.mode, self.options = kw.get("mode", self.mode), kw.get("options", self.options)
        if self.after == "dynamo":
            w = _Watch(self, "dynamo", gm, examples, lambda: self.inner(gm, examples))
            return lambda *args: w(*args)
        from torch._dynamo.backends import common
        original = common.aot_module_simplified

        def watched(gm, examples, **kw):
            for key, kind in (("fw_compiler", "forward"), ("bw_compiler", "backward"), ("inference_compiler", "inference")):
                if kw.get(key) is not None:
                    kw[key] = self.wrapped(kw[key], kind)
            return original(gm, examples, **kw)

        import torch._functorch.config as functorch
        common.aot_module_simplified = watched
        try:
            with functorch.patch(enable_autograd_cache=False):
                return self.inner(gm, examples)
        finally:
            common.aot_module_simplified = original

    def wrapped(self, compiler, kind):
        def compile_graph(gm, examples):
            import torch._inductor.config as inductor

            def compiled():
                with inductor.patch(fallback_random=True) if self.level >= 4 else _nothing():
                    return compiler(gm, examples)
            w = _Watch(self, kind, gm, examples, compiled)

            def run(args):
                return w(args)
            run._boxed_call = True
            return run
        return compile_graph


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False
