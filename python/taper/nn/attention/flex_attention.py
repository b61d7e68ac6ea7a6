"""Attention whose scores and mask are functions of positions. The whole matrix of scores is computed; fused kernels do what they can."""
import math as _math

import taper

_DEFAULT_SPARSE_BLOCK_SIZE = 128


def _identity(score, batch, head, token_q, token_kv):
    return score


def noop_mask(batch, head, token_q, token_kv):
    return taper.ones((), dtype=taper.bool)


_noop_mask = noop_mask


def _positions(b, h, q, k, device=None):
    """Index tensors that broadcast to [b, h, q, k]."""
    r = lambda n, *shape: taper.arange(n, device=device).view(shape)  # noqa: E731
    return r(b, b, 1, 1, 1), r(h, 1, h, 1, 1), r(q, 1, 1, q, 1), r(k, 1, 1, 1, k)


def create_mask(mod_fn, B, H, Q_LEN, KV_LEN, device="cpu"):
    """mod_fn at every position: a mask where it gives booleans, scores to add otherwise."""
    at = _positions(B or 1, H or 1, Q_LEN, KV_LEN)
    names = getattr(mod_fn, "__code__", None)
    if names is not None and names.co_argcount == 5:
        out = mod_fn(taper.zeros(B or 1, H or 1, Q_LEN, KV_LEN), *at)
        return taper.where(taper.isneginf(out), False, True)
    return mod_fn(*at).expand(B or 1, H or 1, Q_LEN, KV_LEN)


class BlockMask:
    """A mask as a function, with the numbers of the blocks that it leaves."""

    def __init__(self, mask_mod, B, H, Q_LEN, KV_LEN, BLOCK_SIZE=(_DEFAULT_SPARSE_BLOCK_SIZE, _DEFAULT_SPARSE_BLOCK_SIZE), mask=None):
        self.mask_mod, self.B, self.H, self.seq_lengths, self.BLOCK_SIZE = mask_mod, B, H, (Q_LEN, KV_LEN), BLOCK_SIZE
        self._mask = mask
        blocks = self.to_dense()
        self.kv_num_blocks = blocks.sum(-1, dtype=taper.int32)
        self.kv_indices = taper.argsort(blocks.to(taper.int32), dim=-1, descending=True, stable=True).to(taper.int32)
        self.full_kv_num_blocks = self.full_kv_indices = None

    @property
    def shape(self):
        return (self.B or 1, self.H or 1, *self.seq_lengths)

    def to_dense(self):
        """1 where a block has anything to compute."""
        m = self.mask()
        bq, bk = self.BLOCK_SIZE
        q, k = self.seq_lengths
        m = taper.nn.functional.pad(m.to(taper.int32), (0, -k % bk, 0, -q % bq))
        return m.unflatten(-1, (-1, bk)).amax(-1).unflatten(-2, (-1, bq)).amax(-2)

    def mask(self):
        if self._mask is None:
            self._mask = create_mask(self.mask_mod, self.B, self.H, *self.seq_lengths)
        return self._mask

    def sparsity(self):
        d = self.to_dense()
        return 100.0 * (1 - d.sum().item() / d.numel())

    def numel(self):
        return _math.prod(self.shape)

    def to(self, device):
        return self

    def as_tuple(self, flatten=True):
        return (*self.seq_lengths, self.kv_num_blocks, self.kv_indices, self.full_kv_num_blocks, self.full_kv_indices, *self.BLOCK_SIZE, self.mask_mod)

    def __getitem__(self, index):
        m = self.mask()[index]
        m = m.view((1,) * (4 - m.dim()) + tuple(m.shape)) if m.dim() < 4 else m
        return BlockMask(self.mask_mod, m.shape[0], m.shape[1], m.shape[2], m.shape[3], self.BLOCK_SIZE, m)

    def __repr__(self):
        return f"BlockMask(shape={self.shape}, sparsity={self.sparsity():.2f}%)"


def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device="cpu", BLOCK_SIZE=_DEFAULT_SPARSE_BLOCK_SIZE, _compile=False, separate_full_blocks=True):
    size = (BLOCK_SIZE, BLOCK_SIZE) if isinstance(BLOCK_SIZE, int) else tuple(BLOCK_SIZE)
    return BlockMask(mask_mod, B, H, Q_LEN, KV_LEN, size)


def create_nested_block_mask(*args, **kwargs):
    raise NotImplementedError("nested tensors are not supported; pad to one size and use a mask")


def and_masks(*mask_mods):
    def both(b, h, q, k):
        out = taper.ones((), dtype=taper.bool)
        for m in mask_mods:
            out = out & m(b, h, q, k)
        return out
    return both


def or_masks(*mask_mods):
    def any_of(b, h, q, k):
        out = taper.zeros((), dtype=taper.bool)
        for m in mask_mods:
            out = out | m(b, h, q, k)
        return out
    return any_of


def flex_attention(query, key, value, score_mod=None, block_mask=None, scale=None, enable_gqa=False, return_lse=False, kernel_options=None, *, return_aux=None):
    """softmax(score_mod(query @ key * scale)) @ value, over the positions that block_mask leaves."""
    b, hq, q, e = query.shape
    hk, k = key.shape[1], key.shape[2]
    if hq != hk:
        if not enable_gqa:
            raise ValueError(f"Expect query and key/value to have the same number of heads but got Hq={hq} and Hkv={hk}. Try setting enable_gqa=True for GQA.")
        key, value = key.repeat_interleave(hq // hk, 1), value.repeat_interleave(hq // hk, 1)
    scores = (query @ key.transpose(-2, -1)) * (1.0 / _math.sqrt(e) if scale is None else scale)
    at = _positions(b, hq, q, k, query.device)
    if score_mod is not None:
        scores = score_mod(scores, *at)
    if block_mask is not None:
        mask = block_mask._mask if block_mask._mask is not None and tuple(block_mask.seq_lengths) == (q, k) else block_mask.mask_mod(*at)
        scores = scores.masked_fill(~mask, float("-inf"))
    lse = taper.logsumexp(scores, dim=-1)
    p = taper.softmax(scores, dim=-1).masked_fill(taper.isneginf(lse).unsqueeze(-1), 0.0)  # a row without positions gives zeros
    out = (p @ value).to(query.dtype)
    return (out, lse) if return_lse else out


class AuxRequest:
    lse = max_scores = False


class AuxOutput:
    lse = max_scores = None
