"""Settings of capture. Read and write them as attributes; `patch` changes them for a while."""
import os as _os
import sys as _sys
import types as _types

from .._settings import _did_you_mean


def _level(text):
    """TAPER_REPRO_LEVEL; what is no level counts as unset (src/base/envvars.c says so)."""
    return int(text) if text in ("1", "2", "3", "4") else 2


_DEFAULTS = {
    # caches
    "cache_size_limit": 8, "accumulated_cache_size_limit": 256, "fail_on_recompile_limit_hit": False,
    "error_on_recompile": False,
    # shapes
    "automatic_dynamic_shapes": _os.environ.get("TAPER_AUTOMATIC_DYNAMIC_SHAPES", _os.environ.get("TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES", "1")) != "0", "assume_static_by_default": True, "specialize_int": False,
    "force_parameter_static_shapes": True, "automatic_dynamic_shapes_mark_as": "dynamic",
    "dynamic_sources": _os.environ.get("TAPER_COMPILE_DYNAMIC_SOURCES", _os.environ.get("TORCH_COMPILE_DYNAMIC_SOURCES", "")),
    "unbacked_sources": _os.environ.get("TAPER_COMPILE_UNBACKED_SOURCES", _os.environ.get("TORCH_COMPILE_UNBACKED_SOURCES", "")),
    "capture_scalar_outputs": _os.environ.get("TAPER_CAPTURE_SCALAR_OUTPUTS", _os.environ.get("TORCHDYNAMO_CAPTURE_SCALAR_OUTPUTS")) == "1",
    "capture_dynamic_output_shape_ops": _os.environ.get("TAPER_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS", _os.environ.get("TORCHDYNAMO_CAPTURE_DYNAMIC_OUTPUT_SHAPE_OPS")) == "1",
    # breaks and errors
    "suppress_errors": bool(_os.environ.get("TAPER_SUPPRESS_ERRORS", "").strip() not in ("", "0")), "verbose": False, "verify_correctness": False,
    "replay_record_enabled": _os.environ.get("TAPER_COMPILE_REPLAY_RECORD", _os.environ.get("TORCH_COMPILE_REPLAY_RECORD")) == "1",
    "reorderable_logging_functions": set(), "ignore_logging_functions": set(), "debug_break_at": -1,
    # what is shown: see _shown
    "log_level": 30, "debug": False, "profile": False,
    "disable": False,
    # debugging
    "debug_backend_override": _os.environ.get("TAPER_COMPILE_OVERRIDE_BACKENDS", _os.environ.get("TORCH_COMPILE_OVERRIDE_BACKENDS", "")),
    "debug_inductor_config_override": _os.environ.get("TAPER_COMPILE_OVERRIDE_INDUCTOR_CONFIGS", _os.environ.get("TORCH_COMPILE_OVERRIDE_INDUCTOR_CONFIGS", "")),
    "repro_after": _os.environ.get("TAPER_REPRO_AFTER", _os.environ.get("TORCHDYNAMO_REPRO_AFTER")),
    "repro_level": _level(_os.environ.get("TAPER_REPRO_LEVEL", _os.environ.get("TORCHDYNAMO_REPRO_LEVEL", "2"))),
    "repro_tolerance": 1e-3, "same_two_models_use_fp64": True,
    "repro_ignore_non_fp": _os.environ.get("TAPER_REPRO_IGNORE_NON_FP", _os.environ.get("TORCHDYNAMO_REPRO_IGNORE_NON_FP")) == "1",
    "repro_forward_only": _os.environ.get("TAPER_REPRO_FORWARD_ONLY", _os.environ.get("TORCHDYNAMO_REPRO_FORWARD_ONLY")) == "1",
    "debug_dir_root": None, "base_dir": _os.getcwd(),
}
# The original's names that change nothing here; whoever sets one is told so.
_INERT = {
    "dynamic_shapes": True, "specialize_float": True, "raise_on_backend_error": True,
    "fake_tensor_propagation": True, "enable_trace_contextlib": True,
    "enable_trace_unittest": False, "trace_autograd_ops": False, "nested_graph_breaks": False, "guard_nn_modules": True,
    "enable_trace_load_build_class": False, "side_effect_replay_policy": "silent", "replay_side_effects": True,
    "enable_cpp_symbolic_shape_guards": True, "raise_on_ctx_manager_usage": False, "graph_break_on_nn_param_ctor": True,
    "assume_dunder_attributes_remain_unchanged": True, "track_nodes_for_deduplication": False,
    "inline_torch_dispatch_torch_compile": False, "use_numpy_random_stream": False, "error_on_nested_fx_trace": True,
    "use_lamba_guard_for_object_aliasing": True, "use_recursive_dict_tags_for_guards": True, "inline_inbuilt_nn_modules": True,
    "optimize_ddp": True, "print_graph_breaks": False, "dead_code_elimination": True, "allow_rnn": False,
}
_DEFAULTS.update(_INERT)
_ALIASES = {"recompile_limit": "cache_size_limit", "accumulated_recompile_limit": "accumulated_cache_size_limit", "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit"}
_settings = {k: (set(v) if isinstance(v, set) else v) for k, v in _DEFAULTS.items()}
_MARKS = ("dynamic", "unbacked", "oblivious")


def _check(name, value):
    """Is it a value that the setting knows? One without effect is said to have none, once."""
    if name == "automatic_dynamic_shapes_mark_as" and value not in _MARKS:
        raise ValueError(f"config.{name} is one of {', '.join(_MARKS)}, not {value!r}")
    if name in _INERT and value != _INERT[name] and name not in _said:
        _said.add(name)
        import warnings
        warnings.warn(f"config.{name} has no effect here", stacklevel=4)


