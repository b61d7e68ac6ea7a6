"""Masks of attention by name."""
import enum as _enum

import taper


class CausalVariant(_enum.IntEnum):
    UPPER_LEFT, LOWER_RIGHT = 1, 2


class CausalBias:
    """A causal mask that is made when it is needed."""

    def __init__(self, variant, seq_len_q, seq_len_kv):
        self.variant, self.seq_len_q, self.seq_len_kv = variant, seq_len_q, seq_len_kv

    def _materialize(self, device=None):
        low = 0 if self.variant is CausalVariant.UPPER_LEFT else self.seq_len_kv - self.seq_len_q
        return taper.tril(taper.ones(self.seq_len_q, self.seq_len_kv, dtype=taper.bool, device=device), low)


def causal_upper_left(*size):
    return CausalBias(CausalVariant.UPPER_LEFT, *size)


def causal_lower_right(*size):
    return CausalBias(CausalVariant.LOWER_RIGHT, *size)
