"""Names of the scripting compiler."""
from . import RecursiveScriptModule, ScriptFunction, ScriptModule, script, script_method  # noqa: F401
