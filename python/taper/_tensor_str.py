"""How tensors print."""


class __PrinterOptions:
    precision, threshold, edgeitems, linewidth, sci_mode = 4, 1000, 3, 80, None


PRINT_OPTS = __PrinterOptions()


def _str(self, *, tensor_contents=None):
    return repr(self)


def _str_intern(inp, *, tensor_contents=None):
    return repr(inp)


def _tensor_str(self, indent):
    text = repr(self)
    return text[text.index("(") + 1:].rsplit(")", 1)[0]


def _add_suffixes(tensor_str, suffixes, indent, force_newline):
    return ", ".join([tensor_str] + list(suffixes)) + ")"
