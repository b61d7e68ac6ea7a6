"""The documents tell the truth: the README's example and commands, the checklist's tests, the generated pages."""
import os, re, subprocess, sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as f:
        return f.read()


def test_readme_example_prints_what_it_says():
    code, want = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", read("README.md"), re.S).groups()
    assert len(code.splitlines()) <= 30
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert r.returncode == 0 and r.stdout == want, r.stdout + r.stderr


def test_commands_exist():
    make = read("Makefile")
    first = [read("docs", f + ".md") for f in ("install", "faq", "how-to-report", "gallery", "comparison")]
    text = read("README.md") + read("CONTRIBUTING.md")
    for page in first:
        for name in re.findall(r"`make ([a-z][a-z-]*)`|^make ([a-z][a-z-]*)", page, re.M):
            assert re.search(rf"^{''.join(name)}:", make, re.M), f"make {name} is named but not there"
        for path in re.findall(r"(?:python|sh) ((?:examples|tools|bench)/[\w/]+\.(?:py|sh))", page):
            assert os.path.exists(os.path.join(ROOT, path)), path
    for name in set(re.findall(r"make ([a-z][a-z-]*)", text)) - {"sure", "or"}:
        assert re.search(rf"^{name}:", make, re.M), f"make {name} is named but not there"
    for path in set(re.findall(r"\]\(([^)#]+)\)", text)):
        assert os.path.exists(os.path.join(ROOT, path)), path
    for path in re.findall(r"(?:python|sh) ([\w/]+\.(?:py|sh))", text):
        assert os.path.exists(os.path.join(ROOT, path)) or path == "script.py", path


def checklist():
    rows = re.findall(r"^\| (\d+) \| (.*) \| ([^|]*) \|$", read("tests", "checklist.md"), re.M)
    assert [int(n) for n, _, _ in rows] == list(range(1, 110))
    return rows


def test_checklist_names_tests_that_exist():
    ctests = "".join(read("tests", "c", f) for f in os.listdir(os.path.join(ROOT, "tests", "c")) if f.endswith(".c"))
    for n, feature, cell in checklist():
        names = re.findall(r"`([^`]+)`", cell)
        assert names or cell.strip() == "*missing*", f"row {n}: neither a test nor *missing*: {cell}"
        for t in names:
            if t.startswith("c:"):
                assert re.search(rf"\bTEST\({t[2:]}\)", ctests), f"row {n}: no C test {t}"
                continue
            path, _, fn = t.partition("::")
            assert os.path.exists(os.path.join(ROOT, path)), f"row {n}: no file {path}"
            assert not fn or re.search(rf"^def {fn}\(", read(path), re.M), f"row {n}: no function {fn} in {path}"


def test_pages_of_logs_and_options_are_what_their_generators_write():
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import gendocs_logging
    import gendocs_options
    for name, page in (("logging", gendocs_logging.page()), ("options", gendocs_options.page())):
        assert read(f"docs/{name}.md") == page, f"run python3 tools/gendocs_{name}.py: the page is not written by hand"


def test_generator_runs():
    sys.path.insert(0, os.path.join(ROOT, "tools"))
    import ast
    import gendocs
    names = gendocs.collect_names()
    ast.parse(gendocs.c_pyi(names))
    ast.parse(gendocs.init_pyi(names))
    page = gendocs.ops_md()
    assert "| `add.Tensor` |" in page and page.count("\n| `") >= len(gendocs.C._schemas())


def test_committed_files_name_no_machine():
    out = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True)
    if out.returncode:
        return
    bad = []
    for name in out.stdout.decode().split("\0"):
        full = os.path.join(ROOT, name)
        if name and os.path.isfile(full) and not name.endswith("test_docs.py"):
            with open(full, "rb") as f:
                data = f.read()
            if re.search(rb"/(work|root)/\w", data):
                bad.append(name)
    assert not bad, bad


def test_the_gallery_shows_all_examples():
    page = read("docs", "gallery.md")
    for name in os.listdir(os.path.join(ROOT, "examples")):
        assert name.startswith("__") or f"(../examples/{name})" in page, name
