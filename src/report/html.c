/* html.c - the model as one HTML page that needs nothing else. Text from a trace goes through esc(), always;
 * it never becomes an attribute, a link or a script. Links inside the page use our own numbers. */
#include "report/model.h"
#include "base/utf8.h"

/* ---- escaping ---- */
static bool is_plain(unsigned char c)
{
    return (c >= 0x20 && c < 0x7f && c != '<' && c != '>' && c != '&' && c != '"' && c != '\'') ||
           c == '\n' || c == '\t';
}

static void escn(strbuf *o, const char *s, size_t n)
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

static void esc(strbuf *o, const char *s) { escn(o, s ? s : "", s ? strlen(s) : 0); }

/* ---- small pieces ---- */
static const char style[] =
    ":root{color-scheme:light dark;--bg:#fbfbfa;--fg:#1c1f23;--dim:#5c646e;--card:#fff;--line:#d9dde2;"
    "--code:#f3f5f7;--link:#0b5cad;--ok:#1b7f4d;--break:#a6d96a;--error:#c0262d;--empty:#fff;--unfinished:#"
    "7a4fb5}"
    "@media(prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e4e7ea;--dim:#9aa4af;--card:#1c2025;"
    "--line:#343b43;--code:#111417;--link:#7db8f5}}"
    "*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 "
    "system-ui,sans-serif}"
    "header,main{max-width:1280px;margin:0 auto;padding:0 1rem}header{padding-top:1.2rem}"
    "h1{font-size:1.6rem;margin:.2rem 0}h2{margin:2rem 0 "
    ".4rem;font-size:1.25rem}h3{font-size:1rem;margin:.8rem 0 .3rem}"
    "a{color:var(--link)}nav{display:flex;flex-wrap:wrap;gap:.3rem 1rem;margin:.4rem 0}"
    ".help,.dim{color:var(--dim)}.help{max-width:75ch;margin:.2rem 0 .8rem}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.5rem,1fr));gap:.7rem;margin:1rem 0}"
    ".tile{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.6rem .8rem}"
    ".tile b{display:block;font-size:1.6rem;line-height:1.2}"
    "pre,code,.mono{font-family:ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace;font-size:.85rem}"
    "pre{background:var(--code);border:1px solid var(--line);border-radius:6px;padding:.6rem "
    ".8rem;overflow-x:auto;"
    "margin:.4rem 0;line-height:1.45}pre i{font-style:normal;color:var(--dim)}"
    "code,.mono{overflow-wrap:anywhere}"
    "details{margin:.25rem 0}summary{cursor:pointer}"
    ".item{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.45rem "
    ".8rem;margin:.5rem 0}"
    ".item details{border-top:1px solid var(--line);padding-top:.25rem}"
    ".tag{display:inline-block;border:1px solid #0006;border-radius:5px;padding:0 .45em;font:600 .8rem/1.5 "
    "ui-monospace,monospace;color:#fff;text-decoration:none;white-space:nowrap}"
    ".ok{background:var(--ok)}.break{background:var(--break);color:#16210a}.error{background:var(--error)}"
    ".empty{background:var(--empty);color:#222}.unfinished{background:var(--unfinished)}"
    "ul.trie,ul.trie ul{list-style:none;padding-left:1rem;margin:.2rem 0;border-left:1px solid var(--line)}"
    "ul.trie{padding-left:0;border:0}.scroll{overflow-x:auto}table{border-collapse:collapse;width:100%}"
    "td,th{text-align:left;vertical-align:top;padding:.25rem .6rem .25rem 0;border-bottom:1px solid "
    "var(--line)}"
    "#q{width:100%;max-width:28rem;font:inherit;padding:.4rem .6rem;border:1px solid "
    "var(--line);border-radius:6px;"
    "background:var(--card);color:var(--fg)}.hide{display:none}:target{outline:2px solid var(--link)}"
    "footer{margin:3rem 0 1rem;color:var(--dim);font-size:.85rem}";

