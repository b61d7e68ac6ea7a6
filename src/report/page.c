/* page.c - the pieces of a page: escaping, code with highlighting, style and script. Text from a trace goes through
 * esc(), always; it never becomes an attribute, a link or a script, and the page's policy allows no script but ours. */
#define _GNU_SOURCE
#include "report/model.h"
#include "base/digest.h"
#include "base/file.h"
#include "base/utf8.h"
#include <errno.h>
#include <stdio.h>

void page_flush(page *p, bool all)
{
    if (p->fd < 0 || (!all && p->o.n < (1 << 20)))
        return;
    if (!p->bad && p->o.n && !fd_write_all(p->fd, p->o.s, p->o.n)) {
        p->bad = true;
        p->err = errno;
    }
    strbuf_clear(&p->o);
}

/* ---- escaping ---- */
static bool is_plain(unsigned char c)
{
    return (c >= 0x20 && c < 0x7f && c != '<' && c != '>' && c != '&' && c != '"' && c != '\'') ||
           c == '\n' || c == '\t';
}

static void raw_escape(strbuf *o, const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        size_t plain = i; /* most text is plain: copied in runs */
        while (plain < n && is_plain((unsigned char)s[plain]))
            plain++;
        if (plain > i) {
            strbuf_addn(o, s + i, plain - i);
            i = plain;
            continue;
        }
        int k = utf8_decode(s + i, n - i, &cp);
        if (!k || cp == 0x7f || (cp < 0x20 && cp != '\n' && cp != '\t'))
            strbuf_add(o, "\xef\xbf\xbd");
        else if (cp == '<')
            strbuf_add(o, "&lt;");
        else if (cp == '>')
            strbuf_add(o, "&gt;");
        else if (cp == '&')
            strbuf_add(o, "&amp;");
        else if (cp == '"')
            strbuf_add(o, "&quot;");
        else if (cp == '\'')
            strbuf_add(o, "&#39;");
        else
            strbuf_addn(o, s + i, (size_t)k);
        i += (size_t)MAX(k, 1);
    }
}

void escn(page *p, const char *s, size_t n)
{
    if (!p->r->redact) {
        raw_escape(&p->o, s, n);
        return;
    }
    strbuf b = { 0 };
    rp_hide(p->r, &b, s, n);
    raw_escape(&p->o, strbuf_str(&b), b.n);
    strbuf_free(&b);
}

void esc(page *p, const char *s) { escn(p, s ? s : "", s ? strlen(s) : 0); }

/* ---- code ---- */
static bool word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool keyword(const char *s, size_t n)
{
    static const char *const list[] = { "def",     "return", "class",    "for",    "if",      "else",
                                        "void",    "const",  "float",    "double", "int64_t", "int32_t",
                                        "uint8_t", "int",    "static",   "inline", "None",    "True",
                                        "False",   "self",   "#include", "#define" };
    for (size_t i = 0; i < COUNT(list); i++)
        if (strlen(list[i]) == n && !memcmp(list[i], s, n))
            return true;
    return false;
}

static void span(strbuf *o, const char *tag, const char *s, size_t n)
{
    strbuf_addf(o, "<%s>", tag);
    raw_escape(o, s, n);
    strbuf_addf(o, "</%s>", tag);
}

static void highlight(strbuf *o, const char *s, size_t n)
{
    size_t plain = 0, i = 0;
#define PLAIN() (raw_escape(o, s + plain, i - plain))
    while (i < n) {
        size_t k = i + 1;
        const char *tag = NULL;
        bool begin = i == 0 || s[i - 1] == '\n' || s[i - 1] == ' ';
        if (s[i] == '#' && begin &&
            !(n - i > 8 && (!memcmp(s + i, "#include", 8) || !memcmp(s + i, "#define ", 8)))) {
            while (k < n && s[k] != '\n')
                k++;
            tag = "i";
        } else if (s[i] == '/' && k < n && s[k] == '*') {
            for (k++; k < n && !(s[k - 1] == '*' && s[k] == '/' && k > i + 2); k++)
                ;
            k = MIN(k + 1, n);
            tag = "i";
        } else if (s[i] == '"') {
            while (k < n && s[k] != '"' && s[k] != '\n')
                k++;
            k = MIN(k + 1, n);
            tag = "em";
        } else if (s[i] == ';' && n - i > 3 && s[i + 1] == ' ' && s[i + 2] == ' ') { /* ;  x = None */
            while (k < n && s[k] != '\n')
                k++;
            tag = "i";
        } else if (word(s[i]) || s[i] == '#') {
            while (k < n && word(s[k]))
                k++;
            if (keyword(s + i, k - i))
                tag = "b";
        }
        if (tag) {
            PLAIN();
            span(o, tag, s + i, k - i);
            plain = k;
        }
        i = k;
    }
    PLAIN();
#undef PLAIN
}

