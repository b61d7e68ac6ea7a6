"""Sequences of different lengths: padded into one tensor, or packed so that recurrent layers skip the padding."""
from collections import namedtuple

import taper

_Packed = namedtuple("PackedSequence", ("data", "batch_sizes", "sorted_indices", "unsorted_indices"))


class PackedSequence(_Packed):
    """The steps of several sequences, longest first: the first batch_sizes[0] rows of data are their first steps, and so on."""

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _with(self, data):
        return type(self)(data, self.batch_sizes, self.sorted_indices, self.unsorted_indices)

    def to(self, *args, **kwargs):
        return self._with(self.data.to(*args, **kwargs))

    def double(self):
        return self._with(self.data.double())

    def float(self):
        return self._with(self.data.float())

    def cpu(self):
        return self

    @property
    def is_cuda(self):
        return False


def invert_permutation(permutation):
    if permutation is None:
        return None
    out = taper.empty_like(permutation)
    out[permutation] = taper.arange(0, permutation.numel())
    return out


def pack_padded_sequence(input, lengths, batch_first=False, enforce_sorted=True):
    """A padded batch (time, batch, ...) as a PackedSequence; lengths: how much of each is real."""
    lengths = taper.as_tensor(lengths, dtype=taper.int64)
    batch = input.shape[0 if batch_first else 1]
    if lengths.dim() != 1 or lengths.numel() != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {lengths.numel()} (batch_size={batch})")
    order = None
    if not enforce_sorted:
        lengths, order = taper.sort(lengths, descending=True)
        input = input.index_select(0 if batch_first else 1, order)
    sizes = lengths.tolist()
    if sizes and sizes[-1] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(a < b for a, b in zip(sizes, sizes[1:])):
        raise RuntimeError("`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass `enforce_sorted=False` to "
                           "pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not need ONNX exportability.")
    steps = input.transpose(0, 1) if batch_first else input
    if sizes and sizes[0] > steps.shape[0]:
        raise RuntimeError(f"Expected all lengths to be at most {steps.shape[0]}, the number of steps, but got {sizes[0]}")
    counts = [sum(n > t for n in sizes) for t in range(sizes[0] if sizes else 0)]
    return PackedSequence(taper.cat([steps[t, :n] for t, n in enumerate(counts)]), taper.tensor(counts, dtype=taper.int64), order, None)


def pad_packed_sequence(sequence, batch_first=False, padding_value=0.0, total_length=None):
    """(padded batch, lengths) of a PackedSequence."""
    counts = sequence.batch_sizes.tolist()
    steps, batch = len(counts), counts[0] if counts else 0
    if total_length is not None:
        if total_length < steps:
            raise ValueError("Expected total_length to be at least the length of the longest sequence in input, but got "
                             f"total_length={total_length} and max sequence length being {steps}")
        steps = total_length
    rows = []
    for part, n in zip(sequence.data.split(counts), counts):
        fill = [part.new_full((batch - n, *part.shape[1:]), padding_value)] if n < batch else []
        rows.append(taper.cat([part, *fill]))
    rows += [sequence.data.new_full((batch, *sequence.data.shape[1:]), padding_value)] * (steps - len(rows))
    out = taper.stack(rows, 1 if batch_first else 0)
    lengths = taper.tensor([sum(n > i for n in counts) for i in range(batch)], dtype=taper.int64)
    if sequence.unsorted_indices is not None:
        out = out.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices]
    return out, lengths


def pad_sequence(sequences, batch_first=False, padding_value=0.0, padding_side="right"):
    """Tensors of different lengths as one, filled up with padding_value."""
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side must be 'left' or 'right', not {padding_side!r}")
    if isinstance(sequences, taper.Tensor):
        sequences = sequences.unbind(0)
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    longest = max(s.shape[0] for s in sequences)
    rows = []
    for s in sequences:
        fill = [s.new_full((longest - s.shape[0], *s.shape[1:]), padding_value)] if s.shape[0] < longest else []
        rows.append(taper.cat([*fill, s] if padding_side == "left" else [s, *fill]))
    return taper.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences, lengths, batch_first=False):
    """The sequences that pad_sequence was given."""
    if not batch_first:
        padded_sequences = padded_sequences.transpose(0, 1)
    return [row[:int(n)] for row, n in zip(padded_sequences, lengths)]


def pack_sequence(sequences, enforce_sorted=True):
    """Tensors of different lengths as a PackedSequence."""
    return pack_padded_sequence(pad_sequence(sequences), [s.shape[0] for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences):
    """The tensors that pack_sequence was given."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)
