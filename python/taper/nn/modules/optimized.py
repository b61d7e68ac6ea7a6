"""What taper.compile makes of a module. It stands here and not beside compile() because calls of it inside other compiled functions are inlined."""
from ..._dynamo import eval_frame
from .module import Module


class OptimizedModule(Module):
    """A module whose calls are captured; everything else is the module it wraps."""
    __module__ = "taper._dynamo.eval_frame"

    def __init__(self, mod, make):
        object.__setattr__(self, "_orig_mod_ref", mod)
        super().__init__()
        self._modules["_orig_mod"] = mod
        object.__setattr__(self, "_make", make)
        object.__setattr__(self, "_compiled", make(type(mod).__call__))
        object.__setattr__(self, "_torchdynamo_orig_callable", mod.forward)

    def __call__(self, *args, **kwargs):
        return self._compiled(self._modules["_orig_mod"], *args, **kwargs)

    def forward(self, *args, **kwargs):
        return self._compiled(self._modules["_orig_mod"], *args, **kwargs)

    @property
    def _orig_mod(self):
        return self._modules["_orig_mod"]

    @property
    def __class__(self):
        return type(self)

    def __getattr__(self, name):
        if name == "_orig_mod":
            return self.__dict__["_modules"]["_orig_mod"]
        return getattr(self.__dict__["_modules"]["_orig_mod"], name)

    def __setattr__(self, name, value):
        if name in self.__dict__ or name == "_orig_mod":
            return object.__setattr__(self, name, value)
        setattr(self._modules["_orig_mod"], name, value)

    def train(self, mode=True):
        self._modules["_orig_mod"].train(mode)
        return self

    def eval(self):
        return self.train(False)

    @property
    def training(self):
        return self._modules["_orig_mod"].training

    def __reduce_ex__(self, protocol):
        return eval_frame._wrap, (self._modules["_orig_mod"], self._make)

    def __len__(self):
        return len(self._modules["_orig_mod"])

    def __getitem__(self, i):
        return self._modules["_orig_mod"][i]

    def __iter__(self):
        return iter(self._modules["_orig_mod"])

    def __dir__(self):
        return dir(self._modules["_orig_mod"])