/* "    l_x_ = L_x_": an input of a graph gets its short name. */
static bool renames(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && s[i] == ' ')
        i++;
    size_t from = i;
    while (i < n && word(s[i]))
        i++;
    if (i == from || n - i < 6 || memcmp(s + i, " = ", 3) || !strchr("LG", s[i + 3]) || s[i + 4] != '_')
        return false; /* inputs are locals or globals of the program */
    for (i += 3; i < n && word(s[i]); i++)
        ;
    return i == n;
}

/* The end of the piece of a graph's first line that starts at s[i]: behind the next comma outside of quotes. */
static size_t piece_end(const char *s, size_t i, size_t n)
{
    bool quoted = false;
    for (; i < n; i++) {
        quoted ^= s[i] == '"';
        if (!quoted && s[i] == ',')
            return i + 1;
    }
    return n;
}

/* A graph with hundreds of inputs names them all in its first line: a line each, folded. */
static void inputs_apart(strbuf *o, const char *s, size_t n)
{
    size_t i = piece_end(s, 0, n), count = 0;
    highlight(o, s, i);
    for (size_t k = i; k < n; k = piece_end(s, k, n))
        count++;
    strbuf_addf(o, "<details><summary>            %zu input%s</summary>", count, plural((int64_t)count));
    while (i < n) {
        size_t from = i + (s[i] == ' '), end = piece_end(s, i, n);
        strbuf_add(o, "            ");
        highlight(o, s + from, end - from);
        strbuf_addc(o, '\n');
        i = end;
    }
    strbuf_add(o, "</details>");
}

/* Code as it is, but for what makes large graphs hard to read and is folded: long heads, and many inputs that get other
 * names. */
static void graph_code(strbuf *o, const char *s, size_t n)
{
    enum { LONG = 160, MANY = 6 };
    size_t from = 0; /* not written yet */
    for (size_t i = 0, end; i < n; i = end) {
        const char *nl = memchr(s + i, '\n', n - i);
        end = nl ? (size_t)(nl - s) + 1 : n;
        size_t len = end - i - (nl != NULL), to = i, count = 0;
        const char *def = len > LONG ? memmem(s + i, MIN(len, (size_t)40), "def forward(", 12) : NULL;
        while (!def && to < n) {
            const char *e = memchr(s + to, '\n', n - to);
            size_t stop = e ? (size_t)(e - s) : n;
            if (!renames(s + to, stop - to))
                break;
            to = e ? stop + 1 : n;
            count++;
        }
        if (!def && count < MANY)
            continue;
        highlight(o, s + from, i - from);
        if (def) {
            inputs_apart(o, s + i, len);
        } else {
            strbuf_addf(o, "<details><summary>        %zu inputs get other names</summary>", count);
            highlight(o, s + i, to - i);
            strbuf_add(o, "</details>");
            end = to;
        }
        from = end;
    }
    highlight(o, s + from, n - from);
}

void page_code(page *p, const char *s, size_t n)
{
    strbuf b = { 0 };
    if (p->r->redact) {
        rp_hide(p->r, &b, s, n);
        s = strbuf_str(&b);
        n = b.n;
    }
    strbuf_add(&p->o, "<pre>");
    graph_code(&p->o, s, n);
    strbuf_add(&p->o, "</pre>\n");
    strbuf_free(&b);
    page_flush(p, false);
}

void page_line(page *p, const char *s, size_t n) { highlight(&p->o, s, n); }

void page_text(page *p, const char *s)
{
    strbuf_add(&p->o, "<pre class=\"wrap\">");
    esc(p, s);
    strbuf_add(&p->o, "</pre>\n");
    page_flush(p, false);
}

/* ---- numbers ---- */
void page_us(page *p, double us)
{
    if (us < 0)
        strbuf_add(&p->o, "<span class=\"dim\">\xe2\x80\x93</span>");
    else if (us < 1000)
        strbuf_addf(&p->o, "%.*f\xc2\xa0\xc2\xb5s", us < 10 ? 2 : us < 100 ? 1 : 0, us);
    else if (us < 1e6)
        strbuf_addf(&p->o, "%.*f\xc2\xa0ms", us < 1e4 ? 2 : us < 1e5 ? 1 : 0, us / 1e3);
    else
        strbuf_addf(&p->o, "%.2f\xc2\xa0s", us / 1e6);
}

void page_bytes(page *p, double n)
{
    static const char *const unit[] = { "B", "kB", "MB", "GB", "TB" };
    int k = 0;
    while (n >= 1000 && k < 4)
        n /= 1000, k++;
    strbuf_addf(&p->o, "%.*f\xc2\xa0%s", k && n < 100 ? 1 : 0, n, unit[k]);
}

