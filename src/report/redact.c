/* redact.c - private words out of everything that is shown. What is not known to be ours goes: an identifier that is
 * neither a word of this list nor follows "taper.", "torch." or "aten." becomes n1, n2, ... (the same one everywhere),
 * and source lines are left out. Numbers, operators and shapes stay: they are what the report is about. */
#include "report/model.h"
#include <ctype.h>

/* Words of Taper's own messages, of graphs, of guards and of C. Sorted, for bsearch. */
static const char *const ours[] = {
#define W(s) s,
#include "report/words.def"
#undef W
};

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static bool is_ours(const char *s, size_t n)
{
    char w[40];
    const char *key = w;
    if (n >= sizeof w)
        return false;
    memcpy(w, s, n);
    w[n] = 0;
    return bsearch(&key, ours, COUNT(ours), sizeof *ours, by_text) != NULL;
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }

/* s0, u12, f32, i64, v9, k3, L, G and hexadecimal keys tell nothing. */
static bool is_plain(const char *s, size_t n)
{
    size_t k = 0;
    if (n == 1)
        return strchr("LGVIWECDx_", *s) != NULL;
    if (!strchr("sufivbkTB", *s))
        return false;
    for (k = 1; k < n && (isdigit((unsigned char)s[k]) || (k == 1 && s[0] == 'T' && s[1] == 'B')); k++)
        ;
    return k == n;
}

static void add_number(report *r, strbuf *out, const char *s, size_t n)
{
    size_t k = (size_t)(uintptr_t)map_getn(&r->hidden, s, n);
    if (!k) {
        k = r->hidden.n + 1;
        if (k <= 200000)
            map_putn(&r->hidden, s, n, (void *)k);
    }
    strbuf_addf(out, "n%zu", k);
}

/* After "code: " of a graph comment, and inside C comments, stands the user's source. */
static size_t source_at(const char *s, size_t n, size_t i)
{
    static const char code[] = "code: ";
    size_t k = i;
    if (n - i > 6 && !memcmp(s + i, code, 6) && i && s[i - 1] == ' ') {
        for (k = i + 6; k < n && s[k] != '\n';)
            k++;
        return k - i;
    }
    if (n - i > 3 && s[i] == '/' && s[i + 1] == '*')
        for (k = i + 2; k + 1 < n && s[k] != '\n'; k++)
            if (s[k] == '*' && s[k + 1] == '/')
                return k + 2 - i;
    return 0;
}

void rp_hide(report *r, strbuf *out, const char *s, size_t n)
{
    bool dotted = false; /* behind taper. or torch. or aten. */
    if (!r->redact) {
        strbuf_addn(out, s, n);
        return;
    }
    for (size_t i = 0; i < n;) {
        size_t skip = source_at(s, n, i), k = i;
        if (skip) {
            strbuf_add(out, s[i] == '/' ? "/* ... */" : "code: ...");
            i += skip;
            continue;
        }
        if (!word_char(s[i])) {
            dotted = dotted && s[i] == '.';
            strbuf_addc(out, s[i++]);
            continue;
        }
        while (k < n && word_char(s[k]))
            k++;
        size_t len = k - i;
        bool root = (len == 5 && (!memcmp(s + i, "taper", 5) || !memcmp(s + i, "torch", 5))) ||
                    (len == 4 && !memcmp(s + i, "aten", 4));
        bool path = i && (s[i - 1] == '/' || (k < n && s[k] == '/')); /* a piece of a path */
        if (isdigit((unsigned char)s[i]) ||
            (!path && (root || dotted || is_plain(s + i, len) || is_ours(s + i, len))))
            strbuf_addn(out, s + i, len);
        else
            add_number(r, out, s + i, len);
        dotted = !path && (root || dotted);
        i = k;
    }
}

const char *rp_hidden(report *r, const char *s)
{
    strbuf b = { 0 };
    if (!s || !r->redact)
        return s;
    rp_hide(r, &b, s, strlen(s));
    const char *kept = arena_strdup(&r->mem, strbuf_str(&b));
    strbuf_free(&b);
    return kept;
}
