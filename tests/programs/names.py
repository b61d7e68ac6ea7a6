"""Which names of PyTorch programs use, and which of them exist here.

    python tests/programs/names.py scan DIR ... > used.json     names used by the packages in these folders (one package a folder)
    python tests/programs/names.py check used.json              with `torch` meaning Taper (python -m taper) or PyTorch
    python tests/programs/names.py tiers NAMES.md               the names of a reference list, by its tiers

A name counts once a package. `scan` reads source files and imports nothing; `check` asks the `torch` of its process."""
import ast
import importlib
import json
import os
import re
import sys


class Reader(ast.NodeVisitor):
    """Dotted names that begin with torch, through the names that a file's imports give them."""

    def __init__(self):
        self.known, self.found = {}, set()

    def visit_Import(self, node):
        for a in node.names:
            if a.name == "torch" or a.name.startswith("torch."):
                self.found.add(a.name)
                self.known[a.asname or "torch"] = a.name if a.asname else "torch"

    def visit_ImportFrom(self, node):
        if node.level or not node.module or not (node.module + ".").startswith("torch."):
            return
        for a in node.names:
            if a.name != "*":
                name = f"{node.module}.{a.name}"
                self.found.add(name)
                self.known[a.asname or a.name] = name

    def chain(self, node):
        parts = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and node.id in self.known:
            return ".".join([self.known[node.id]] + parts[::-1])
        return None

    def visit_Attribute(self, node):
        name = self.chain(node)
        if name:
            self.found.add(name)
        else:
            self.generic_visit(node)


def names_of(folder):
    found = set()
    for root, dirs, files in os.walk(folder):
        dirs[:] = [d for d in dirs if d not in ("tests", "test", "__pycache__")]
        for f in files:
            if f.endswith(".py"):
                try:
                    with open(os.path.join(root, f), encoding="utf-8") as h:
                        tree = ast.parse(h.read())
                except (SyntaxError, UnicodeDecodeError, ValueError):
                    continue
                r = Reader()
                r.visit(tree)
                found |= r.found
    return sorted(found)


def exists(name):
    """The longest part that is a module is imported; the rest are attributes. What is asked of a value is not asked here."""
    parts = name.split(".")
    here, at = importlib.import_module(parts[0]), parts[0]
    for p in parts[1:]:
        at += "." + p
        try:
            here = getattr(here, p)
        except AttributeError:
            try:
                here = importlib.import_module(at)
            except Exception:
                return False
        except Exception:
            return True
        if getattr(here, "__doc__", None) and str(here.__doc__).startswith("Not supported: "):
            return "refused"
        if not isinstance(here, (type(sys), type)):
            break
    return True


def check(used):
    """(found, refused by name, all, {missing name: packages that use it})"""
    missing, have, refused, total = {}, 0, 0, 0
    for package, names in used.items():
        for n in names:
            total += 1
            kind = exists(n)
            if kind == "refused":
                refused += 1
            elif kind:
                have += 1
            else:
                missing.setdefault(n, []).append(package)
    return have, refused, total, missing


def tiers(path):
    """(tier, name in torch) of the reference list: only names that are attributes of modules."""
    out, tier = [], ""
    prefix = {"torch.": "torch.", "nn": "torch.", "nn.functional": "torch.nn.functional.", "autograd": "torch.", "dtype/layout": "torch.",
              "dynamo public": "torch._dynamo.", "dynamo config": "torch._dynamo.", "torch.utils": "torch.", "fx": "", "torch.compile(r)": "",
              "torch.ops / library": "torch.", "torch.autocast": "", "torch.overrides": "", "other config": "", "torch.cond": "", "torch.amp": "",
              "torch.linalg": "", "Tensor method/attribute": "torch.Tensor", "nn.Module / Optimizer attribute": "torch.nn.Module"}
    for line in open(path, encoding="utf-8"):
        if m := re.match(r"## (Tier \d)", line):
            tier = m[1]
        m = re.match(r"- \*\*(.+?)\*\*: (.*)", line)
        if not m or m[1] not in prefix:
            continue
        for n in m[2].strip().split(", "):
            n = re.sub(r"\(.*", "", n)
            if n.startswith("F."):
                n = n[2:]
            out.append((tier, prefix[m[1]] + n))
    return out


def main():
    what, *args = sys.argv[1:]
    if what == "scan":
        print(json.dumps({os.path.basename(a.rstrip("/")): names_of(a) for a in args}, indent=0))
    elif what == "check":
        with open(args[0]) as f:
            used = json.load(f)
        if len(args) > 1:  # names that do not exist in PyTorch do not count
            with open(args[1]) as f:
                gone = set(json.load(f))
            used = {p: [n for n in names if n not in gone] for p, names in used.items()}
        have, refused, total, missing = check(used)
        print(json.dumps({"have": have, "refused": refused, "total": total, "missing": dict(sorted(missing.items(), key=lambda kv: (-len(kv[1]), kv[0])))}, indent=0))
    elif what == "tiers":
        counts = {}
        for tier, name in tiers(args[0]):
            ok = exists(name) is True
            c = counts.setdefault(tier, [0, 0, []])
            c[0] += ok
            c[1] += 1
            if not ok:
                c[2].append(name)
        print(json.dumps(counts, indent=0))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
