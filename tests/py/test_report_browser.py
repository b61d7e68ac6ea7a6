"""(sanitize: skip, a browser does not start under a preloaded sanitizer) The report page in a real browser: no complaints, search, fold, sort, diff, widths, colours, and nothing planted runs.

Skips where there is no Chromium. TAPER_SHOTS=DIR keeps screenshots."""
import atexit, json, os, sys, time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from browser import Browser
import test_report_page as pages

EVIL = "<script>document.title='planted';window.ran=1</script><img src=x onerror=window.ran=1>"
PLANTED = """
import taper, os
evil = %r
def make(name):
    code = compile("def f(x):\\n    return (x + 1).sin()\\n", evil + ".py", "exec")
    space = {}
    exec(code, space)
    return space["f"]
f = make("f")
f.__code__ = f.__code__.replace(co_name=evil, co_qualname=evil, co_varnames=(evil,))
f.__name__ = f.__qualname__ = evil
taper.compile(f)(taper.ones(3))
taper.compile(f)(taper.ones(4))
def bad(gm, inputs):
    raise RuntimeError(evil)
try:
    taper.compile(lambda x: x * 2, backend=bad)(taper.ones(3))
except Exception:
    pass
""" % EVIL


_browser = []


def browser():
    """One for all tests; it ends with the process."""
    if not _browser:
        b = Browser()
        atexit.register(b.__exit__)
        _browser.append(b)
    return _browser[0]


def wait(page, js, what):
    deadline = time.monotonic() + 10
    while not page.eval(js):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def shot(page, name, **kw):
    if os.environ.get("TAPER_SHOTS"):
        page.shot(os.path.join(os.environ["TAPER_SHOTS"], name), **kw)


def visible(page, selector):
    return page.eval("[].filter.call(document.querySelectorAll(%s),function(e){return e.offsetParent!==null;}).length" % json.dumps(selector))


def test_search_fold_and_sort():
    b = browser()
    with pages.Trace(TAPER_PROFILE="1") as t:
        t.report()
        page = b.open(os.path.join(t.dir, "out.html"), 1600, 1100)
        assert page.eval("document.title") == "Taper compile report" and page.console == [], page.console
        shot(page, "overview.png")
        assert page.eval("document.getElementById('s').hidden") is False
        # the key '/' starts a search
        page.key("/")
        assert page.eval("document.activeElement.id") == "q" and page.eval("document.getElementById('q').value") == ""
        all_items = visible(page, ".item")
        page.type("noisy")
        wait(page, "document.getElementById('n').textContent.indexOf(' of ')>0", "search answers")
        few = visible(page, ".item")
        assert 0 < few < all_items, (few, all_items)
        assert page.eval("[].every.call(document.querySelectorAll('.item:not(.hide)'),function(e){return e.textContent.indexOf('noisy')>=0;})")
        page.eval("document.getElementById('q').value='';document.getElementById('q').dispatchEvent(new Event('input'))")
        wait(page, "document.querySelectorAll('.hide').length===0", "search ends")
        # fold and unfold
        page.click("#o")
        assert page.eval("[].every.call(document.querySelectorAll('main details'),function(d){return d.open;})")
        shot(page, "compile.png", selector="#c0", height=1400)
        page.click("#f")
        assert page.eval("[].every.call(document.querySelectorAll('main details'),function(d){return !d.open;})")
        # a link to a compile unfolds it
        page.eval("location.hash='#c0'")
        wait(page, "document.getElementById('c0').open", "the target of a link is unfolded")
        # sort by calls, both ways
        calls = "[].map.call(document.querySelectorAll('#regions tbody tr'),function(r){return +r.cells[2].textContent;})"
        for way in (1, -1):
            page.click("#regions th:nth-child(3) button")
            v = page.eval(calls)
            assert v == sorted(v)[::way] and len(set(v)) > 1, v
        assert page.console == [], page.console