static const char script[] =
    "(function(){var q=document.getElementById('q'),n=document.getElementById('n'),"
    "all=[].slice.call(document.querySelectorAll('.item'));document.getElementById('s').hidden=false;"
    "function go(){var t=q.value.toLowerCase(),k=0;all.forEach(function(e){"
    "var hit=!t||e.textContent.toLowerCase().indexOf(t)>=0;e.classList.toggle('hide',!hit);k+=hit;"
    "if(t&&hit)[].forEach.call(e.querySelectorAll('details'),function(d){"
    "if(d.textContent.toLowerCase().indexOf(t)>=0)d.open=true;})});"
    "n.textContent=t?k+' of '+all.length+' entries':'';}"
    "function fold(open){[].forEach.call(document.querySelectorAll('main "
    "details'),function(d){d.open=open;});}"
    "q.addEventListener('input',go);"
    "document.getElementById('o').addEventListener('click',function(){fold(true);});"
    "document.getElementById('f').addEventListener('click',function(){fold(false);});"
    "function jump(){var e=location.hash&&document.getElementById(location.hash.slice(1));"
    "if(e&&e.tagName==='DETAILS')e.open=true;}window.addEventListener('hashchange',jump);jump();"
    "document.addEventListener('keydown',function(e){if(e.key==='/'&&document.activeElement!==q){"
    "e.preventDefault();q.focus();}else "
    "if(e.key==='Escape'&&document.activeElement===q){q.value='';go();q.blur();}"
    "});})();";

static const char *css_of(rp_status s)
{
    static const char *const names[] = { "ok", "break", "error", "empty", "unfinished" };
    return names[s];
}

static void tag(strbuf *o, const report *r, size_t i)
{
    const rp_compile *c = r->compiles.at[i];
    rp_status s = rp_status_of(c);
    strbuf_addf(o, "<a class=\"tag %s\" href=\"#c%zu\">[", css_of(s), i);
    esc(o, c->id);
    strbuf_addf(o, "] %s</a>", rp_status_name(s));
}

static void place(strbuf *o, const char *func, const char *file, int64_t line)
{
    strbuf_add(o, "<span class=\"mono\">");
    esc(o, func ? func : "(function not recorded)");
    if (file) {
        strbuf_add(o, " <span class=\"dim\">");
        esc(o, file);
        strbuf_addf(o, ":%lld</span>", (long long)line);
    }
    strbuf_add(o, "</span>");
}