/* ---- parts used by several sections ---- */
void page_tag(page *p, const report *r, size_t i, const char *anchor)
{
    static const char *const sign[] = { "\xe2\x9c\x93", "\xe2\x97\x90", "\xe2\x9c\x95", "\xe2\x97\x8b",
                                        "\xe2\x80\xa6" };
    const rp_compile *c = r->compiles.at[i];
    rp_status s = rp_status_of(c);
    strbuf_addf(&p->o, "<a class=\"tag %s\" href=\"#%s%zu\">", rp_css(s), anchor, i);
    if (r->files.n > 1 && r->files.at[c->file].rank >= 0) /* each has its own count of compiles */
        strbuf_addf(&p->o, "rank %lld ", (long long)r->files.at[c->file].rank);
    else if (r->files.n > 1)
        strbuf_addf(&p->o, "file %d ", c->file + 1);
    strbuf_addc(&p->o, '[');
    esc(p, c->id);
    strbuf_addf(&p->o, "] <span aria-hidden=\"true\">%s</span> %s</a>", sign[s], rp_status_name(s));
}

void page_function(page *p, const char *func)
{
    /* taper_resume_in_f_at_12: what runs of f after the break in line 12 */
    const char *in = func ? strstr(func, "_resume_in_") : NULL, *at = NULL;
    for (const char *s = in; s && (s = strstr(s, "_at_")); s++)
        at = s;
    if (at && at > in + 11 && at[4 + strspn(at + 4, "0123456789")] == 0) {
        escn(p, in + 11, (size_t)(at - in - 11));
        strbuf_add(&p->o, "<span class=\"dim\">, after line ");
        esc(p, at + 4);
        strbuf_add(&p->o, "</span>");
    } else
        esc(p, func ? func : "(function not recorded)");
}

void page_place(page *p, const char *func, const char *file, int64_t line)
{
    strbuf_add(&p->o, "<span class=\"mono\">");
    page_function(p, func);
    if (file) {
        strbuf_add(&p->o, " <span class=\"dim\">");
        esc(p, file);
        strbuf_addf(&p->o, ":%lld</span>", (long long)line);
    }
    strbuf_add(&p->o, "</span>");
}

