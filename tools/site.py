#!/usr/bin/env python3
"""Builds the documentation as static pages: tools/site.py [OUT] (default docs/site). Needs nothing but Python; where the package is built, the
reference (tools/site_api.py) is part of it.

Pages are the Markdown files of docs/ and the README; what they use of Markdown is all that is understood here: headings, paragraphs, lists, tables, code,
links, images, emphasis, block quotes. Every page has the list of all pages, its own headings, and a search over all of them that runs in the browser."""
import html
import json
import os
import re
import shutil
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Groups of the list of pages; a page of docs/ that is not named here goes to the last one.
GROUPS = [
    ("Begin", ["README", "install", "tutorial", "coming-from-pytorch", "gallery", "faq", "how-to-report", "comparison", "CHANGELOG"]),
    ("Guides", ["checkpoints", "export", "onnx", "troubleshooting", "debugging", "report", "logging", "graph-breaks", "pytorch", "distributed", "gpu", "autograd", "random", "cache", "performance"]),
    ("Reference", ["ops", "options", "graph", "numerics", "programs", "opinfo"]),
    ("Inside", ["ARCHITECTURE", "kernels", "rewrites", "CONTRIBUTING"]),
]

CSS = """
:root { --bg: #fff; --fg: #1c2024; --dim: #60646c; --line: #d9dce1; --soft: #f4f5f7; --link: #0b5cad; --mark: #fff3bf; }
@media (prefers-color-scheme: dark) { :root { --bg: #15181c; --fg: #e3e6ea; --dim: #9aa1ab; --line: #31363d; --soft: #1e2228; --link: #7ab7f5; --mark: #5a4a00; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 4rem; }
body { margin: 0; background: var(--bg); color: var(--fg); font: 16px/1.6 system-ui, sans-serif; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
header { position: sticky; top: 0; z-index: 2; display: flex; gap: 1rem; align-items: center; padding: .6rem 1.2rem; background: var(--bg); border-bottom: 1px solid var(--line); }
header b { font-size: 1.1rem; } header input { margin-left: auto; width: min(22rem, 50vw); padding: .35rem .6rem; font: inherit; color: inherit; background: var(--soft); border: 1px solid var(--line); border-radius: 6px; }
.page { display: grid; grid-template-columns: 15rem minmax(0, 52rem) 14rem; gap: 2.5rem; max-width: 90rem; margin: 0 auto; padding: 0 1.2rem; }
nav { font-size: .92rem; } nav .in { position: sticky; top: 3.4rem; max-height: calc(100vh - 3.4rem); overflow: auto; padding: 1.2rem 0; }
nav h4 { margin: 1rem 0 .2rem; font-size: .75rem; text-transform: uppercase; letter-spacing: .06em; color: var(--dim); }
nav a { display: block; padding: .12rem .5rem; color: inherit; border-radius: 5px; } nav a.here { background: var(--soft); font-weight: 600; } nav a.deep { padding-left: 1.3rem; }
main { padding: 1rem 0 5rem; min-width: 0; } h1, h2, h3 { overflow-wrap: anywhere; } h1 { line-height: 1.2; } h2 { margin-top: 2.2rem; padding-bottom: .2rem; border-bottom: 1px solid var(--line); }
h1 a.at, h2 a.at, h3 a.at { color: var(--dim); visibility: hidden; margin-left: .4rem; font-weight: 400; } :is(h1, h2, h3):hover a.at { visibility: visible; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; overflow: auto; line-height: 1.45; position: relative; }
code { font: .88em ui-monospace, monospace; background: var(--soft); padding: .08em .3em; border-radius: 4px; overflow-wrap: anywhere; } pre code { padding: 0; background: none; overflow-wrap: normal; }
.file { display: inline-block; font: .8rem ui-monospace, monospace; color: var(--dim); border: 1px solid var(--line); border-bottom: 0; border-radius: 8px 8px 0 0; padding: .15rem .7rem; background: var(--soft); } .file + pre { margin-top: 0; border-top-left-radius: 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .93rem; } th, td { border: 1px solid var(--line); padding: .35rem .6rem; text-align: left; vertical-align: top; } th { background: var(--soft); }
td code { overflow-wrap: normal; } img { max-width: 100%; border: 1px solid var(--line); border-radius: 8px; } blockquote { margin: 1rem 0; padding: .1rem 1rem; border-left: 3px solid var(--line); color: var(--dim); }
.p { color: var(--dim); user-select: none; } .k { color: #a626a4; } .s { color: #3d8a3a; } .c { color: var(--dim); } @media (prefers-color-scheme: dark) { .k { color: #d59bf0; } .s { color: #93c98f; } }
.copy { position: absolute; top: .4rem; right: .5rem; font: .75rem system-ui; border: 1px solid var(--line); background: var(--bg); color: var(--dim); border-radius: 5px; cursor: pointer; opacity: 0; } pre:hover .copy, .copy:focus { opacity: 1; }
#found { position: fixed; right: 1.2rem; top: 3.2rem; width: min(34rem, calc(100vw - 2.4rem)); max-height: 70vh; overflow: auto; background: var(--bg); border: 1px solid var(--line); border-radius: 8px; box-shadow: 0 8px 30px #0004; z-index: 3; }
#found a { display: block; padding: .5rem .8rem; color: inherit; border-bottom: 1px solid var(--line); } #found a.on, #found a:hover { background: var(--soft); text-decoration: none; } #found small { color: var(--dim); display: block; } mark { background: var(--mark); color: inherit; }
footer { color: var(--dim); font-size: .85rem; border-top: 1px solid var(--line); margin-top: 3rem; padding-top: .8rem; } summary { cursor: pointer; padding: .5rem 0; }
@media (max-width: 1100px) { .page { grid-template-columns: 14rem minmax(0, 1fr); } nav.toc { display: none; } }
@media (max-width: 720px) { .page { display: block; } nav.pages .in { position: static; max-height: none; padding: .4rem 0 0; } }
@media (min-width: 721px) { nav.pages summary { display: none; } }
"""