static void code(strbuf *o, const char *s, size_t n)
{
    strbuf_add(o, "<pre>");
    for (size_t at = 0; at < n;) {
        const char *nl = memchr(s + at, '\n', n - at);
        size_t end = nl ? (size_t)(nl - s) + 1 : n, k = at;
        while (k < end && (s[k] == ' ' || s[k] == '\t'))
            k++;
        bool comment = k < end && s[k] == '#';
        strbuf_add(o, comment ? "<i>" : "");
        escn(o, s + at, end - at);
        strbuf_add(o, comment ? "</i>" : "");
        at = end;
    }
    strbuf_add(o, "</pre>\n");
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

/* ---- overview ---- */
static void tile(strbuf *o, int64_t n, const char *what)
{
    strbuf_addf(o, "<div class=\"tile\"><b>%lld</b>%s</div>\n", (long long)n, what);
}

static void next_steps(strbuf *o, const rp_counts *n)
{
    strbuf_add(o, "<h3>What to do next</h3><ul>\n");
    if (n->errors)
        strbuf_addf(o,
                    "<li><b>Start with the %lld error%s</b> (red): that code ran without the compiler or "
                    "stopped the program. Each one below shows the message.</li>\n",
                    (long long)n->errors, plural(n->errors));
    if (n->breaks)
        strbuf_add(o,
                   "<li><b>Look at the <a href=\"#breaks\">graph breaks</a></b>: each one splits a function "
                   "into smaller graphs that cannot be optimised together. Move printing and data-dependent "
                   "branches out of the compiled function, or use <code>fullgraph=True</code> to be told at "
                   "once.</li>\n");
    if (n->recompiles)
        strbuf_add(o, "<li><b>Look at the <a href=\"#recompiles\">recompiles</a></b>: a compiled version was "
                      "called with something it was not made for. Sizes that change can be marked with "
                      "<code>mark_dynamic</code>; numbers that change can be passed as tensors.</li>\n");
    if (n->unfinished)
        strbuf_add(o,
                   "<li>Some compiles have no result in the trace: the process may have ended in the middle, "
                   "or nothing was worth compiling.</li>\n");
    if (!n->errors && !n->breaks && !n->recompiles && n->compiles)
        strbuf_add(o, "<li>Nothing: every function was compiled once, whole.</li>\n");
    if (!n->compiles)
        strbuf_add(o, "<li>The trace holds no compile. Was the compiled function called while "
                      "<code>TAPER_TRACE</code> was set?</li>\n");
    strbuf_add(o, "</ul>\n");
}

static void overview(strbuf *o, const report *r, const rp_counts *n)
{
    strbuf_add(o, "<section id=\"overview\"><h2>Overview</h2>\n<p>");
    strbuf_addf(
        o,
        "%lld trace file%s with %lld record%s. The compiler looked at %lld function%s or part%s of one "
        "and compiled %lld time%s",
        (long long)r->files.n, plural((int64_t)r->files.n), (long long)r->nrecord, plural(r->nrecord),
        (long long)n->functions, plural(n->functions), plural(n->functions), (long long)n->compiles,
        plural(n->compiles));
    strbuf_addf(o, ", of which %lld again because a guard failed.", (long long)n->recompiles);
    if (n->seconds > 0)
        strbuf_addf(o, " Compiling took %.3f s in all.", n->seconds);
    if (!n->has_metrics && n->compiles)
        strbuf_add(o, " This trace holds no metrics, so times are not known.");
    strbuf_add(o, "</p>\n<div class=\"tiles\">\n");
    tile(o, n->compiles, "compiles");
    tile(o, n->breaks, "with graph breaks");
    tile(o, n->recompiles, "recompiles");
    tile(o, n->errors, "errors");
    tile(o, n->restarts, "restarts of the analysis");
    tile(o, r->nskip, "problems in the trace");
    strbuf_add(o, "</div>\n");
    next_steps(o, n);
    strbuf_add(o, "</section>\n");
}

/* ---- stack trie ---- */
typedef struct trie {
    rp_frame f;
    struct trie *kids, *last, *next;
    VEC(size_t) ids;
} trie;

static trie *trie_kid(arena *a, trie *t, const rp_frame *f)
{
    for (trie *k = t->kids; k; k = k->next)
        if (k->f.line == f->line && !strcmp(k->f.name, f->name) && !strcmp(k->f.file, f->file))
            return k;
    trie *k = ARENA_NEW(a, trie);
    k->f = *f;
    if (t->last)
        t->last->next = k;
    else
        t->kids = k;
    return t->last = k;
}

static void trie_print(strbuf *o, const report *r, trie *t)
{
    for (trie *k = t->kids; k; k = k->next) {
        strbuf_add(o, k->kids ? "<li><details open><summary>" : "<li>");
        place(o, k->f.name, k->f.file, k->f.line);
        for (size_t i = 0; i < k->ids.n; i++) {
            strbuf_addc(o, ' ');
            tag(o, r, k->ids.at[i]);
        }
        if (k->f.loc && *k->f.loc) {
            strbuf_add(o, "<br><code class=\"dim\">");
            esc(o, k->f.loc);
            strbuf_add(o, "</code>");
        }
        if (k->kids) {
            strbuf_add(o, "</summary><ul>\n");
            trie_print(o, r, k);
            strbuf_add(o, "</ul></details>");
        }
        strbuf_add(o, "</li>\n");
        vec_free(&k->ids);
    }
}

static void stacks(strbuf *o, const report *r)
{
    arena mem = { 0 };
    trie root = { 0 };
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        rp_frame alone = { c->where_file ? c->where_file : "", c->func ? c->func : "(function not recorded)",
                           NULL, c->where_line };
        trie *t = &root;
        if (!strcmp(c->id, "no id"))
            continue;
        for (int k = 0; k < c->nstack; k++)
            t = trie_kid(&mem, t, &c->stack[k]);
        if (!c->nstack)
            t = trie_kid(&mem, t, &alone);
        vec_push(&t->ids, i);
    }
    strbuf_add(
        o,
        "<section id=\"stacks\"><h2>Where compiles came from</h2>\n<p class=\"help\">Each line is a call "
        "in your program, callers above callees. A tag such as [0/1] is a compile: function number 0, "
        "compiled for the second time. Follow it to see what was compiled.</p>\n<p>"
        "<span class=\"tag ok\">ok</span> compiled whole &nbsp;<span class=\"tag break\">graph break</span> "
        "compiled in pieces &nbsp;<span class=\"tag error\">error</span> failed &nbsp;"
        "<span class=\"tag empty\">empty</span> nothing to compile &nbsp;"
        "<span class=\"tag unfinished\">unfinished</span> no result in the trace</p>\n"
        "<div class=\"scroll\"><ul class=\"trie\">\n");
    trie_print(o, r, &root);
    strbuf_add(o, "</ul></div></section>\n");
    arena_free(&mem);
}

