"""Writes docs/options.md from the table of options (src/compile/options.def) and the modes (python/taper/compiler/_options.py)."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))


def page():
    from taper import _C
    from taper.compiler._options import MODES
    out = ["# Modes and options", "",
           "`taper.compile(fn, mode=...)` or `taper.compile(fn, options={...})`, with backend `inductor`. A mode is a set of options.",
           "`taper.compiler.list_options()` and `list_mode_options()` give the names below; an unknown mode, option or value is an error",
           "when `compile` is called, with the ones there are. Options never change what a program computes beyond the order of sums.", "",
           "| mode | sets |", "|---|---|"]
    for mode, sets in MODES.items():
        out.append(f"| `{mode}` | {', '.join(f'`{k}={v}`' for k, v in sets.items()) or 'nothing'} |")
    out += ["", "| option | values | default | meaning |", "|---|---|---|---|"]
    for name, default, values, meaning in _C._options():
        words = "False, True" if values == "bool" else values.replace("|", ", ")
        out.append(f"| `{name}` | {words} | {default} | {meaning} |")
    out += ["", "`reuse_outputs` keeps the memory of each result and gives it to the next call once the program holds no reference to the",
            "old result; a result that is still held is never written to. `trust_guards` skips the look at which inputs need gradients, which",
            "the guards have answered. `TAPER_EMITTER` sets `emitter` for every compile.", "",
            "`max_autotune` measures, for a graph of fixed sizes, the forms that each of its steps may have, on buffers of the real sizes: for",
            "kernels the order of loops, strips for transposed operands, vectors in flight, AVX2, C through the system's compiler, and what a",
            "thread takes; for products tiles of every width, the library, and whether the kernel behind them runs on their rows; for",
            "convolutions channels or places as lanes, or patches and the library. A form must give the result of the usual one and be more",
            "than 3 % faster in five of six turns; all of them together must beat the usual program. Then whole programs are measured: convolutions",
            "and what lies between them in channels_last (or contiguous) memory, with the copies at the ends counted, and without fusions or",
            "splits of one kind (`no=fuse:add`); there the difference must be more than 5 %. What was chosen is remembered in",
            "the process and, by kernel, processor, threads and options, in the disk cache, so that another process searches nothing.",
            "`TAPER_LOGS=autotuning` shows each form with its time, what was chosen and what was dropped and why; the trace has the same",
            "(`autotune_choice`). Whoever bisects refuses choices one by one (`tune`). Sums may be added in another order.", ""]
    return "\n".join(out)


if __name__ == "__main__":
    with open(os.path.join(ROOT, "docs", "options.md"), "w") as f:
        f.write(page())
    print("wrote: docs/options.md")