def test_enter_goes_to_each_place_of_what_is_searched():
    """Unfolded, scrolled into sight also within the box of a long text, and marked."""
    b = browser()
    program = "import taper\n@taper.compile\ndef f(x):\n" + "".join(f"    x = (x + {i}).sin()\n" for i in range(90)) + "    return x\nf(taper.ones(3))\n"
    seen = """(function(){var r=Array.from(CSS.highlights.get('hit'))[0],h=r.getBoundingClientRect(),e=r.startContainer.parentElement.closest('pre'),
        c=e?e.getBoundingClientRect():null;return [r.toString(),h.top>0&&h.bottom<innerHeight,!e||(h.top>=c.top&&h.bottom<=c.bottom),h.top];})()"""
    with pages.Trace(program) as t:
        t.report()
        page = b.open(os.path.join(t.dir, "out.html"), 1200, 900)
        page.key("/")
        page.type("SIN_77 ")
        places = []
        for _ in range(3):
            page.key("Enter")
            assert page.eval("document.activeElement.id") == "q", "the next key goes on"
            text, in_window, in_box, top = page.eval(seen)
            assert text == "sin_77 " and in_window and in_box, (text, in_window, in_box, top)
            places.append(page.eval("(function(){var r=Array.from(CSS.highlights.get('hit'))[0];return r.startContainer.parentElement.closest('details').textContent.length+' '+r.startOffset+' '+"
                                    "r.startContainer.data.slice(0,60)})()"))
        assert len(set(places)) > 1, places
        assert page.console == [], page.console


def test_no_sideways_scrolling_and_both_colours():
    b = browser()
    with pages.Trace() as t:
        t.report()
        path = os.path.join(t.dir, "out.html")
        for width in (400, 800, 1600):
            page = b.open(path, width, 900)
            page.click("#o")
            assert page.eval("document.documentElement.scrollWidth<=innerWidth"), (width, page.eval("document.documentElement.scrollWidth"))
            shot(page, f"width{width}.png")
        light, dark = b.open(path), b.open(path, dark=True)
        back = "getComputedStyle(document.body).backgroundColor"
        assert light.eval(back) != dark.eval(back)
        shot(dark, "dark.png")
        for page in (light, dark):  # readable: every status tag has a contrast of 4.5 or more
            low = page.eval("""(function(){function lum(c){c=c.match(/[\\d.]+/g).slice(0,3).map(function(v){v/=255;return v<=.03928?v/12.92:Math.pow((v+.055)/1.055,2.4);});
                return .2126*c[0]+.7152*c[1]+.0722*c[2];}var worst=99;[].forEach.call(document.querySelectorAll('.tag'),function(e){var s=getComputedStyle(e),
                a=lum(s.color),b=lum(s.backgroundColor);worst=Math.min(worst,(Math.max(a,b)+.05)/(Math.min(a,b)+.05));});return worst;})()""")
            assert low >= 4.5, low


def test_readable_without_script():
    b = browser()
    with pages.Trace() as t:
        t.report()
        page = b.open(os.path.join(t.dir, "out.html"), script=False)
        html = page.send("DOM.getOuterHTML", nodeId=page.send("DOM.getDocument", depth=-1)["root"]["nodeId"])["outerHTML"]
        assert '<div id="s" hidden' in html and "What to do next" in html and "<summary>" in html
        assert page.console == [], page.console


def test_diff_marks_the_planted_difference():
    b = browser()
    with pages.Trace() as a, pages.Trace(pages.PROGRAM.replace(".sin()", ".cos()")) as c:
        a.report("--diff", c.traces)
        page = b.open(os.path.join(a.dir, "out.html"), 1600, 1100)
        assert page.eval("document.title") == "Two compile traces side by side" and page.console == []
        gone = page.eval("[].map.call(document.querySelector('.side').querySelectorAll('.d'),function(e){return e.textContent;}).join('\\n')")
        came = page.eval("[].map.call(document.querySelector('.side').querySelectorAll('.a'),function(e){return e.textContent;}).join('\\n')")
        assert "called from" not in gone, "the same line under another directory is the same line"
        assert "taper.sin(" in gone and "taper.cos(" not in gone and "taper.cos(" in came and "taper.sin(" not in came, (gone[:500], came[:500])
        assert visible(page, ".side .d") > 0 and visible(page, ".side .u") > 0
        narrow = b.open(os.path.join(a.dir, "out.html"), 400, 900)  # one column: what is equal is shown once
        assert visible(narrow, ".side .r") == visible(narrow, ".side .e") == 0 < visible(narrow, ".side .u"), visible(narrow, ".side .u")
        shot(page, "diff.png")