/* ---- lists ---- */
static void list_head(strbuf *o, const rp_compile *c, const report *r, size_t i)
{
    strbuf_add(o, "<div class=\"item\">");
    tag(o, r, i);
    strbuf_addc(o, ' ');
    place(o, c->func, c->where_file, c->where_line);
}

static void breaks(strbuf *o, const report *r)
{
    size_t shown = 0;
    strbuf_add(
        o,
        "<section id=\"breaks\"><h2>Graph breaks and errors</h2>\n<p class=\"help\">A graph break is a place "
        "where the compiler had to stop, let Python run, and start again. The result is right, but slower "
        "than one graph.</p>\n");
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (!c->breaks.n && !c->error)
            continue;
        shown++;
        list_head(o, c, r, i);
        if (c->error)
            code(o, c->error, strlen(c->error));
        for (size_t k = 0; k < c->breaks.n; k++)
            code(o, c->breaks.at[k], strlen(c->breaks.at[k]));
        strbuf_add(o, "</div>\n");
    }
    strbuf_add(o, shown ? "</section>\n" : "<p>None recorded.</p></section>\n");
}

static void recompiles(strbuf *o, const report *r)
{
    size_t shown = 0;
    strbuf_add(
        o,
        "<section id=\"recompiles\"><h2>Recompiles</h2>\n<p class=\"help\">A compiled function is guarded by "
        "what was true when it was compiled. When a guard fails, the function is compiled again; the reason "
        "names the guard.</p>\n");
    for (size_t i = 0; i < r->compiles.n; i++) {
        const rp_compile *c = r->compiles.at[i];
        if (c->compile <= 0 && !c->recompiles.n)
            continue;
        shown++;
        list_head(o, c, r, i);
        for (size_t k = 0; k < c->recompiles.n; k++)
            code(o, c->recompiles.at[k], strlen(c->recompiles.at[k]));
        if (!c->recompiles.n)
            strbuf_add(o, "<p class=\"dim\">The trace does not say which guard failed; "
                          "<code>TAPER_LOGS=recompiles</code> prints it.</p>");
        strbuf_add(o, "</div>\n");
    }
    strbuf_add(o, shown ? "</section>\n" : "<p>None.</p></section>\n");
}

/* ---- one compile ---- */
static void record(strbuf *o, const rp_rec *p)
{
    strbuf_add(o, "<details><summary>");
    esc(o, p->title);
    if (p->attempt > 0)
        strbuf_addf(o, " <span class=\"dim\">(attempt %lld)</span>", (long long)p->attempt);
    strbuf_addf(o, " <span class=\"dim\">trace line %lld</span></summary>\n", (long long)p->line);
    if (p->damaged)
        strbuf_add(
            o, "<p><b>Damaged:</b> the text does not match its checksum; it may be cut or changed.</p>\n");
    if (p->same) {
        strbuf_add(o, "<p class=\"dim\">The same text as <b>");
        esc(o, p->same->title);
        strbuf_addf(o, "</b> (trace line %lld).</p>\n", (long long)p->same->line);
    } else
        code(o, p->text, p->n);
    if (p->cut && !p->same)
        strbuf_addf(o, "<p class=\"dim\">%zu more bytes are in the trace file.</p>\n", p->cut);
    strbuf_add(o, "</details>\n");
}

