"""tools/site.py: every document becomes a page, links between them hold, and the search finds things (in Chromium, where there is one)."""
import html
import importlib.util
import os
import re
import tempfile

import browser

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
spec = importlib.util.spec_from_file_location("site_builder", os.path.join(ROOT, "tools", "site.py"))
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return f.read()


def test_pages_and_links():
    with tempfile.TemporaryDirectory() as d:
        n, sections = site.build(d)
        pages = [f for f in os.listdir(d) if f.endswith(".html")]
        documents = [f for f in os.listdir(os.path.join(ROOT, "docs")) if f.endswith(".md")]
        reference = [f for f in pages if f.startswith("api-")]
        assert n == len(pages) == len(documents) + 3 + len(reference) and sections > 80 and len(reference) > 20
        for name in pages:
            text = read(d, name)
            assert text.count("<h1") == 1 and "\0" not in text, name
            for link in re.findall(r'(?:href|src)="([^"]+)"', text):
                link = html.unescape(link)
                if re.match(r"[a-z]+:", link):
                    continue
                file, _, part = link.partition("#")
                target = os.path.join(d, file or name)
                assert os.path.exists(target), (name, link)
                assert not part or f'id="{part}"' in read(target), (name, link)


def test_markdown():
    p = site.Page("x", "# T *e* `a<b`\n\ntext **bold** [l](y.md) <https://a.b/c>\n\n| a | b |\n| --- | --- |\n| `x\\|y` | 2 |\n\n- one\n  more\n- two\n\n1. first\n\n"
                       "```python\nif 1: x = 'a'  # <c>\n```\n\n    plain\n\n> quoted\n<!-- gone -->\n## T\n## T\n", lambda t: t)
    text = "\n".join(p.body)
    for want in ("<h1", "<em>e</em>", "<code>a&lt;b</code>", "<strong>bold</strong>", '<a href="y.md">l</a>', '<a href="https://a.b/c">', "<th>a</th>", "<code>x|y</code>",
                 "<ul><li>one more</li><li>two</li></ul>", "<ol><li>first</li></ol>", '<span class="k">if</span>', "&lt;c&gt;", "<pre><code>plain</code></pre>",
                 "<blockquote><p>quoted</p></blockquote>", 'id="t-2"'):
        assert want in text, (want, text)
    assert "gone" not in text and p.title == "T *e* a<b"


def test_reference():
    """Signatures, texts and examples of docstrings; a page without the package built is left out, not broken."""
    pages = site.reference()
    for page, wants in (("api-nn", ("## Linear\n\n```python\nclass Linear(in_features, out_features, bias=True", ">>> nn.Linear(3, 4)(taper.ones(2, 3)).shape")),
                        ("api-taper", ("## sin\n\n```python\nsin(Tensor input, *, Tensor out = None)\n", "## compile\n\n```python\ncompile(model=None, ")),
                        ("api-tensor", ("## view\n",)), ("api-profiler", ("- `export_memory_timeline(self, path, device=None)`: ",))):
        for want in wants:
            assert want in pages[page], (page, want)
    with tempfile.TemporaryDirectory() as d:
        n, _ = site.build(d, with_reference=False)
        assert n == len([f for f in os.listdir(d) if f.endswith(".html")]) and not os.path.exists(os.path.join(d, "api-nn.html"))


def test_in_the_browser():
    with tempfile.TemporaryDirectory() as d:
        site.build(d)
        with browser.Browser() as b:
            for width in (390, 1280, 1920):
                for name in ("api-nn", "install", "tutorial"):
                    page = b.open(os.path.join(d, name + ".html"), width=width)
                    assert page.eval("document.documentElement.scrollWidth <= innerWidth"), f"{name} scrolls sideways at {width}"
            page.eval("const i = document.querySelector('header input'); i.value = 'checksums verified'; i.dispatchEvent(new Event('input'))")
            found = page.eval("document.getElementById('found').innerText")
            assert "Checkpoints" in found and page.eval("document.querySelector('#found a').href").endswith("checkpoints.html#files-from-anywhere"), found
            assert not page.console, page.console
