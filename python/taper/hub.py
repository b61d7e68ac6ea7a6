"""Files and models from elsewhere, kept in a folder of the user's."""
import hashlib as _hashlib
import os as _os
import re as _re
import shutil as _shutil
import sys as _sys
import tempfile as _tempfile
from urllib.parse import urlparse  # noqa: F401  imported from here by others, too
from urllib.request import Request as _Request, urlopen as _urlopen

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]
HASH_REGEX = _re.compile(r"-([a-f0-9]*)\.")
MASTER_BRANCH = "master"
READ_DATA_CHUNK = 128 * 1024
_dir = None


try:
    from tqdm.auto import tqdm
except ImportError:
    class tqdm:
        """A progress bar that shows nothing."""

        def __init__(self, iterable=None, *args, **kwargs):
            self.iterable = iterable

        def __iter__(self):
            return iter(self.iterable)

        def update(self, n=1):
            """Nothing is shown."""

        close = update

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            return False


def _get_torch_home():
    return _os.path.expanduser(_os.getenv("TORCH_HOME", _os.path.join(_os.getenv("XDG_CACHE_HOME", "~/.cache"), "torch")))


def get_dir():
    return _dir if _dir is not None else _os.path.join(_get_torch_home(), "hub")


def set_dir(d):
    global _dir
    _dir = _os.path.expanduser(d)


def download_url_to_file(url, dst, hash_prefix=None, progress=True):
    """Downloads to a temporary file beside dst and puts it there when it is whole and its SHA256 begins as asked."""
    dst = _os.path.expanduser(dst)
    sha = _hashlib.sha256() if hash_prefix is not None else None
    with _urlopen(_Request(url, headers={"User-Agent": "torch.hub"})) as u, _tempfile.NamedTemporaryFile(dir=_os.path.dirname(dst) or ".", delete=False) as f:
        try:
            while chunk := u.read(READ_DATA_CHUNK):
                f.write(chunk)
                if sha is not None:
                    sha.update(chunk)
            f.close()
            if sha is not None and sha.hexdigest()[:len(hash_prefix)] != hash_prefix:
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{sha.hexdigest()}")')
            _shutil.move(f.name, dst)
        finally:
            f.close()
            if _os.path.exists(f.name):
                _os.remove(f.name)


def load_state_dict_from_url(url, model_dir=None, map_location=None, progress=True, check_hash=False, file_name=None, weights_only=False):
    """The state dict at url, downloaded once."""
    import taper
    model_dir = _os.path.join(get_dir(), "checkpoints") if model_dir is None else model_dir
    _os.makedirs(model_dir, exist_ok=True)
    path = _os.path.join(model_dir, file_name or _os.path.basename(urlparse(url).path))
    if not _os.path.exists(path):
        m = HASH_REGEX.search(_os.path.basename(path)) if check_hash else None
        _sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        download_url_to_file(url, path, m.group(1) if m else None, progress)
    return taper.load(path, map_location=map_location, weights_only=weights_only)


def _entries(repo_or_dir, source):
    if source != "local":
        raise NotImplementedError("torch.hub reads repositories that lie on this machine: clone it and say source='local'")
    import importlib.util
    path = _os.path.join(repo_or_dir, "hubconf.py")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    m = importlib.util.module_from_spec(spec)
    _sys.path.insert(0, repo_or_dir)
    try:
        spec.loader.exec_module(m)
    finally:
        _sys.path.remove(repo_or_dir)
    return m


def load(repo_or_dir, model, *args, source="github", trust_repo=None, force_reload=False, verbose=True, skip_validation=False, **kwargs):
    """hubconf.model(*args, **kwargs) of a repository on this machine."""
    entry = getattr(_entries(repo_or_dir, source), model, None)
    if not callable(entry):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return entry(*args, **kwargs)


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True, source="local"):
    m = _entries(github, source)
    return [n for n in dir(m) if callable(getattr(m, n)) and not n.startswith("_")]


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None, source="local"):
    return getattr(_entries(github, source), model).__doc__