static void symbols(strbuf *o, const rp_compile *c)
{
    if (!c->symbols.n)
        return;
    strbuf_addf(
        o,
        "<details><summary>Symbols (%zu): sizes kept open, so one compile serves many</summary>"
        "<div class=\"scroll\"><table><tr><th>Symbol<th>Kind<th>Value seen<th>Range or reason<th>Comes from",
        c->symbols.n);
    for (size_t i = 0; i < c->symbols.n; i++) {
        const rp_symbol *s = &c->symbols.at[i];
        const char *cells[] = { s->symbol, s->what, s->val, s->range, s->source };
        strbuf_add(o, "\n<tr>");
        for (size_t k = 0; k < 5; k++) {
            strbuf_add(o, "<td class=\"mono\">");
            esc(o, cells[k]);
        }
    }
    strbuf_add(o, "</table></div></details>\n");
}

static void guards(strbuf *o, const rp_compile *c)
{
    if (!c->guards.n)
        return;
    strbuf_addf(
        o, "<details><summary>Guards (%zu): what must stay true for this code to be used again</summary><ul>",
        c->guards.n);
    for (size_t i = 0; i < c->guards.n; i++) {
        strbuf_add(o, "<li><code>");
        esc(o, c->guards.at[i]);
        strbuf_add(o, "</code>\n");
    }
    strbuf_add(o, "</ul></details>\n");
}

static void metrics(strbuf *o, const rp_compile *c)
{
    if (!c->metrics.n)
        return;
    strbuf_addf(o, "<details><summary>Metrics (%zu)</summary><div class=\"scroll\"><table>", c->metrics.n);
    for (size_t i = 0; i < c->metrics.n; i++) {
        strbuf_add(o, "<tr><td class=\"mono\">");
        esc(o, c->metrics.at[i].key);
        strbuf_add(o, "<td class=\"mono\">");
        esc(o, c->metrics.at[i].val);
        strbuf_addc(o, '\n');
    }
    strbuf_add(o, "</table></div></details>\n");
}

static void stack_list(strbuf *o, const rp_compile *c)
{
    if (!c->nstack)
        return;
    strbuf_add(o, "<details><summary>Call stack</summary><ol>");
    for (int i = 0; i < c->nstack; i++) {
        strbuf_add(o, "<li>");
        place(o, c->stack[i].name, c->stack[i].file, c->stack[i].line);
        strbuf_addc(o, '\n');
    }
    strbuf_add(o, "</ol></details>\n");
}

static void compile(strbuf *o, const report *r, size_t i)
{
    const rp_compile *c = r->compiles.at[i];
    bool none = !strcmp(c->id, "no id");
    strbuf_addf(o, "<details class=\"item\" id=\"c%zu\"><summary>", i);
    if (none)
        strbuf_add(o, "Records outside any compile");
    else {
        tag(o, r, i);
        strbuf_addc(o, ' ');
        place(o, c->func, c->where_file, c->where_line);
    }
    if (c->seconds >= 0)
        strbuf_addf(o, " <span class=\"dim\">%.3f s</span>", c->seconds);
    if (r->files.n > 1) {
        strbuf_add(o, " <span class=\"dim\">");
        if (r->files.at[c->file].rank >= 0)
            strbuf_addf(o, "rank %lld, ", (long long)r->files.at[c->file].rank);
        esc(o, r->files.at[c->file].name);
        strbuf_add(o, "</span>");
    }
    strbuf_add(o, "</summary>\n");
    if (c->attempts > 0)
        strbuf_addf(o, "<p class=\"dim\">The analysis started over %lld time%s.</p>\n",
                    (long long)c->attempts, plural(c->attempts));
    if (!c->has_metrics && !none)
        strbuf_add(o, "<p class=\"dim\">No metrics in the trace for this compile.</p>\n");
    stack_list(o, c);
    for (size_t k = 0; k < c->recs.n; k++)
        record(o, c->recs.at[k]);
    guards(o, c);
    symbols(o, c);
    metrics(o, c);
    strbuf_add(o, "</details>\n");
}

