"""Writes docs/graph-breaks.md from the table of graph breaks (src/capture/breaks.def)."""
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))


def page():
    from taper import _C
    out = ["# Graph breaks", "",
           "Where a function cannot be captured the graph ends, the instruction is executed natively, and capture goes on behind it.",
           "`TAPER_LOGS=graph_breaks` shows each place; `fullgraph=True` makes the first one an error. Every kind has a code.", "",
           "| code | kind | why | what to do |", "| --- | --- | --- | --- |"]
    for _, code, kind, explain, hint in _C._capture_break_rows():
        out.append(f"| `{code}` | {kind} | {explain} | {hint} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(os.path.join(ROOT, "docs", "graph-breaks.md"), "w") as f:
        f.write(page())
