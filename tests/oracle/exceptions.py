"""Samples of PyTorch's operator database on which Taper differs, each kind with its reason. test_opinfo.py holds this
table to the truth both ways: a difference no row explains is an error, and (in the full run) a row that explains nothing
is one too. docs/ops.md prints it.

operator, what fails (a pattern searched in "dtype: difference"; "grad float64: ..." for gradients, "error: ..." for wrong
inputs), reason."""
UNREAD = "PyTorch also gives the triangle that is never read a gradient; Taper gives it zero, as finite differences do"
POLES = "at the poles (non-positive integers) both return rounding noise, PyTorch that of float, Taper that of double"
LAYOUT = "transforms are laid out row by row; PyTorch's library leaves the transformed dimension innermost"
EXCEPTIONS = [
    *((f"fft.{n}", "strides", LAYOUT) for n in ("fft", "ifft", "hfft", "ihfft", "rfft", "irfft", "fft2", "ifft2", "rfft2", "irfft2", "hfft2", "ihfft2", "fftn", "ifftn", "rfftn",
                                                "irfftn", "hfftn", "ihfftn")),
    ("complex", "error", "out= of another complex type takes the converted result"),
    ("cholesky_inverse", "grad", UNREAD),
    ("cholesky_solve", "grad", UNREAD),
    ("as_strided_scatter", "grad", "PyTorch gives the input the gradient of the part that was written over; Taper that of the rest, "
     "as finite differences do"),
    ("native_group_norm", "grad", "the mean and the reciprocal deviation are statistics without a derivative"),
    ("polygamma.polygamma_n_0", "int", POLES),
    ("polygamma.polygamma_n_1", "int", POLES),
    ("polygamma.polygamma_n_2", "int", POLES),
    ("polygamma.polygamma_n_3", "int", POLES),
    ("polygamma.polygamma_n_4", "int", POLES),
    ("special.polygamma.special_polygamma_n_0", "int", POLES),
    ("nn.functional.multi_head_attention_forward", "float", "scores in the hundreds: the softmax turns their last bit into visible "
     "differences; the float64 samples agree"),
    ("matrix_exp", "float16", "PyTorch overflows on the way and gives NaN"),
    ("special.bessel_j0", "float64", "PyTorch's is off by up to 3e-7 (against mpmath); Taper's is the C library's"),
    ("special.bessel_y1", "float64", "PyTorch's is off by up to 3e-7 (against mpmath); Taper's is the C library's"),
    ("_softmax_backward_data", "grad", "the second derivative of softmax does not go through this row"),
    ("_upsample_bilinear2d_aa", "scale_factors|output_size", "the overload with scale factors, which programs reach through interpolate"),
    ("narrow_copy", "error", "an IndexError, as for narrow; PyTorch's own check is an internal one"),
    ("arange", "error", "steps are counted in the type of the numbers, not of out=; the cast to out= is refused instead"),
]