JS = """
const box = document.querySelector('header input'), out = document.getElementById('found');
let rows = null, on = -1;
async function load() { if (!rows) rows = window.INDEX; return rows; }
function esc(s) { const e = document.createElement('i'); e.textContent = s; return e.innerHTML; }
box.addEventListener('input', async () => {
  const words = box.value.toLowerCase().split(/\\s+/).filter(w => w.length > 1);
  out.hidden = !words.length; on = -1;
  if (!words.length) return;
  const hits = [];
  for (const [page, url, head, text] of await load()) {
    const t = text.toLowerCase(), h = (page + ' ' + head).toLowerCase();
    let score = 0;
    for (const w of words) { const inHead = h.includes(w), n = t.split(w).length - 1; if (!inHead && !n) { score = 0; break; } score += (inHead ? 20 : 0) + Math.min(n, 5); }
    if (score) hits.push([score, page, url, head, text, t]);
  }
  hits.sort((a, b) => b[0] - a[0]);
  out.innerHTML = hits.slice(0, 12).map(([, page, url, head, text, t]) => {
    const at = Math.max(0, t.indexOf(words[0]) - 50);
    let s = esc(text.slice(at, at + 160));
    for (const w of words) s = s.replace(new RegExp('(' + esc(w).replace(/[.*+?^${}()|[\\]\\\\]/g, '\\\\$&') + ')', 'ig'), '<mark>$1</mark>');
    return `<a href="${url}"><b>${esc(head)}</b> <small>${esc(page)}</small><small>${s}</small></a>`;
  }).join('') || '<a>Nothing found</a>';
});
box.addEventListener('keydown', e => {
  const all = out.querySelectorAll('a[href]');
  if (e.key === 'Escape') { out.hidden = true; return; }
  if (e.key === 'ArrowDown' || e.key === 'ArrowUp') { on = (on + (e.key === 'ArrowDown' ? 1 : -1) + all.length) % all.length; all.forEach((a, i) => a.classList.toggle('on', i === on)); e.preventDefault(); }
  if (e.key === 'Enter' && all.length) location.href = all[Math.max(on, 0)].href;
});
document.addEventListener('keydown', e => { if (e.key === '/' && document.activeElement !== box) { box.focus(); e.preventDefault(); } });
document.addEventListener('click', e => { if (!out.contains(e.target) && e.target !== box) out.hidden = true; });
if (innerWidth <= 720) document.querySelector('nav.pages details').open = false;
document.querySelectorAll('pre').forEach(p => { const b = document.createElement('button'); b.className = 'copy'; b.textContent = 'copy';
  b.onclick = () => { const lines = p.querySelector('code').innerText.split('\\n'), typed = lines.filter(l => l.startsWith('$ ')).map(l => l.slice(2));
    navigator.clipboard.writeText(typed.length ? typed.join('\\n') : lines.join('\\n')); b.textContent = 'copied'; }; p.appendChild(b); });
"""