/* ---- the trace itself ---- */
static void problems(strbuf *o, const report *r)
{
    strbuf_add(
        o, "<section id=\"trace\"><h2>The trace files</h2>\n<div class=\"scroll\"><table><tr><th>File<th>Rank"
           "<th>Lines<th>Records");
    for (size_t i = 0; i < r->files.n; i++) {
        const rp_file *f = &r->files.at[i];
        strbuf_add(o, "\n<tr><td class=\"mono\">");
        esc(o, f->name);
        if (f->rank >= 0)
            strbuf_addf(o, "<td>%lld", (long long)f->rank);
        else
            strbuf_add(o, "<td>-");
        strbuf_addf(o, "<td>%lld<td>%lld", (long long)f->lines, (long long)f->records);
    }
    strbuf_add(o, "</table></div>\n");
    if (r->nskip)
        strbuf_addf(o, "<details open><summary>%lld problem%s while reading</summary><ul>\n",
                    (long long)r->nskip, plural(r->nskip));
    for (size_t i = 0; i < r->skips.n; i++) {
        strbuf_add(o, "<li><span class=\"mono\">");
        esc(o, r->files.at[r->skips.at[i].file].name);
        strbuf_addf(o, ":%lld</span> ", (long long)r->skips.at[i].line);
        esc(o, r->skips.at[i].why);
        strbuf_add(o, "</li>\n");
    }
    if (r->nskip > (int64_t)r->skips.n)
        strbuf_addf(o, "<li>and %lld more</li>\n", (long long)(r->nskip - (int64_t)r->skips.n));
    strbuf_add(o, r->nskip ? "</ul></details>\n" : "<p>Every line was understood.</p>\n");
    for (size_t i = 0; i < r->unknown.cap; i++) {
        const map_slot *s = &r->unknown.slots[i];
        if (!map_slot_live(s))
            continue;
        strbuf_add(o, "<p>Unknown kind of record: <code>");
        escn(o, s->key, s->klen);
        strbuf_addf(o, "</code>, %lld times</p>\n", (long long)(intptr_t)s->val);
    }
    strbuf_add(o, "</section>\n");
}

void report_html(const report *r, strbuf *o)
{
    rp_counts n = rp_count(r);
    strbuf_add(
        o, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
           "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
           "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
           "'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>Taper compile report</title>\n<style>");
    strbuf_add(o, style);
    strbuf_add(
        o, "</style></head>\n<body><header><h1>Taper compile report</h1>\n<nav><a "
           "href=\"#overview\">Overview</a>"
           "<a href=\"#stacks\">Where compiles came from</a><a href=\"#breaks\">Graph breaks and errors</a>"
           "<a href=\"#recompiles\">Recompiles</a><a href=\"#compiles\">Compiles</a>"
           "<a href=\"#trace\">Trace files</a></nav>\n<div id=\"s\" hidden><input id=\"q\" type=\"search\" "
           "aria-label=\"Search\" placeholder=\"Search code, guards, names (press /)\"> <span id=\"n\" "
           "class=\"dim\" role=\"status\"></span> <button id=\"o\">Unfold all</button> <button id=\"f\">Fold "
           "all</button></div></header>\n<main>\n");
    overview(o, r, &n);
    stacks(o, r);
    breaks(o, r);
    recompiles(o, r);
    strbuf_add(
        o,
        "<section id=\"compiles\"><h2>Compiles</h2>\n<p class=\"help\">Unfold a compile to follow it from "
        "your "
        "code to what runs: the captured graph (your operations), the graphs after gradients are worked out "
        "(joint, forward, backward, or inference), later rewrites, generated code, and the guards that "
        "decide whether it can be used again.</p>\n");
    for (size_t i = 0; i < r->compiles.n; i++)
        compile(o, r, i);
    strbuf_add(o, r->compiles.n ? "</section>\n" : "<p>None.</p></section>\n");
    problems(o, r);
    strbuf_add(
        o,
        "<footer>This page holds the source lines and graphs of the traced program, and no tensor data. It "
        "loads nothing from the network.</footer>\n</main>\n<script>");
    strbuf_add(o, script);
    strbuf_add(o, "</script></body></html>\n");
}
