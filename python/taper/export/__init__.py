"""torch.export: a function or module as one graph of ATen operators with its weights beside it.

    program = taper.export.export(model, (x,), dynamic_shapes={"x": {0: taper.export.Dim("batch")}})
    program.module()(x)                 # runs it
    taper.export.save(program, "model.pt2"); taper.export.load("model.pt2")

taper.export(fn, args, path=...), the module called as a function, writes a graph for programs without Python (docs/export.md).
"""
import sys as _sys
import types as _types

from .dynamic_shapes import AdditionalInputs, Dim, ShapesCollection, dims
from .exported_program import ExportedProgram, ModuleCallEntry, ModuleCallSignature, default_decompositions, export
from .files import load, save
from .graph_signature import ExportBackwardSignature, ExportGraphSignature

export_for_training = export


def register_dataclass(cls, *, serialized_type_name=None):
    """Values of a dataclass may be arguments and results."""
    import dataclasses
    from ..utils import _pytree
    names = [f.name for f in dataclasses.fields(cls)]
    _pytree.register_pytree_node(cls, lambda x: ([getattr(x, n) for n in names], names), lambda values, n: cls(**dict(zip(n, values))))


def draft_export(mod, args, kwargs=None, *, dynamic_shapes=None, preserve_module_call_signature=(), strict=False, prefer_deferred_runtime_asserts_over_guards=False):
    """As export(): what cannot be exported is an error here, too, with its reason."""
    return export(mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict, preserve_module_call_signature=preserve_module_call_signature)


def unflatten(program, flat_args_adapter=None):
    """The program as a module that is called as the original was."""
    return program.module()


class _Callable(_types.ModuleType):
    def __call__(self, fn, args=(), kwargs=None, path=None, dynamic=False):
        from .._export import export as write
        return write(fn, args, kwargs, path, dynamic)


_sys.modules[__name__].__class__ = _Callable
__all__ = ["AdditionalInputs", "Dim", "ExportBackwardSignature", "ExportGraphSignature", "ExportedProgram", "ModuleCallEntry", "ModuleCallSignature", "ShapesCollection", "default_decompositions", "dims", "draft_export",
           "export", "export_for_training", "load", "register_dataclass", "save", "unflatten"]