KEYWORDS = {"python": set("and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or "
                          "pass raise return try while with yield None True False".split()),
            "c": set("int void const float double char return static struct if else for while include define bool".split()),
            "sh": set("if then else fi for do done while in export".split())}


def slug(text):
    return re.sub(r"[^\w-]+", "-", re.sub(r"<[^>]+>|`", "", text).strip().lower()).strip("-")


def inline(text, link):
    """Emphasis, code, links and images of one piece of text."""
    kept = []

    def keep(s):
        kept.append(s)
        return f"\0{len(kept) - 1}\0"
    text = re.sub(r"(`+)(.+?)\1", lambda m: keep(f"<code>{html.escape(m.group(2).strip(), False)}</code>"), text)
    text = re.sub(r"<(https?://[^>\s]+)>", lambda m: keep(f'<a href="{html.escape(m.group(1))}">{html.escape(m.group(1))}</a>'), text)
    text = html.escape(text, False)
    text = re.sub(r"!\[([^\]]*)\]\(([^)\s]+)\)", lambda m: keep(f'<img src="{html.escape(link(m.group(2)))}" alt="{m.group(1)}">'), text)
    text = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", lambda m: keep(f'<a href="{html.escape(link(m.group(2)))}">') + m.group(1) + keep("</a>"), text)
    text = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", text)
    text = re.sub(r"(?<![\w*])\*([^*\s][^*]*?)\*(?![\w*])", r"<em>\1</em>", text)
    while "\0" in text:
        text = re.sub(r"\0(\d+)\0", lambda m: kept[int(m.group(1))], text)
    return text.replace("\\|", "|")


def code(kind, text):
    """Escaped code with a little colour."""
    text = text.rstrip("\n")
    if kind == "console":
        return "\n".join(re.sub(r"^\$ ", '<span class="p">$ </span>', html.escape(line, False)) for line in text.split("\n"))
    if kind not in ("python", "c", "sh"):
        return html.escape(text, False)
    comment = r"//[^\n]*|/\*.*?\*/" if kind == "c" else r"#[^\n]*"
    parts = re.split(rf"({comment}|\"\"\".*?\"\"\"|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')", text, flags=re.S)
    out = []
    for i, p in enumerate(parts):
        if i % 2:
            out.append(f'<span class="{"s" if p[0] in chr(34) + chr(39) else "c"}">{html.escape(p, False)}</span>')
        else:
            out.append(re.sub(r"\b[a-zA-Z_]+\b", lambda m: f'<span class="k">{m.group(0)}</span>' if m.group(0) in KEYWORDS[kind] else m.group(0), html.escape(p, False)))
    return "".join(out)