/* ---- the frame of every page ---- */
static const char style[] =
    ":root{color-scheme:light "
    "dark;--bg:#f6f7f9;--fg:#1b1f24;--dim:#59636e;--card:#fff;--line:#d8dee4;--code:#f3f5f8;"
    "--link:#0a58ad;--accent:#3b6ea8;--ok:#1a7f4b;--okt:#1a7f4b;--break:#a8d672;--error:#b8232f;--bad:#"
    "b8232f;--empty:#fff;"
    "--unfinished:#"
    "7048a8;"
    "--kw:#8a3b9e;--str:#0b5f8a;--add:#dff3e4;--del:#fde2e1;--s0:#3b6ea8;--s1:#e0a82e;--s2:#56a86f;--s3:#"
    "c4663d;--s4:#8b6bb1;--s5:#4fa9bd}"
    "@media(prefers-color-scheme:dark){:root{--bg:#12151a;--fg:#e3e7ec;--dim:#98a3af;--card:#1a1f26;--line:#"
    "303843;"
    "--code:#0f1216;--link:#7cb7f7;--accent:#6ba3e0;--kw:#d49be6;--str:#86c7ea;--add:#14351f;--del:#42191b;--"
    "s0:#6ba3e0;--bad:#ff8287;--okt:#5fce92}}"
    "*{box-sizing:border-box}html{scroll-padding-top:7rem}p,li,summary{overflow-wrap:anywhere}"
    "body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,'Segoe "
    "UI',sans-serif}"
    "header{position:sticky;top:0;z-index:2;background:var(--card);border-bottom:1px solid "
    "var(--line);padding:.6rem 1rem .5rem}"
    "header>*,main{max-width:1400px;margin-left:auto;margin-right:auto}main{padding:0 1rem 3rem}"
    "h1{font-size:1.15rem;margin-top:0;margin-bottom:0}h1 "
    "small{font-weight:400;color:var(--dim)}h2{margin:2.2rem 0 "
    ".3rem;font-size:1.3rem}"
    "h3{font-size:1rem;margin:1rem 0 .3rem}a{color:var(--link)}"
    "nav{display:flex;gap:.2rem 1rem;margin:.35rem auto 0;overflow-x:auto;white-space:nowrap;font-size:.9rem}"
    "nav a{text-decoration:none}nav a:hover{text-decoration:underline}"
    "#s{display:flex;flex-wrap:wrap;gap:.4rem;align-items:center;margin-top:.4rem}#s[hidden]{display:none}"
    "#q{flex:1 1 14rem;max-width:34rem;font:inherit;padding:.3rem .6rem;border:1px solid "
    "var(--line);border-radius:6px;"
    "background:var(--bg);color:var(--fg)}"
    "button{font:inherit;font-size:.85rem;padding:.25rem .7rem;border:1px solid "
    "var(--line);border-radius:6px;background:var(--card);"
    "color:var(--fg);cursor:pointer}button:hover{border-color:var(--accent)}"
    ".help,.dim{color:var(--dim)}.help{max-width:78ch;margin:.1rem 0 "
    ".8rem}.lead{font-size:1.08rem;max-width:78ch}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));gap:.6rem;margin:1rem 0}"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.6rem "
    ".8rem;font-size:.88rem}"
    ".tile b{display:block;font-size:1.6rem;line-height:1.2;font-variant-numeric:tabular-nums}.tile.bad "
    "b{color:var(--bad)}.tile.none{color:var(--dim);background:none}.tile.none b{font-weight:400}"
    "ol.next{padding-left:1.4rem;max-width:80ch}ol.next li{margin:.3rem 0}"
    "pre,code,.mono{font-family:ui-monospace,'SF Mono','DejaVu Sans "
    "Mono',Menlo,Consolas,monospace;font-size:.83rem}"
    "pre{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:.6rem "
    ".8rem;overflow-x:auto;margin:.4rem 0;"
    "line-height:1.45;max-height:40rem}pre i{font-style:normal;color:var(--dim)}pre "
    "b{font-weight:600;color:var(--kw)}"
    "pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}pre "
    "em{font-style:normal;color:var(--str)}code,.mono{overflow-wrap:anywhere}"
    "details{margin:.2rem 0}summary{cursor:pointer;padding:.1rem "
    "0}summary:focus-visible,a:focus-visible,button:focus-visible,"
    "#q:focus-visible{outline:2px solid var(--accent);outline-offset:1px}"
    ".item{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:.5rem "
    ".8rem;margin:.5rem 0}"
    ".item details{border-top:1px solid var(--line);padding-top:.2rem}.item pre "
    "details{border:0;margin:0;padding:0}pre "
    "summary{color:var(--dim)}"
    ".item p{margin:.3rem 0}"
    ".tag{display:inline-block;border:1px solid #0005;border-radius:6px;padding:0 .5em;font:600 .8rem/1.6 "
    "ui-monospace,monospace;"
    "color:#fff;text-decoration:none;white-space:nowrap}"
    ".ok{background:var(--ok)}.break{background:var(--break);color:#15200a}.error{background:var(--error)}"
    ".empty{background:var(--empty);color:#222}.unfinished{background:var(--unfinished)}"
    ".chip{display:inline-block;border:1px solid var(--line);border-radius:6px;padding:0 .45em;font:600 "
    ".78rem/1.6 ui-monospace,monospace}"
    ".fix{border-left:3px solid var(--accent);padding:.1rem .7rem;margin:.4rem 0;max-width:80ch}"
    "ul.why{list-style:none;padding-left:1rem;margin:.1rem 0 .5rem}ul.trie,ul.trie "
    "ul{list-style:none;padding-left:1rem;margin:.2rem 0;border-left:1px solid var(--line)}"
    "ul.trie{padding-left:0;border:0}.scroll{overflow-x:auto}td .mono{display:inline-block;min-width:13rem}"
    "table{border-collapse:collapse;width:100%;font-size:.92rem}td,th{text-align:left;vertical-align:top;"
    "padding:.3rem .7rem .3rem 0;"
    "border-bottom:1px solid "
    "var(--line)}th{font-weight:600;white-space:nowrap}td.n,th.n{text-align:right;font-variant-numeric:"
    "tabular-nums;"
    "white-space:nowrap}th "
    "button{border:0;background:none;padding:0;font:inherit;font-weight:600}th[aria-sort=ascending] "
    "button::after"
    "{content:' \\25b2'}th[aria-sort=descending] button::after{content:' \\25bc'}"
    ".bar{display:flex;height:1.1rem;border-radius:6px;overflow:hidden;background:var(--line);margin:.4rem "
    "0}.bar span{min-width:1px}"
    ".s0{background:var(--s0)}.s1{background:var(--s1)}.s2{background:var(--s2)}.s3{background:var(--s3)}.s4{"
    "background:var(--s4)}"
    ".s5{background:var(--s5)}.s6{background:var(--error)}.s7{background:var(--dim)}.key{display:inline-"
    "block;width:.8rem;height:.8rem;border-radius:3px;margin-"
    "right:.35rem}"
    ".legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;font-size:.88rem;margin:.3rem 0}"
    ".tl{display:grid;grid-template-columns:minmax(7rem,14rem) 1fr;gap:.1rem "
    ".6rem;align-items:center;font-size:.82rem}"
    ".tl .t{position:relative;height:1rem;background:var(--code);border-radius:3px}"
    ".tl .t span{position:absolute;top:0;bottom:0;min-width:2px;border-radius:2px}.tl "
    ".w{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}"
    ".tl .t{overflow:hidden}.tl .z{position:absolute;top:0;bottom:0;left:calc(var(--o,0)*var(--z,1)*-1%);"
    "width:calc(var(--z,1)*100%)}.tl .axis{background:none;height:1.2rem}.tl .axis "
    "i{position:absolute;font-style:normal;"
    "color:var(--dim);border-left:1px solid var(--dim);padding-left:.2rem;white-space:nowrap}"
    ".pic{margin:.3rem 0}.pic .box{overflow:auto;max-height:36rem;background:var(--code);border:1px solid "
    "var(--line);"
    "border-radius:6px;cursor:grab}.pic svg{display:block}.pic path{fill:none;stroke:var(--dim);opacity:.55}"
    ".pic rect{fill:var(--card);stroke:var(--dim)}.pic .in rect{stroke-dasharray:4 3}.pic .out "
    "rect{stroke-width:2.5;stroke:var(--fg)}.pic text{font:600 12px ui-monospace,'DejaVu Sans "
    "Mono',monospace;fill:var(--fg);"
    "text-anchor:middle;pointer-events:none}.pic text.b{font-weight:400;font-size:11px;opacity:.75}"
    ".pic .k0 rect{fill:color-mix(in srgb,var(--s0) 38%,var(--card))}.pic .k1 rect{fill:color-mix(in "
    "srgb,var(--s1) "
    "38%,var(--card))}.pic .k2 rect{fill:color-mix(in srgb,var(--s2) 38%,var(--card))}.pic .k3 "
    "rect{fill:color-mix(in "
    "srgb,var(--s3) 38%,var(--card))}.pic .k4 rect{fill:color-mix(in srgb,var(--s4) 38%,var(--card))}.pic "
    ".k5 "
    "rect{fill:color-mix(in srgb,var(--s5) 38%,var(--card))}.pic g.sel "
    "rect{stroke:var(--accent);stroke-width:3}.pic "
    "path.sel{stroke:var(--accent);stroke-width:2.5;opacity:1}.pic "
    "g:focus{outline:none}.pick{white-space:pre-wrap}.zoom{display:flex;gap:.3rem;margin:.2rem 0}"
    ".side{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:0 "
    ".6rem;font-family:ui-monospace,'DejaVu Sans "
    "Mono',monospace;font-size:.8rem;"
    "border:1px solid var(--line);border-radius:6px;overflow-x:auto;background:var(--code);max-height:44rem}"
    ".side div{white-space:pre-wrap;overflow-wrap:anywhere;padding:0 "
    ".5rem;min-height:1.4em;line-height:1.4}.side "
    ".a{background:var(--add)}.side .d{background:var(--del)}"
    ".side .a::before{content:'+ '}.side .d::before{content:'- '}.side .u::before{content:'  '}.side "
    ".g{grid-column:1/3;color:var(--dim)}"
    ".src{background:var(--code);border:1px solid var(--line);border-radius:6px;overflow-x:auto;margin:.4rem "
    "0;"
    "max-height:44rem;padding:.4rem 0;font:.83rem/1.5 ui-monospace,'SF Mono','DejaVu Sans "
    "Mono',Menlo,Consolas,"
    "monospace}.src ol{list-style:none;margin:0;padding:0;min-width:max-content}"
    ".src li{display:grid;grid-template-columns:1.9rem 3.2rem auto;white-space:pre;border-left:4px solid "
    "transparent}"
    ".src .m{text-align:center;user-select:none}.src "
    ".no{color:var(--dim);text-align:right;padding-right:.9rem;"
    "user-select:none}.src .in{border-left-color:var(--ok)}.src .in .m{color:var(--okt)}.src "
    ".br{border-left-color:var(--s1);background:color-mix(in srgb,var(--s1) 16%,transparent)}"
    ".src .er{border-left-color:var(--error);background:color-mix(in srgb,var(--error) 14%,transparent)}"
    ".src .re{border-left-color:var(--unfinished);background:color-mix(in srgb,var(--unfinished) "
    "16%,transparent)}"
    ".src "
    "li.note{display:block;position:sticky;left:0;white-space:normal;width:100cqw;padding:.1rem "
    "max(.8rem,calc(100cqw - 90ch)) .35rem 5.1rem;font-family:system-ui,-apple-system,'Segoe "
    "UI',sans-serif;font-size:.88rem;overflow-wrap:anywhere}"
    ".src{container-type:inline-size}.src i{font-style:normal;color:var(--dim)}.src "
    "b{font-weight:600;color:var(--kw)}"
    ".src em{font-style:normal;color:var(--str)}.src .note b{color:inherit}.file{margin:1.1rem 0 .2rem;"
    "overflow-wrap:anywhere}"
    ".memt td .mono{display:inline;min-width:0}"
    ".memy{position:absolute;left:.4rem;top:0;font-size:.8rem;line-height:1.2;padding:0 .2rem;background:"
    "color-mix(in srgb,var(--card) 80%,transparent);border-radius:3px}"
    ".mem{position:relative;margin:.4rem 0 .2rem}.mem "
    "svg{display:block;width:100%;height:12rem;background:var(--code);"
    "border:1px solid var(--line);border-radius:6px}.mem .k6{fill:color-mix(in srgb,var(--dim) "
    "45%,var(--card))}"
    ".mem .k0{fill:var(--s0)}.mem .k1{fill:var(--s1)}.mem .k2{fill:var(--s2)}.mem .k3{fill:var(--s3)}.mem "
    ".k4{fill:var(--s4)}.mem .k5{fill:var(--s5)}.mem .peak{stroke:var(--fg);stroke-dasharray:4 3;"
    "vector-effect:non-scaling-stroke}.mem .hot{fill:transparent}.mem "
    ".hot:hover{fill:var(--fg);fill-opacity:.12}"
    ".memx{display:flex;justify-content:space-between;font-size:.8rem;color:var(--dim)}.key.k6{background:"
    "color-mix(in srgb,var(--dim) 45%,var(--card))}"
    ".hide{display:none!important}:target{outline:2px solid "
    "var(--accent);outline-offset:2px}::highlight(hit){background:#ffd54a;color:#222}"
    "footer{margin:3rem 0 1rem;color:var(--dim);font-size:.85rem}"
    "@media(max-width:640px){body{font-size:15px}header{padding:.5rem "
    ".7rem}#q{flex-basis:7rem;min-width:0}main{padding:0 .7rem "
    "2rem}.side{grid-template-columns:1fr}.side .r,.side .e{display:none}"
    ".side .g{grid-column:1}.tl{grid-template-columns:1fr}h2{font-size:1.15rem}}"
    "@media print{header{position:static}pre{max-height:none}}";

