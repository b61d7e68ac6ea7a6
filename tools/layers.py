#!/usr/bin/env python3
"""Checks the order of the folders of src/ and the rule that decides where a line lives.

  tools/layers.py [--build DIR] [--table]    --table: prints the folders with their lines and includes, for docs/ARCHITECTURE.md

Includes and link symbols point up the list ORDER, never down. Only columns name operators (OP_x), and calls of BUILDERS, which make
a new call of the operator that they are given; only capture/ and python/ include Python.h. No function is longer than LONGEST
lines (a switch with a case for each instruction may be). ALLOWED holds what is left to mend: the number of mentions a file may
have. A number may only fall.
"""
import collections, glob, os, re, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORDER = """base events sym tensor comm ops ir grad aot vir target loop run compile export api debug report python capture cli""".split()
COLUMNS = re.compile(r"src/(ops|grad)/|src/[\w/]+/(lower|build|rewrite|columns?)_?\w*\.[ch]$")
BUILDERS = set("ir_build ir_add_call ir_infer ir_record ir_call grad_call ops_call record build call op".split())
LONGEST = 120  # lines of a function
TOGETHER = "src/python/module.c.o"  # puts the parts of the extension together
# Files outside the columns that still name operators, with the number of mentions they may have.
ALLOWED = {}
with open(os.path.join(ROOT, "tools", "layers.allow")) as f:
    for row in f:
        if row.strip() and not row.startswith("#"):
            rule, path, n = row.split()
            ALLOWED[rule, path] = int(n)


def sources():
    for path in sorted(glob.glob(os.path.join(ROOT, "src", "**", "*"), recursive=True)):
        if path.endswith((".c", ".h", ".def")):
            with open(path, errors="replace") as f:
                yield os.path.relpath(path, ROOT), f.read()


def folder(path):
    return path.split("/")[1]


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def operators(code):
    """Mentions of operators that ask which one something is: those given to a builder do not count."""
    n = 0
    for m in re.finditer(r"\bOP_[a-z_]\w*", code):
        depth, i = 0, m.start() - 1
        while i >= 0 and depth >= 0 and code[i] not in ";{":  # to the bracket that is open here
            depth += {")": 1, "(": -1}.get(code[i], 0)
            i -= 1
        name = re.search(r"(\w+)$", code[:i + 1]) if depth < 0 else None
        n += not (name and name[1] in BUILDERS)
    return n


def long_functions(text):
    """Functions of more than LONGEST lines, as clang-format lays them out: from a line at the margin to the brace there."""
    start = None
    for i, line in enumerate(text.split("\n")):
        if line == "{":
            start = i
        elif line == "}" and start is not None:
            if i - start > LONGEST:
                yield i - start
            start = None


def symbols(build):
    """(defined: symbol -> folder, wanted: folder -> symbol -> object) of the object files of a build."""
    defined, wanted = {}, collections.defaultdict(dict)
    objects = [o for o in glob.glob(os.path.join(build, "CMakeFiles", "*.dir", "src", "**", "*.o"), recursive=True)
               if "/taper_simd_" not in o or "taper_simd_base" in o]
    folders = {o: re.search(r"/src/(\w+)/", o.rsplit(".dir", 1)[1]).group(1) for o in objects}
    objects = [o for o in objects if folders[o] in ORDER and  # those of files that are gone do not count
               os.path.exists(os.path.join(ROOT, "src", o.split(".dir/src/")[1][:-2]))]
    for line in subprocess.run(["nm", "-A", *objects], capture_output=True, text=True).stdout.splitlines() if objects else []:
        o, _, symbol = line.rpartition(":")
        *_, kind, name = symbol.split()
        if kind in "TDBRC":
            defined[name] = folders[o]
        elif kind == "U":
            wanted[folders[o]][name] = o
    return defined, wanted


def main():
    build = sys.argv[sys.argv.index("--build") + 1] if "--build" in sys.argv else os.path.join(ROOT, "build")
    at = {f: i for i, f in enumerate(ORDER)}
    notes = []
    errors, includes, lines, found = [], collections.defaultdict(collections.Counter), collections.Counter(), collections.Counter()
    for path, text in sources():
        here = folder(path)
        if here not in at:
            errors.append(f"{path}: folder src/{here} is not in the order of tools/layers.py")
            continue
        lines[here] += text.count("\n")
        for inc in re.findall(r'#include "(\w+)/[\w/.]+"', text):
            if inc in at:
                if inc != here:
                    includes[here][inc] += 1
                if at[inc] > at[here]:
                    found["include", path] += 1
        code = without_comments(text)
        if not COLUMNS.match(path):
            found["operator", path] += operators(code)
        found["long", path] += len(list(long_functions(text)))
        if here not in ("capture", "python") and "Python.h" in text:
            errors.append(f"{path}: includes Python.h; only capture/ and python/ may")
        if not path.startswith("src/target/"):
            found["machine", path] += len(re.findall(r"\bEMITTER_\w+|\bgen_isa\b|\bx64_\w+|cpuid|__builtin_cpu", code))
    if os.path.isdir(os.path.join(build, "CMakeFiles")):
        defined, wanted = symbols(build)
        for here, names in wanted.items():
            for name, obj in names.items():
                there = defined.get(name)
                if there and at[there] > at[here] and not obj.endswith(TOGETHER):
                    found["link", obj.split(".dir/")[1][:-2]] += 1
    what = {"include": "includes a folder below it", "operator": "names an operator outside the columns (OP_x)",
            "machine": "names a machine outside target/", "link": "calls into a folder below it",
            "long": f"has functions of more than {LONGEST} lines"}
    for (rule, path), n in sorted(found.items()):
        may = ALLOWED.get((rule, path), 0)
        if n > may:
            errors.append(f"{path}: {what[rule]}: {n} times, {may} allowed")
    for (rule, path), may in sorted(ALLOWED.items()):
        if found[rule, path] < may:
            notes.append(f"note: tools/layers.allow: {rule} {path} is down to {found[rule, path]}")
    if "--allow" in sys.argv:  # what the file would have to say now
        print("\n".join(f"{rule:8} {path} {n}" for (rule, path), n in sorted(found.items()) if n))
        return 0
    if "--table" in sys.argv:
        print("| folder | lines | includes |\n| --- | --- | --- |")
        for f in ORDER:
            print(f"| `{f}/` | {lines[f]:,} | {' '.join(i for i in ORDER if includes[f][i])} |")
        return 0
    print("\n".join(notes + errors) if errors or notes else f"layers: {len(lines)} folders in order, {sum(v for (r, _), v in found.items() if r == 'operator')} "
          "mentions of operators outside the columns left")
    return bool(errors)


sys.exit(main())