class Page:
    def __init__(self, name, text, link):
        self.name, self.link, self.heads, self.sections = name, link, [], []
        self.title = name
        lines = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S).split("\n")
        self.body = self.blocks(lines)

    def note(self, text):
        if not self.sections:
            self.sections.append([self.title, "", []])
        self.sections[-1][2].append(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "").replace("**", ""))

    def heading(self, level, text):
        at = slug(text)
        n, base = 1, at
        while any(h[1] == at for h in self.heads):
            n += 1
            at = f"{base}-{n}"
        plain = re.sub(r"`|\*\*", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text))
        if level == 1:
            self.title = plain
        self.heads.append((level, at, plain))
        self.sections.append([plain, at, []])
        return f'<h{level} id="{at}">{inline(text, self.link)}<a class="at" href="#{at}" aria-label="link to this section">#</a></h{level}>'

    def table(self, rows):
        def cells(row):
            return [c.strip() for c in re.split(r"(?<!\\)\|", row.strip().strip("|") if not row.strip().endswith("\\|") else row.strip().lstrip("|"))]
        head, body = cells(rows[0]), [cells(r) for r in rows[2:]]
        for r in body:
            self.note(" ".join(r))
        top = "".join(f"<th>{inline(c, self.link)}</th>" for c in head)
        return ('<div class="wide"><table>' + (f"<thead><tr>{top}</tr></thead>" if any(head) else "") + "<tbody>"
                + "".join("<tr>" + "".join(f"<td>{inline(c, self.link)}</td>" for c in r) + "</tr>" for r in body) + "</tbody></table></div>")

    def blocks(self, lines):
        out, i = [], 0
        while i < len(lines):
            line = lines[i]
            if not line.strip():
                i += 1
            elif re.fullmatch(r"`[\w.-]+`", line) and i + 1 < len(lines) and lines[i + 1].startswith("```"):
                out.append(f'<div class="file">{html.escape(line.strip("`"))}</div>')
                i += 1
            elif line.startswith("```"):
                kind, j = line[3:].strip(), i + 1
                while j < len(lines) and not lines[j].startswith("```"):
                    j += 1
                body = "\n".join(lines[i + 1:j])
                self.note(body)
                out.append(f"<pre><code>{code(kind, body)}</code></pre>")
                i = j + 1
            elif re.match(r"#{1,4} ", line):
                level = len(line) - len(line.lstrip("#"))
                out.append(self.heading(level, line[level:].strip()))
                i += 1
            elif line.lstrip().startswith("|") and i + 1 < len(lines) and re.match(r"^\s*\|[\s:|-]+\|?\s*$", lines[i + 1]):
                j = i
                while j < len(lines) and lines[j].lstrip().startswith("|"):
                    j += 1
                out.append(self.table(lines[i:j]))
                i = j
            elif line.startswith("    "):
                j = i
                while j < len(lines) and (lines[j].startswith("    ") or not lines[j].strip()):
                    j += 1
                body = "\n".join(x[4:] for x in lines[i:j]).rstrip()
                self.note(body)
                out.append(f"<pre><code>{html.escape(body, False)}</code></pre>")
                i = j
            elif line.startswith(">"):
                j = i
                while j < len(lines) and lines[j].startswith(">"):
                    j += 1
                out.append("<blockquote>" + "".join(self.blocks([x[1:].lstrip() for x in lines[i:j]])) + "</blockquote>")
                i = j
            elif re.match(r"([-*]|\d+\.) ", line):
                i = self.list(lines, i, out)
            elif re.match(r"^(---+|\*\*\*+)\s*$", line):
                out.append("<hr>")
                i += 1
            else:
                j = i
                while j < len(lines) and lines[j].strip() and not re.match(r"```|#{1,4} |\||>|([-*]|\d+\.) ", lines[j]):
                    j += 1
                j = max(j, i + 1)
                text = " ".join(x.strip() for x in lines[i:j])
                self.note(text)
                out.append(f"<p>{inline(text, self.link)}</p>")
                i = j
        return out

    def list(self, lines, i, out):
        ordered, items = bool(re.match(r"\d+\.", lines[i])), []
        same = r"\d+\. " if ordered else r"[-*] "
        while i < len(lines) and re.match(same, lines[i]):
            pad = len(re.match(r"([-*]|\d+\.) +", lines[i]).group(0))
            item, j = [lines[i][pad:]], i + 1
            while j < len(lines) and (lines[j].startswith(" " * min(pad, 2)) or (lines[j].strip() and not re.match(r"([-*]|\d+\.) |```|#", lines[j]))
                                      or (not lines[j].strip() and j + 1 < len(lines) and lines[j + 1].startswith(" " * min(pad, 2)))):
                item.append(re.sub(rf"^ {{0,{pad}}}", "", lines[j]))
                j += 1
            items.append(item)
            i = j
            while i < len(lines) and not lines[i].strip() and i + 1 < len(lines) and re.match(same, lines[i + 1]):
                i += 1
        tag = "ol" if ordered else "ul"
        body = []
        for item in items:
            inner = self.blocks(item)
            if len(inner) and inner[0].startswith("<p>"):
                inner[0] = inner[0][3:-4]
            body.append("<li>" + "".join(inner) + "</li>")
        out.append(f"<{tag}>" + "".join(body) + f"</{tag}>")
        return i


def sources():
    """{page: path}, in the order of the list."""
    found = {os.path.splitext(f)[0]: os.path.join(ROOT, "docs", f) for f in sorted(os.listdir(os.path.join(ROOT, "docs"))) if f.endswith(".md")}
    for name in ("README", "CONTRIBUTING", "CHANGELOG"):
        found[name] = os.path.join(ROOT, name + ".md")
    return found


def url_of(name):
    return "index.html" if name == "README" else name + ".html"