/* Search over entries and table rows, folding, sorting; '/' starts a search, Enter goes from one place to the next: it
 * unfolds what hides it, scrolls the box it stands in, and marks it. */
static const char script[] =
    "(function(){'use strict';var d=document,q=d.getElementById('q'),n=d.getElementById('n');"
    "function all(s,e){return [].slice.call((e||d).querySelectorAll(s));}"
    "var items=all('.item,table.sort tbody tr,.tl>.row');d.getElementById('s').hidden=false;"
    "function go(){var t=q.value.toLowerCase(),k=0;items.forEach(function(e){"
    "var hit=!t||e.textContent.toLowerCase().indexOf(t)>=0;e.classList.toggle('hide',!hit);if(hit)k++;"
    "if(t&&hit&&e.classList.contains('item')){if(e.tagName==='DETAILS')e.open=true;all('details',e).forEach("
    "function(x){"
    "if(x.textContent.toLowerCase().indexOf(t)>=0)x.open=true;});}});"
    "n.textContent=t?k+' of '+items.length+' entries':'';pos=-1;}"
    "var text,nodes,at,pos=-1;function next(step){var t=q.value.toLowerCase();if(!t)return;if(!text){"
    "var w=d.createTreeWalker(d.querySelector('main'),4),s=[],l=0;nodes=[];at=[];while(w.nextNode()){"
    "nodes.push(w.currentNode);at.push(l);s.push(w.currentNode.data);l+=w.currentNode.data.length;}"
    "text=s.join('').toLowerCase();}"
    "var p=step>0?text.indexOf(t,pos+1):pos>0?text.lastIndexOf(t,pos-1):-1;"
    "if(p<0)p=step>0?text.indexOf(t):text.lastIndexOf(t);if(p<0)return;pos=p;"
    "function set(o,x,end){var a=0,b=at.length-1;while(a<b){var "
    "m=(a+b+1)>>1;if(end?at[m]<x:at[m]<=x)a=m;else b=m-1;}"
    "o[end?'setEnd':'setStart'](nodes[a],Math.min(x-at[a],nodes[a].data.length));return nodes[a];}"
    "var r=d.createRange(),e=set(r,p,false).parentElement,box;set(r,p+t.length,true);"
    "for(var x=e;x;x=x.parentElement){if(x.tagName==='DETAILS')x.open=true;"
    "if(!box&&/^(auto|scroll)$/.test(getComputedStyle(x).overflowY))box=x;}"
    "var h=r.getBoundingClientRect();if(box&&box!==d.documentElement){var c=box.getBoundingClientRect();"
    "box.scrollTop+=h.top-c.top-box.clientHeight/"
    "2;box.scrollLeft+=h.left-c.left>box.clientWidth?h.left-c.left-40:h.left<c.left?"
    "h.left-c.left:0;h=r.getBoundingClientRect();}"
    "scrollBy(0,h.top-innerHeight/2);if(window.CSS&&CSS.highlights)CSS.highlights.set('hit',new "
    "Highlight(r));}"
    "var "
    "timer,last='';q.addEventListener('input',function(){clearTimeout(timer);timer=setTimeout(go,items."
    "length>500?"
    "200:0);});"
    "function fold(open){all('main details').forEach(function(x){x.open=open;});}"
    "d.getElementById('o').addEventListener('click',function(){fold(true);});"
    "d.getElementById('f').addEventListener('click',function(){fold(false);});"
    "function jump(){var e=location.hash&&d.getElementById(location.hash.slice(1));if(!e)return;"
    "for(var x=e;x;x=x.parentElement)if(x.tagName==='DETAILS')x.open=true;e.scrollIntoView();}"
    "window.addEventListener('hashchange',jump);jump();"
    "all('table.sort').forEach(function(t){all('thead th',t).forEach(function(h,i){var "
    "b=d.createElement('button');"
    "b.type='button';b.textContent=h.textContent;h.textContent='';h.appendChild(b);b.addEventListener('click'"
    ",function(){"
    "var up=h.getAttribute('aria-sort')!=='ascending';all('thead "
    "th',t).forEach(function(x){x.removeAttribute('aria-sort');});"
    "h.setAttribute('aria-sort',up?'ascending':'descending');var body=t.tBodies[0];"
    "all('tr',body).map(function(r){var c=r.cells[i],v=c?c.getAttribute('data-v'):null;"
    "return{r:r,k:v!==null?parseFloat(v):(c?c.textContent.toLowerCase():'')};}).sort(function(a,b){"
    "return(a.k<b.k?-1:a.k>b.k?1:0)*(up?1:-1);}).forEach(function(x){body.appendChild(x.r);});});});});"
    "function buttons(box,list){var z=d.createElement('div');z.className='zoom';list.forEach(function(x){var "
    "b=d.createElement('button');b.type='button';b.textContent=x[0];b.title=x[1];b.addEventListener('click',"
    "x[2]);z.appendChild("
    "b);});box.parentNode.insertBefore(z,box);}"
    "function dragged(e,move){e.addEventListener('pointerdown',function(a){if(a.button)return;var "
    "x=a.clientX,y=a.clientY;"
    "function on(m){move(m.clientX-x,m.clientY-y);x=m.clientX;y=m.clientY;}function "
    "off(){d.removeEventListener('pointermove',on);"
    "d.removeEventListener('pointerup',off);}d.addEventListener('pointermove',on);d.addEventListener('"
    "pointerup',off);});}"
    "all('.pic').forEach(function(b){var "
    "s=b.querySelector('svg'),box=b.querySelector('.box'),k=b.querySelector('.pick'),"
    "w=+s.getAttribute('width'),h=+s.getAttribute('height'),z=1;"
    "function zoom(f,x,y){var "
    "n=Math.min(8,Math.max(.05,z*f));f=n/z;z=n;s.setAttribute('width',w*z);s.setAttribute('height',h*z);"
    "box.scrollLeft=(box.scrollLeft+x)*f-x;box.scrollTop=(box.scrollTop+y)*f-y;}"
    "function mid(f){zoom(f,box.clientWidth/2,box.clientHeight/2);}"
    "buttons(box,[['+','Larger (Ctrl and the wheel)',function(){mid(1.25);}],['\xe2\x88\x92','Smaller (Ctrl "
    "and the "
    "wheel)',function(){mid(.8);}],['fit','All of "
    "it',function(){zoom(Math.min(box.clientWidth/w,560/h)/z,0,0);}]]);"
    "box.addEventListener('wheel',function(e){if(!e.ctrlKey)return;e.preventDefault();var "
    "r=box.getBoundingClientRect();"
    "zoom(e.deltaY<0?1.15:.87,e.clientX-r.left,e.clientY-r.top);},{passive:false});"
    "dragged(box,function(x,y){box.scrollLeft-=x;box.scrollTop-=y;});"
    "function "
    "pick(g){all('.sel',s).forEach(function(x){x.classList.remove('sel');});g.classList.add('sel');var "
    "n=g.getAttribute('data-n');all('path[data-a=\"'+n+'\"],path[data-b=\"'+n+'\"]',s).forEach(function(x){x."
    "classList.add('sel');"
    "});k.textContent=g.querySelector('title').textContent;k.hidden=false;}"
    "s.addEventListener('click',function(e){var g=e.target.closest('g');if(g)pick(g);});"
    "s.addEventListener('keydown',function(e){if(e.key==='Enter'&&e.target.tagName==='g')pick(e.target);});})"
    ";"
    "all('.walk').forEach(function(b){var s=all('.step',b);function go(k){var "
    "i=s.findIndex(function(x){return "
    "x.open;}),n=i<0?(k>0?0:s.length-1):Math.max(0,Math.min(s.length-1,i+k));"
    "s.forEach(function(x,q){x.open=q===n;});s[n].scrollIntoView({block:'nearest'});}if(s.length)buttons(b,["
    "['\xe2\x97\x80 previous','The rewrite before',function(){go(-1);}],['next \xe2\x96\xb6','The next "
    "rewrite',"
    "function(){go(1);}]]);});"
    "all('.tl').forEach(function(t){var z=1,o=0;function set(f,at){var "
    "n=Math.min(1e4,Math.max(1,z*f)),v=o+at/z;z=n;"
    "o=Math.max(0,Math.min(v-at/z,100-100/z));t.style.setProperty('--z',z);t.style.setProperty('--o',o);}"
    "buttons(t,[['+','Larger (Ctrl and the wheel)',function(){set(1.5,50);}],['\xe2\x88\x92','Smaller (Ctrl "
    "and the "
    "wheel)',function(){set(.67,50);}],['all','All of it',function(){set(1e-9,0);}]]);"
    "t.addEventListener('wheel',function(e){var "
    "c=e.target.closest('.t');if(!e.ctrlKey||!c)return;e.preventDefault();var "
    "r=c.getBoundingClientRect();set(e.deltaY<0?1.3:.77,(e.clientX-r.left)/r.width*100);},{passive:false});"
    "dragged(t,function(x){var "
    "c=t.querySelector('.t');if(z>1&&c){o=Math.max(0,Math.min(o-x/c.clientWidth*100/z,100-100/z));"
    "t.style.setProperty('--o',o);}});});"
    "d.addEventListener('keydown',function(e){var "
    "a=d.activeElement;if(e.key==='/'&&a!==q){e.preventDefault();q.focus();q.select();}"
    "else "
    "if(e.key==='Enter'&&a===q){e.preventDefault();clearTimeout(timer);if(last!==q.value)go();last=q.value;"
    "next(e.shiftKey?-1:1);}"
    "else if(e.key==='Escape'&&a===q){q.value='';go();q.blur();}});})();";

