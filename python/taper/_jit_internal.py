"""Marks for the scripting compiler: they change nothing."""
from typing import Final, List, Dict, Optional, Tuple, Union  # noqa: F401

from .jit import _marks, is_scripting, ScriptFunction  # noqa: F401

ignore = unused = export = _copy_to_script_wrapper = _overload = _overload_method = script_method = _marks
BroadcastingList1 = BroadcastingList2 = BroadcastingList3 = type("BroadcastingList", (), {"__class_getitem__": classmethod(lambda cls, t: t)})


def boolean_dispatch(arg_name, arg_index, default, if_true, if_false, module_name, func_name):
    """One of two functions, by a boolean argument."""
    def fn(*args, **kwargs):
        flag = kwargs.get(arg_name, args[arg_index] if len(args) > arg_index else default)
        return (if_true if flag else if_false)(*args, **kwargs)
    fn.__name__ = func_name
    fn.__module__ = module_name
    return fn


class FunctionModifiers:
    UNUSED, IGNORE, EXPORT, DEFAULT, COPY_TO_SCRIPT_WRAPPER = "unused", "ignore", "export", "default", "copy"


def is_optional(ann):
    import typing
    return typing.get_origin(ann) is typing.Union and type(None) in typing.get_args(ann)