def linker(path, pages, missing):
    """Links of a page: pages become pages, pictures are copied, other files keep their path in the source tree."""
    by_path = {os.path.normpath(p): n for n, p in pages.items()}

    def link(target):
        if re.match(r"[a-z]+:|#", target):
            return target
        file, _, part = target.partition("#")
        full = os.path.normpath(os.path.join(os.path.dirname(path), file))
        if not os.path.exists(full):
            missing.append(f"{os.path.relpath(path, ROOT)}: {target}")
        if full in by_path:
            return url_of(by_path[full]) + ("#" + part if part else "")
        return os.path.basename(full) if full.endswith((".png", ".svg", ".json")) else "source/" + os.path.relpath(full, ROOT)
    return link


def reference():
    """{page: Markdown} of the reference; nothing where the package is not built."""
    sys.path[:0] = [os.path.join(ROOT, "tools"), os.path.join(ROOT, "python")]
    try:
        import taper  # noqa: F401
    except ImportError:
        print("site: without the reference, as the package is not built (make build)", file=sys.stderr)
        return {}
    finally:
        del sys.path[1]
    import site_api
    return site_api.pages()


def build(out, with_reference=True):
    files, missing = sources(), []
    pages = {}
    for name, path in files.items():
        with open(path, encoding="utf-8") as f:
            pages[name] = Page(name, f.read(), linker(path, files, missing))
    written = reference() if with_reference else {}
    for name, text in written.items():
        pages[name] = Page(name, text, lambda target: target)
    if missing:
        sys.exit("site: links lead nowhere:\n  " + "\n  ".join(missing))
    os.makedirs(out, exist_ok=True)
    groups = [(g, [n for n in names if n in pages]) for g, names in GROUPS]
    groups.append(("API", list(written)))
    rest = [n for n in pages if not any(n in names for _, names in groups)]
    groups.append(("More", rest))
    index = []
    for name, page in pages.items():
        for head, at, text in page.sections:
            index.append([page.title, url_of(name) + ("#" + at if at else ""), head, re.sub(r"\s+", " ", " ".join(text))[:4000]])
    with open(os.path.join(out, "search.js"), "w", encoding="utf-8") as f:
        f.write("window.INDEX = " + json.dumps(index, ensure_ascii=False) + ";\n" + JS)
    with open(os.path.join(out, "style.css"), "w") as f:
        f.write(CSS)
    used = set()
    for name, page in pages.items():
        menu = "".join(f"<h4>{g}</h4>" + "".join(f'<a href="{url_of(n)}"{" class=here aria-current=page" if n == name else ""}>{html.escape(pages[n].title)}</a>' for n in names)
                       for g, names in groups if names)
        toc = "".join(f'<a href="#{at}"{" class=deep" if level > 2 else ""}>{html.escape(text)}</a>' for level, at, text in page.heads if 1 < level < 4)
        body = "\n".join(page.body)
        for target in re.findall(r'href="source/([^"#]+)', body):
            used.add(html.unescape(target))
        text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">
<title>{html.escape(page.title)}{'' if name == 'README' else ' - Taper'}</title><link rel="stylesheet" href="style.css"></head><body>
<header><a href="index.html"><b>Taper</b></a><input type="search" placeholder="Search  /" aria-label="Search"></header><div id="found" hidden></div>
<div class="page"><nav class="pages"><div class="in"><details open><summary>All pages</summary>{menu}</details></div></nav>
<main>{body}<footer>From {html.escape(os.path.relpath(files[name], ROOT) if name in files else "the docstrings")}</footer></main><nav class="toc"><div class="in">{"<h4>On this page</h4>" + toc if toc else ""}</div></nav></div>
<script src="search.js"></script></body></html>
"""
        with open(os.path.join(out, url_of(name)), "w", encoding="utf-8") as f:
            f.write(text)
    for f in os.listdir(os.path.join(ROOT, "docs")):
        if f.endswith((".png", ".svg", ".json")):
            shutil.copy(os.path.join(ROOT, "docs", f), out)
    for target in used:  # files of the tree that pages point at, so that the pages are whole by themselves
        full = os.path.join(ROOT, target)
        if os.path.isfile(full):
            os.makedirs(os.path.join(out, "source", os.path.dirname(target)), exist_ok=True)
            shutil.copy(full, os.path.join(out, "source", target))
    return len(pages), len(index)


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "docs", "site")
    n, sections = build(out)
    print(f"site: {n} pages, {sections} sections in {os.path.relpath(out)}; open {os.path.join(os.path.relpath(out), 'index.html')}")


if __name__ == "__main__":
    main()