def test_nothing_planted_runs():
    b = browser()
    with pages.Trace(PLANTED) as t:
        html = t.report()
        assert html.count("&lt;script&gt;document.title") > 5, "the name, the file, the variable and the message are shown"
        page = b.open(os.path.join(t.dir, "out.html"))
        page.click("#o")
        assert page.eval("document.title") == "Taper compile report" and page.eval("window.ran") is None
        assert page.eval("document.querySelectorAll('script').length") == 1 and page.eval("document.querySelectorAll('img').length") == 0
        for place in ("#stacks", "#breaks", "#compiles", "#regions"):
            assert page.eval(f"document.querySelector('{place}').textContent.indexOf('<script>')>=0"), place
        assert page.eval("document.querySelector('#compiles pre').textContent.length>0")
        assert page.console == [], page.console
        # and the policy would stop what escaping did not
        page.eval("var s=document.createElement('script');s.textContent='window.ran=2';document.body.appendChild(s)")
        assert page.eval("window.ran") is None
# sanitize: skip


def test_graphs_are_pictures_that_say_where_a_box_comes_from():
    program = """
import taper
@taper.compile
def scaled(x):
    y = x.sin() + 1
    return (y / y.sum(-1, keepdim=True)).exp()
scaled(taper.ones(3, 4))
"""
    with pages.Trace(program) as t:
        t.report()
        page = browser().open(os.path.join(t.dir, "out.html"), width=390)
        assert page.eval("document.querySelectorAll('.pic svg g.op').length") >= 4
        page.eval("[].forEach.call(document.querySelectorAll('details'),function(e){e.open=true;});1")
        page.eval("var g=[].filter.call(document.querySelectorAll('.pic g.op'),function(e){return e.querySelector('text').textContent==='exp';})[0];"
                  "g.dispatchEvent(new MouseEvent('click',{bubbles:true}));1")
        said = page.eval("[].map.call(document.querySelectorAll('.pick:not([hidden])'),function(e){return e.textContent;}).join()")
        assert "y.sum(-1, keepdim=True)).exp()" in said, said
        wide = page.eval("+document.querySelector('.pic svg').getAttribute('width')")
        page.eval("document.querySelector('.pic .zoom button').click();1")
        assert page.eval("+document.querySelector('.pic svg').getAttribute('width')") > wide
        assert page.eval("document.documentElement.scrollWidth") <= 390
        assert "0" in page.eval("document.querySelector('.tl .axis').textContent")
        page.eval("document.querySelector('#timeline .zoom button').click();1")
        assert page.eval("document.querySelector('.tl').style.getPropertyValue('--z')") == "1.5"
        assert not page.console, page.console


def test_source_memory_and_rewrites_in_every_width():
    import test_report_source as source
    with pages.Trace(source.PROGRAM + source.REWRITTEN, TAPER_DTRACE=None) as t:
        t.report()
        for width in (390, 1280, 1920):
            for dark in (False, True):
                page = browser().open(os.path.join(t.dir, "out.html"), width, 1000, dark=dark)
                page.click("#o")
                assert page.eval("document.documentElement.scrollWidth") <= width and not page.console, (width, page.console)
                out = page.eval("[].filter.call(document.querySelectorAll('.src li.note,.mem'),function(e){var r=e.getBoundingClientRect();return r.right>innerWidth||r.width<200;}).length")
                assert out == 0, (width, out)
                shot(page, f"source{width}{'dark' if dark else ''}.png", selector="#source")
        page.click("#f")
        page.eval("location.hash='#source'")
        page.eval("[].forEach.call(document.querySelectorAll('.walk'),function(e){for(;e;e=e.parentElement)if(e.tagName==='DETAILS')e.open=true;});1")
        opened = "[].map.call(document.querySelector('.walk').querySelectorAll('.step'),function(e){return e.open?1:0;})"
        press = "[].filter.call(document.querySelectorAll('.zoom button'),function(b){return b.textContent.indexOf('%s')>=0;})[0].click();1"
        first = page.eval(opened)
        assert sum(first) == 0 and len(first) >= 3, first
        for word, at in (("next", 0), ("next", 1), ("previous", 0), ("previous", 0)):
            page.eval(press % word)
            now = page.eval(opened)
            assert sum(now) == 1 and now[at] == 1, (word, now)
        assert not page.console, page.console