static void base64_of_hex(strbuf *o, const char *hex)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char b[33] = { 0 };
    for (int i = 0; i < 32; i++) {
        unsigned v;
        sscanf(hex + 2 * i, "%2x", &v);
        b[i] = (unsigned char)v;
    }
    for (int i = 0; i < 33; i += 3) {
        unsigned v = (unsigned)b[i] << 16 | (unsigned)b[i + 1] << 8 | (i + 2 < 32 ? b[i + 2] : 0);
        char q[5] = { letters[v >> 18], letters[v >> 12 & 63], letters[v >> 6 & 63],
                      i + 2 < 32 ? letters[v & 63] : '=', 0 };
        strbuf_add(o, q);
    }
}

void page_head(page *p, const char *title)
{
    char hex[DIGEST_HEX];
    strbuf *o = &p->o;
    digest_of(DIGEST_sha256, script, strlen(script), hex);
    strbuf_add(o, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
                  "'unsafe-inline'; "
                  "script-src 'sha256-");
    base64_of_hex(o, hex);
    strbuf_addf(o,
                "'\"><meta name=\"viewport\" "
                "content=\"width=device-width,initial-scale=1\"><title>%s</title>\n<style>%s</style>"
                "</head>\n<body><header><h1>%s</h1>",
                title, style, title);
}

void page_foot(page *p)
{
    strbuf_add(&p->o, "<footer>This page holds ");
    strbuf_add(&p->o, p->r->redact ? "no names, paths or source of the traced program (they were replaced)"
                                   : "source lines, names and graphs of the traced program");
    strbuf_add(&p->o, ", and no tensor data. It loads nothing from the network.</footer>\n</main>\n<script>");
    strbuf_add(&p->o, script);
    strbuf_add(&p->o, "</script></body></html>\n");
    page_flush(p, true);
}
