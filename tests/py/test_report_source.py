"""The program's own code on the report page, with marks in its margin, and the memory of compiled graphs as a plot."""
import html, json, os, re, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import test_report_page as pages

PROGRAM = """import taper

def helper(x):
    return x.cos()

class Net(taper.nn.Module):
    def forward(self, x):
        y = taper.relu(x)

        return helper(y)

net = Net()

@taper.compile
def fine(x):
    return net(x) + 1

@taper.compile
def broken(x):
    y = x + 1
    print("<b>secret</b>", end="")
    return y * 2

@taper.compile
def again(x, k):
    y = x * k
    unused = 3
    return y

@taper.compile(fullgraph=True)
def refused(x):
    print("no")
    return x + 1

fine(taper.ones(3))
broken(taper.ones(3))
for k in (1.5, 2.5):
    again(taper.ones(3), k)
try:
    refused(taper.ones(3))
except Exception:
    pass
"""


def functions(page):
    """name -> (open?, summary, [(mark, line, code)], notes)"""
    out = {}
    section = page.split('<section id="source">')[1].split("</section>")[0]
    for item in re.findall(r'<details class="item".*?</details>', section, re.S):
        summary = re.sub(r"\s+", " ", html.unescape(re.sub("<[^>]*>", "", item.split("</summary>")[0].split("<summary>")[1])))
        rows = re.findall(r'<li(?: class="(\w+)")?><span class="m">(.*?)</span><span class="no">(\d+)</span><span>(.*?)</span></li>', item, re.S)
        notes = [html.unescape(re.sub("<[^>]*>", "", n)) for n in re.findall(r'<li class="note \w+">(.*?)</li>', item, re.S)]
        out[summary.split()[0]] = ("open" in item.split(">")[0], summary, [(m, int(n), html.unescape(re.sub("<[^>]*>", "", c))) for _, m, n, c in rows], notes)
    return out


def test_marks_in_the_margin():
    with pages.Trace(PROGRAM, name="marked.py") as t:
        page = t.report()
        f = functions(page)
        assert list(f) == ["helper", "forward", "fine", "broken", "again", "refused"], list(f)
        lines = PROGRAM.split("\n")
        for name, (_, _, rows, _) in f.items():
            for _, n, code in rows:
                assert code == lines[n - 1], (name, n, code)
        marks = {name: {n: m for m, n, _ in rows if m} for name, (_, _, rows, _) in f.items()}
        assert marks["helper"] == {4: "\u2713"} and marks["forward"] == {8: "\u2713", 10: "\u2713"}, marks
        assert marks["fine"] == {16: "\u2713"}, marks
        assert marks["broken"] == {20: "\u2713", 21: "\u25d0", 22: "\u2713"}, marks
        assert marks["again"] == {25: "\u21bb", 26: "\u2713"}, marks
        assert marks["refused"].get(31) == "\u2715", marks
        assert [f[n][0] for n in f] == [False, False, False, True, True, True], "folded where nothing is wrong"
        assert "1 graph break" in f["broken"][1] and "builtin: print" in f["broken"][3][0] and "Print outside" in f["broken"][3][0], f["broken"]
        assert "1 error" in f["refused"][1] and "Not compiled" in f["refused"][3][0], f["refused"]
        assert "1 recompile" in f["again"][1] and "was 1.5, now 2.5" in f["again"][3][0], f["again"]
        assert "<b>secret" not in page, "escaped"
        assert "href=\"#source\"" in page
        hidden = t.report("--redact")
        assert "helper" not in pages.text_of(hidden) and "Left out: it is the source" in hidden


def test_a_function_is_recorded_once():
    with pages.Trace(PROGRAM + "for n in (4, 5, 6):\n    again(taper.ones(n), 1.5)\n") as t:
        (log,) = os.listdir(t.traces)
        with open(os.path.join(t.traces, log)) as f:
            text = f.read()
        got = [json.loads(x) for x in re.findall(r'"name": "source".*\n\t(.*)\n', text)]
        assert sorted(x["name"] for x in got) == ["again", "broken", "fine", "forward", "helper", "refused"], [x["name"] for x in got]
        assert got[0]["lines"][0] == "@taper.compile" and got[0]["line"] == 14, got[0]
        assert re.search(r'"calls": \{"[^"]*private_model.py": \[(10, 16|16, 10)\]\}', text), "calls of what became part of the graph"