_said = set()


def _shown(names):
    """log_level (a level of `logging`) and debug (each graph and its guards) take effect; TAPER_LOGS wins over them."""
    from .. import _C
    _C._metrics_environment(None)
    if "log_level" in names or "debug" in names:
        level = _settings["log_level"]
        if not isinstance(level, int):
            raise TypeError(f"config.log_level is a level of the logging module, such as logging.INFO, not {level!r}")
        _C._set_logs_config(level, bool(_settings["debug"]))


class _Patch:
    def __init__(self, changes):
        for k in changes:
            if _ALIASES.get(k, k) not in _settings:
                raise AttributeError(f"config.{k} does not exist{_did_you_mean(k, _settings)}")
        self.changes = {_ALIASES.get(k, k): v for k, v in changes.items()}
        for k, v in self.changes.items():
            _check(k, v)

    def __enter__(self):
        self.prior = {k: _settings[k] for k in self.changes}
        _settings.update(self.changes)
        _shown(self.changes)
        return self

    def __exit__(self, *exc):
        _settings.update(self.prior)
        _shown(self.prior)
        return False

    def __call__(self, fn):
        import functools
        if isinstance(fn, type):  # a class of tests: each of them runs with these values
            for name, f in list(vars(fn).items()):
                if callable(f) and (name.startswith("test") or name in ("setUp", "tearDown")):
                    setattr(fn, name, self(f))
            return fn

        @functools.wraps(fn)
        def inner(*args, **kwargs):
            with self:
                return fn(*args, **kwargs)
        return inner


class _Config(_types.ModuleType):
    def __getattr__(self, name):
        name = _ALIASES.get(name, name)
        if name == "debug_dir_root" and _settings[name] is None:  # not set: where failures go by themselves
            brand = "torch" if _sys.modules.get("torch") is _sys.modules["taper"] else "taper"
            return _os.path.join(_os.environ.get("TAPER_COMPILE_DEBUG_DIR") or _os.getcwd(), brand + "_compile_debug")
        try:
            return _settings[name]
        except KeyError:
            raise AttributeError(f"taper._dynamo.config.{name} does not exist{_did_you_mean(name, [*_settings, *_ALIASES])}") from None

    def __setattr__(self, name, value):
        if name.startswith("_"):
            return super().__setattr__(name, value)
        name = _ALIASES.get(name, name)
        if name not in _settings:
            raise AttributeError(f"taper._dynamo.config.{name} does not exist{_did_you_mean(name, [*_settings, *_ALIASES])}")
        _check(name, value)
        _settings[name] = value
        _shown((name,))

    def __delattr__(self, name):
        if name in self.__dict__:
            return super().__delattr__(name)
        name = _ALIASES.get(name, name)
        if name not in _settings:
            raise AttributeError(f"taper._dynamo.config.{name} does not exist{_did_you_mean(name, [*_settings, *_ALIASES])}")
        _settings[name] = _DEFAULTS[name]
        _shown((name,))

    def __dir__(self):
        return sorted(set(_settings) | set(_ALIASES) | {"patch", "save_config", "load_config", "shallow_copy_dict"})


def patch(*args, **kwargs):
    """patch(name, value), patch({name: value}) or patch(name=value): a context manager and decorator."""
    if args:
        if len(args) == 1 and isinstance(args[0], dict):
            kwargs = {**args[0], **kwargs}
        elif len(args) == 2:
            kwargs = {args[0]: args[1], **kwargs}
        else:
            raise TypeError("patch() takes a dict, a name and a value, or keywords")
    return _Patch(kwargs)


def shallow_copy_dict():
    return dict(_settings)


def _changes_json():
    """What differs from the defaults, for saved failures."""
    import json
    return json.dumps({k: v for k, v in _settings.items() if isinstance(v, (int, float, str, bool, type(None))) and (v != _DEFAULTS[k] or (v and k == "repro_ignore_non_fp"))
                       and k not in ("repro_after", "repro_level", "debug_dir_root", "base_dir")})


def _environment():
    """What compilation_metrics tells of the program's surroundings, as members of a JSON object."""
    import json
    from ..version import taper as __version__
    compiler = {"job_id": _os.environ.get("TAPER_COMPILE_ID_PREFIX"), "dynamic_sources": _settings["dynamic_sources"],
                "unbacked_sources": _settings["unbacked_sources"], "force_disable_caches": _os.environ.get("TAPER_CACHE") == "0"}
    fields = {"dynamo_config": _changes_json(), "compiler_config": json.dumps(compiler), "inline_inbuilt_nn_modules_candidate": False, "config_suppress_errors": bool(_settings["suppress_errors"]),
              "config_inline_inbuilt_nn_modules": True, "specialize_float": bool(_settings["specialize_float"]),
              "python_version": _sys.version, "pytorch_version": __version__, "cuda_version": None, "triton_version": None}
    return json.dumps(fields)[1:-1]


def _source_listed(names, source):
    """Is a source (L['x']) in a list such as "L['x'],L['args'][0]" or does it match a regular expression of it?"""
    import re
    for one in names.split(","):
        one = one.strip()
        if not one:
            continue
        if one == source:
            return True
        try:
            if re.fullmatch(one, source):
                return True
        except re.error:
            pass
    return False


def save_config():
    import json
    return json.dumps({k: v for k, v in _settings.items() if isinstance(v, (int, float, str, bool, type(None)))}).encode()


def load_config(data):
    import json
    _settings.update(json.loads(data))
    _shown(_settings)


_sys.modules[__name__].__class__ = _Config
