"""The words for guards and sources in the trace, which another thread writes, are Python's own."""
import glob, json, os, re, subprocess, sys, tempfile

PROGRAM = """
import math, enum, taper
from taper import nn
class Meta(type):
    def __repr__(cls): return "<%s the odd>" % cls.__name__
class Odd(metaclass=Meta): k = 2
class Größe(enum.Enum):
    KLEIN = 1
class Outer:
    class Holder: pass
cfg = {"é": 1, 5: 2, True: 3, 0.5: 4, (1, "a"): 5, "q'": 6, None: 7}
h = Outer.Holder()
h.größe, h.eps, h.big, h.inf, h.nan, h.zero, h.neg = 2, 1e-05, 10**30, math.inf, math.nan, -0.0, -3
h.s, h.t, h.odd, h.e, h.none, h.flag, h.b, h.items = 'it\\'s "é"\\n', "plain", Odd(), Größe.KLEIN, None, True, b"xy", [[1], (2.5,)]
m = nn.Sequential(*[nn.Linear(4, 4) for _ in range(24)])
def f(x, *, kw=3, d=0.25):
    y = m(x)
    for k in cfg: y = y + cfg[k]
    y = y * h.größe + h.eps + h.neg * d + kw + h.odd.k + h.zero + h.items[1][0]
    if h.big > 5 and h.inf > 3 and h.nan != h.nan and h.s != "" and h.t == "plain" and h.e is Größe.KLEIN and h.none is None and h.flag and h.b:
        y = y + 1
    return y
taper.compile(f)(taper.ones(2, 4), d=0.75)
"""
WANTED = r"""
___check_type_id(G['h'], 0), type=<class '__main__.Outer.Holder'> (HINT: type Holder)
list(dict.keys(G['cfg'])) == ['é', 5, True, 0.5, (1, 'a'), "q'", None]
G['cfg']['é'] == 1
G['cfg'][5] == 2
G['cfg'][True] == 3
G['cfg'][0.5] == 4
G['cfg'][(1, 'a')] == 5
G['cfg']["q'"] == 6
G['cfg'][None] == 7
G['h'].größe == 2
G['h'].eps == 1e-05
G['h'].neg == -3
G['h'].items[1][0] == 2.5
L['d'] == 0.75
L['kw'] == 3
___check_type_id(G['h'].odd, 0), type=<Odd the odd> (HINT: type Odd)
G['h'].odd.k == 2
G['h'].zero == -0.0
G['h'].big == 1000000000000000000000000000000
G['h'].inf == inf
(type(G['h'].nan) is float and __math_isnan(G['h'].nan))
G['h'].s == 'it\'s "é"\n'
G['h'].t == 'plain'
___check_obj_id(G['h'].e, 0), type=<enum 'Größe'>
G['h'].none is None
G['h'].flag == True
G['h'].b == b'xy'
___check_type_id(G['m'], 0), type=<class 'taper.nn.modules.container.Sequential'> (HINT: type Sequential)
not ___has_hooks(G['m'])
___dict_contains('bias', G['m']._modules['11']._parameters)
""".strip().split("\n")


def run(d):
    p = subprocess.run([sys.executable, "-X", "utf8", "-c", PROGRAM], capture_output=True, text=True, encoding="utf-8",
                       env=dict(os.environ, TAPER_TRACE=d, TAPER_LOGS="guards", TAPER_CACHE="0"))
    assert p.returncode == 0, p.stderr[-2000:]
    lines = open(glob.glob(d + "/*.log")[0], encoding="utf-8").read().split("\n")
    payloads = [json.loads(lines[i + 1]) for i, l in enumerate(lines) if '{"dynamo_guards": ' in l]
    assert len(payloads) == 1
    return [g["code"] for g in payloads[0]], lines, p.stderr


def test_words_are_pythons():
    with tempfile.TemporaryDirectory() as d:
        codes, lines, log = run(d)
    assert len(codes) > 200  # enough of them for the other thread
    masked = {re.sub(r"(_id\([^,]*), \d+", r"\1, 0", c) for c in codes}
    for w in WANTED:
        assert w in masked, w
    assert [c for c in codes if c not in log] == []  # the log, made by the compiling thread, says the same


def test_inputs_have_their_sources():
    with tempfile.TemporaryDirectory() as d:
        codes, lines, log = run(d)
    sources = [json.loads(l[l.index(" {"):])["describe_source"]["source"] for l in lines if '{"describe_source": ' in l]
    assert "L['x']" in sources and "G['m']._modules['11']._parameters['bias']" in sources and len(sources) == 49
    tensors = [json.loads(l[l.index(" {"):])["describe_tensor"] for l in lines if '{"describe_tensor": ' in l]
    assert [t["size"] for t in tensors].count([4, 4]) == 24 and sum(t.get("is_parameter", False) for t in tensors) == 48
    assert all(t.get("requires_grad", False) == t.get("is_parameter", False) for t in tensors)