def test_memory_names_the_peak_and_what_holds_it():
    program = """
import taper
@taper.compile
def grows(x):
    big = taper.softmax(x @ x, -1)
    small = big.sum(-1)
    return small @ x, big[0]
grows(taper.ones(64, 64))
"""
    with pages.Trace(program, name="grows.py") as t:
        page = t.report()
        (log,) = os.listdir(t.traces)
        with open(os.path.join(t.traces, log)) as f:
            record = json.loads(re.search(r'"name": "memory".*\n((\t.*\n)+)', f.read()).group(1).replace("\n\t", "\n"))
        alive = [sum(v["bytes"] for v in record["values"] if v["first"] <= s <= v["last"]) for s in range(len(record["steps"]))]
        peak = alive.index(max(alive))
        text = pages.text_of(page)
        size = f"{max(alive) / 1000:.1f} kB" if max(alive) < 100000 else f"{max(alive) / 1000:.0f} kB"
        assert f"has at most {size} alive, at step {peak + 1} of {len(alive)} ( {record['steps'][peak]} )" in text, (alive, text[text.find("has at most"):][:200])
        assert record["inputs"] == 64 * 64 * 4 and max(alive) >= 64 * 64 * 4, record
        largest = max((v for v in record["values"] if v["first"] <= peak <= v["last"]), key=lambda v: v["bytes"])
        assert re.search(re.escape(largest["name"]) + r" 16\.4 kB \d+ % \d+ to \d+ (a result )?grows\.py:5", text), text[text.find("largest first"):][:300]
        assert page.count('<rect class="hot"') == len(alive)
        assert "grows.py:5" not in t.report("--redact")


def test_damaged_records_do_no_harm():
    with pages.Trace(PROGRAM) as t:
        (log,) = os.listdir(t.traces)
        path = os.path.join(t.traces, log)
        with open(path) as f:
            text = f.read()
        for a, b in (('"lines": [', '"lines": 3, "x": ['), ('"steps": [', '"steps": {}, "x": ['), ('"first": 0', '"first": -7'), ('"last": 0', '"last": 99999999'), ('"bytes": 12', '"bytes": 9223372036854775807')):
            with open(path, "w") as f:
                f.write(text.replace(a, b))
            page = t.report()
            assert "Compiles" in page


REWRITTEN = """
import taper
w = taper.tensor([1.0, 2.0, 3.0])
@taper.compile
def layer(x):
    y = taper.sin(x) + taper.sin(x)
    return y * (w * 2) * 1
layer(taper.ones(2, 3, requires_grad=True)).sum().backward()
"""


def test_rewrites_one_by_one():
    with pages.Trace(REWRITTEN, name="layer.py", TAPER_DTRACE=None) as t:
        page = t.report()
        walk = page.split('<div class="walk">')[1].split("</details>\n</div>")[0]
        steps = walk.split('<details class="step">')[1:]
        heads = [html.unescape(re.sub("<[^>]*>", "", s.split("</summary>")[0])).strip() for s in steps]
        assert any(re.fullmatch(r"\d use one node for two equal ones: cse:sin_1@layer\.py:6 ?", h) for h in heads), heads
        assert any("drop a node that changes nothing: noop:" in h for h in heads), heads
        for s, h in zip(steps, heads):
            gone = [html.unescape(x) for x in re.findall(r'<div class="d">(.*?)</div>', s)]
            came = [html.unescape(x) for x in re.findall(r'<div class="a">(.*?)</div>', s)]
            assert gone and len(gone) > len(came), (h, gone, came)
            if "cse:sin_1@" in h:
                assert any("sin_1:" in x and "taper.sin(" in x for x in gone) and any("= sin + sin" in x for x in came) and len(gone) == 2, (gone, came)
        (log,) = os.listdir(t.traces)
        path = os.path.join(t.traces, log)
        with open(path) as f:
            text = f.read()
        for a, b in (("\n\t@ ", "\n\t@ 99999"), ("\n\trewrite ", "\n\tnonsense "), ("\n\tgraph __", "\n\t__")):
            with open(path, "w") as f:
                f.write(text.replace(a, b))
            assert "Compiles" in t.report()
    with pages.Trace(REWRITTEN, name="layer.py") as t:
        assert '<div class="walk">' not in t.report(), "only a detailed trace holds it"


def test_what_is_not_part_of_a_graph_is_named_below_and_zeros_are_quiet():
    # functools.wraps and update_wrapper are traced, and leave nothing in the graph
    program = "import taper\n@taper.compile\ndef each(x):\n    return taper.vmap(lambda r: r.sin())(x)\neach(taper.ones(2, 3))\n" \
              "@taper.compile\ndef cut(x):\n    y = x + 1\n    print(end='')\n    return y * 2\ncut(taper.ones(3))\n"
    with pages.Trace(program, name="quiet.py") as t:
        page = t.report()
    section = page.split('<section id="source">')[1].split("</section>")[0]
    above, below = section.split("with no line in a graph")
    assert "update_wrapper" in below and "update_wrapper" not in above and "functools.py" not in above and '<b class="mono">each' in above
    assert re.search(r'<div class="tile none"><b>0</b>errors', page) and re.search(r'<div class="tile"><b>1</b>graph break', page)
    assert "taper_resume_in_cut" not in page.split('<section id="timeline">')[1].split("</section>")[0] and ", after line " in page
