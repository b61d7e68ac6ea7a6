"""Averages of a model's parameters over training."""
import copy
import itertools

import taper
from ..nn import Module
from .lr_scheduler import LRScheduler


def get_ema_multi_avg_fn(decay=0.999):
    """Averages that forget: new = decay * old + (1 - decay) * parameter."""
    @taper.no_grad()
    def update(averaged, current, num_averaged):
        for a, c in zip(averaged, current):
            a.lerp_(c, 1 - decay) if a.is_floating_point() else a.copy_(c)
    return update


def get_ema_avg_fn(decay=0.999):
    return lambda averaged, current, num_averaged: decay * averaged + (1 - decay) * current


def get_swa_avg_fn():
    return lambda averaged, current, num_averaged: averaged + (current - averaged) / (num_averaged + 1)


def get_swa_multi_avg_fn():
    @taper.no_grad()
    def update(averaged, current, num_averaged):
        for a, c in zip(averaged, current):
            a.lerp_(c, 1 / (int(num_averaged) + 1)) if a.is_floating_point() else a.copy_(c)
    return update


class AveragedModel(Module):
    """A copy of a model whose parameters are an average of those it was updated with."""

    def __init__(self, model, device=None, avg_fn=None, multi_avg_fn=None, use_buffers=False):
        super().__init__()
        if avg_fn is not None and multi_avg_fn is not None:
            raise ValueError("Only one of avg_fn and multi_avg_fn should be provided")
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", taper.tensor(0, dtype=taper.long))
        self.avg_fn, self.multi_avg_fn, self.use_buffers = avg_fn, multi_avg_fn, use_buffers

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _values(self, model):
        return list(itertools.chain(model.parameters(), model.buffers())) if self.use_buffers else list(model.parameters())

    @taper.no_grad()
    def update_parameters(self, model):
        mine, new, n = self._values(self.module), [v.detach() for v in self._values(model)], int(self.n_averaged)
        if n == 0:
            for a, c in zip(mine, new):
                a.copy_(c)
        elif self.avg_fn is not None:
            for a, c in zip(mine, new):
                a.copy_(self.avg_fn(a.detach(), c, n))
        else:
            (self.multi_avg_fn or get_swa_multi_avg_fn())([a.detach() for a in mine], new, n)
        if not self.use_buffers:
            for a, c in zip(self.module.buffers(), model.buffers()):
                a.copy_(c.detach())
        self.n_averaged += 1


@taper.no_grad()
def update_bn(loader, model, device=None):
    """The running statistics of batch normalisation anew, from one walk over the data."""
    momenta = {m: m.momentum for m in model.modules() if hasattr(m, "running_mean") and hasattr(m, "momentum")}
    if not momenta:
        return
    was = model.training
    model.train()
    for m in momenta:
        m.reset_running_stats()
        m.momentum = None
    for batch in loader:
        model(batch[0] if isinstance(batch, (list, tuple)) else batch)
    for m, v in momenta.items():
        m.momentum = v
    model.train(was)


class SWALR(LRScheduler):
    """Goes over to the learning rate swa_lr within anneal_epochs steps, by a cosine or a line."""

    def __init__(self, optimizer, swa_lr, anneal_epochs=10, anneal_strategy="cos", last_epoch=-1):
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"anneal_strategy must be one of 'cos' or 'linear', instead got {anneal_strategy}")
        if not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            raise ValueError(f"anneal_epochs must be equal or greater than 0, got {anneal_epochs}")
        lrs = swa_lr if isinstance(swa_lr, (list, tuple)) else [swa_lr] * len(optimizer.param_groups)
        for g, lr in zip(optimizer.param_groups, lrs):
            g["swa_lr"] = lr
        self.anneal_epochs, self._strategy = anneal_epochs, anneal_strategy
        super().__init__(optimizer, last_epoch)

    def _share(self, step):
        import math
        t = max(0.0, min(1.0, step / max(1, self.anneal_epochs)))
        return t if self._strategy == "linear" else (1 - math.cos(math.pi * t)) / 2

    def get_lr(self):
        step = self._step_count - 1
        if self.anneal_epochs == 0:
            step = max(1, step)
        before, now = self._share(max(0, step - 1)), self._share(step)
        if before == 1:
            return [g["swa_lr"] for g in self.optimizer.param_groups]
        start = [(g["lr"] - before * g["swa_lr"]) / (1 - before) for g in self.optimizer.param_groups]
        return [g["swa_lr"] * now + s * (1 - now) for g, s in zip(self.optimizer.param_groups, start)]
