/* redact.c - private words out of everything that is shown, by two rules.
 *
 * By place: while the trace is read, the names that stand where only the program's own can stand are collected:
 * functions, files, tensors, attributes, modules, custom operators, keys and other strings. Each of these words is
 * replaced wherever it comes up, also when it is a word of ours ("graph", "kernel").
 * By exclusion: of what is left, only words of this list (words.def: Taper's messages, graphs, guards and C) and what
 * follows "taper.", "torch." or "aten." stay.
 * Words become n1, n2, ... (the same one everywhere); source lines and what exceptions of the program say are left out. Numbers, operators and shapes
 * stay: they are what the report is about. */
#include "report/model.h"
#include <ctype.h>

/* Words of Taper's own messages, of graphs, of guards and of C. Sorted, for bsearch. */
static const char *const ours[] = {
#define W(s) s,
#include "report/words.def"
#undef W
};
/* What stands at the program's places in every program. */
static const char *const common[] = { "self", "forward", "lambda", "_modules", "_parameters", "_buffers" };
static const char *const attributes[] = { "size", "stride", "shape", "keys", "item" }; /* behind a source */
static const char *const types[] = {
    "NoneType", "OrderedDict", "Parameter", "Tensor", "bool",      "builtins",
    "code",     "collections", "dict",      "float",  "frozenset", "function",
    "int",      "list",        "method",    "module", "object",    "range",
    "set",      "slice",       "str",       "tuple",  "type",      "builtin_function_or_method"
}; /* <class 'int'> */

static bool listed(const char *const *list, size_t count, const char *s, size_t n)
{
    size_t lo = 0, hi = count;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2, m = strlen(list[mid]);
        int c = memcmp(s, list[mid], MIN(n, m));
        c = c ? c : n < m ? -1 : n > m;
        if (!c)
            return true;
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return false;
}

static bool among(const char *const *list, size_t count, const char *s, size_t n)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i]) == n && !memcmp(list[i], s, n))
            return true;
    return false;
}

static bool is_common(const char *s, size_t n)
{
    return (n > 4 && !memcmp(s, "__", 2) && !memcmp(s + n - 2, "__", 2)) || /* __dict__ */
           among(common, COUNT(common), s, n);
}

static bool word_char(char c) { return isalnum((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80; }
static bool is_root(const char *s, size_t n)
{
    return (n == 5 && (!memcmp(s, "taper", 5) || !memcmp(s, "torch", 5))) ||
           (n == 4 && !memcmp(s, "aten", 4)) || (n == 5 && !memcmp(s, "prims", 5));
}

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

/* ---- collecting ---- */
static size_t word_end(const char *s, size_t n, size_t i)
{
    while (i < n && word_char(s[i]))
        i++;
    return i;
}

static void add_private(report *r, const char *s, size_t n)
{
    if (!n || isdigit((unsigned char)*s) || is_plain(s, n) || is_common(s, n) || is_root(s, n) ||
        r->secret.n >= 200000)
        return;
    map_putn(&r->secret, s, n, (void *)1);
}

/* Every word of s is the program's, but for what follows "taper." */
void rp_private(report *r, const char *s, size_t n)
{
    bool dotted = false;
    if (!r->redact || !s || (n && *s == '<')) /* <module>, <lambda> */
        return;
    if (n > 3 && !memcmp(s + n - 3, ".py", 3))
        n -= 3;
    for (size_t i = 0; i < n;) {
        size_t k = word_end(s, n, i);
        if (k == i) {
            dotted = dotted && s[i] == '.';
            i++;
            continue;
        }
        dotted = dotted || is_root(s + i, k - i);
        if (!dotted)
            add_private(r, s + i, k - i);
        i = k;
    }
}

static bool starts(const char *s, size_t n, size_t i, const char *key)
{
    size_t m = strlen(key);
    return n - i >= m && !memcmp(s + i, key, m);
}

/* A node's own name tells nothing where it is that of its operator: "sin_1: ... = taper.sin(". */
static bool named_by_operator(const char *s, size_t n, size_t from, size_t to, size_t value)
{
    static const char *const infix[] = {
        "add",       "sub",          "mul",     "div",   "matmul", "pow",     "neg",       "eq",
        "ne",        "lt",           "le",      "gt",    "ge",     "getitem", "floordiv",  "mod",
        "primals",   "tangents",     "truediv", "and_",  "or_",    "xor",     "invert",    "bitwise_not",
        "remainder", "floor_divide", "rsub",    "slice", "select", "index",   "unsqueeze", "sym_size_int"
    };
    while (to > from && isdigit((unsigned char)s[to - 1]))
        to--;
    to -= to > from && s[to - 1] == '_';
    for (size_t i = 0; i < COUNT(infix); i++)
        if (strlen(infix[i]) == to - from && !memcmp(infix[i], s + from, to - from))
            return true;
    size_t dot = value;
    for (size_t i = value; i < n && (word_char(s[i]) || s[i] == '.'); i++)
        if (s[i] == '.')
            dot = i + 1;
    return word_end(s, n, dot) - dot == to - from && !memcmp(s + dot, s + from, to - from) && dot != value;
}

/* One line of a payload or of a record: what stands at the places of names. */
void rp_private_line(report *r, const char *s, size_t n)
{
    size_t i = 0;
    if (!r->redact)
        return;
    while (i < n && s[i] == ' ')
        i++;
    size_t k = word_end(s, n, i);
    if (k > i && starts(s, n, k, ": \"")) { /* a node: name: "f32[3]" = taper.sin(x) */
        size_t q = k + 3;
        while (q < n && s[q] != '"')
            q++;
        if (starts(s, n, q, "\" = ") && !named_by_operator(s, n, i, k, q + 4))
            add_private(r, s + i, k - i);
    }
    for (i = 0; i < n; i++) {
        char before = i ? s[i - 1] : ' ';
        if (s[i] == '\'' && !word_char(before)) { /* a Python string */
            size_t q = i + 1;
            while (q < n && s[q] != '\'' && q - i < 300)
                q += 1 + (s[q] == '\\');
            if (q < n && s[q] == '\'' && (q + 1 == n || !word_char(s[q + 1]))) {
                bool type = i >= 7 && !memcmp(s + i - 7, "<class ", 7),
                     device = i >= 5 && !memcmp(s + i - 5, "type=", 5);
                size_t last = q; /* of a.b.C */
                while (last > i + 1 && s[last - 1] != '.')
                    last--;
                if (!device && !(type && among(types, COUNT(types), s + last, q - last)))
                    rp_private(r, s + i + 1, q - i - 1);
                i = q;
            }
        } else if (starts(s, n, i, "self.") && !word_char(before)) /* an attribute in a graph */
            add_private(r, s + i + 5, word_end(s, n, i + 5) - i - 5);
        else if ((s[i] == ']' || s[i] == ')') && i + 1 < n &&
                 s[i + 1] == '.') { /* an attribute in a source */
            size_t q = word_end(s, n, i + 2);
            if (!among(attributes, COUNT(attributes), s + i + 2, q - i - 2))
                add_private(r, s + i + 2, q - i - 2);
        } else if (starts(s, n, i, ".py") && word_char(before)) { /* a file */
            size_t q = i;
            while (q && (word_char(s[q - 1]) || strchr("/.-", s[q - 1])))
                q--;
            rp_private(r, s + q, i - q);
        } else if (starts(s, n, i, "ops.") && !word_char(before)) { /* a custom operator: ops.mine.twice */
            size_t q = word_end(s, n, i + 4);
            if (!is_root(s + i + 4, q - i - 4)) {
                add_private(r, s + i + 4, q - i - 4);
                if (q < n && s[q] == '.')
                    add_private(r, s + q + 1, word_end(s, n, q + 1) - q - 1);
            }
        } else if (starts(s, n, i, "::") && word_char(before)) { /* the same as mine::twice */
            size_t q = i;
            while (q && word_char(s[q - 1]))
                q--;
            add_private(r, s + q, i - q);
            add_private(r, s + i + 2, word_end(s, n, i + 2) - i - 2);
        } else if (starts(s, n, i, " in ") &&
                   (isdigit((unsigned char)before) || before == ',')) /* x.py:3 in f */
            add_private(r, s + i + 4, word_end(s, n, i + 4) - i - 4);
    }
}

/* ---- replacing ---- */
static void add_number(report *r, strbuf *out, const char *s, size_t n)
{
    if (r->with && r->with < r) /* one of two that are compared counts for both */
        r = r->with;
    size_t k = (size_t)(uintptr_t)map_getn(&r->hidden, s, n);
    if (!k) {
        k = r->hidden.n + 1;
        if (k <= 200000)
            map_putn(&r->hidden, s, n, (void *)k);
    }
    strbuf_addf(out, "n%zu", k);
}

static size_t line_end(const char *s, size_t n, size_t i)
{
    const char *nl = i < n ? memchr(s + i, '\n', n - i) : NULL;
    return nl ? (size_t)(nl - s) : n;
}

static bool ends_in(const char *s, size_t n, const char *with)
{
    size_t m = strlen(with);
    return n >= m && !memcmp(s + n - m, with, m);
}

/* What an exception says, behind its type at the start of a line, or behind the name of one of ours: "ValueError: no
 * such customer". Ours say nothing of the program but its names. Returns how much of s from i on, 0: nothing. */
static size_t said_by_exception(const char *s, size_t n, size_t i)
{
    static const char *const own[] = { "Unsupported",
                                       "InternalTorchDynamoError",
                                       "BackendCompilerFailed",
                                       "RecompileError",
                                       "FailOnRecompileLimitHit",
                                       "ConstraintViolationError",
                                       "TorchRuntimeError",
                                       "UserError",
                                       "InvalidBackend",
                                       "Reason" };
    if (i < 3 || s[i - 1] != ' ' || s[i - 2] != ':')
        return 0;
    size_t to = i - 2, from = to, last = to;
    while (from && (word_char(s[from - 1]) || s[from - 1] == '.'))
        from--;
    while (last > from && s[last - 1] != '.')
        last--;
    const char *type = s + last;
    size_t len = to - last, start = from;
    while (start && s[start - 1] == ' ')
        start--;
    bool first = !start || s[start - 1] == '\n';
    for (size_t k = 0; k < COUNT(own) && !first; k++)
        first = ends_in(s, from >= 2 ? from - 2 : 0, own[k]) && s[from - 2] == ':';
    if (!first || !isupper((unsigned char)*type) || among(own, COUNT(own), type, len))
        return 0;
    bool error = ends_in(type, len, "Error") || ends_in(type, len, "Exception") ||
                 ends_in(type, len, "Interrupt");
    for (size_t k = last; k < to && !error; k++)
        if (s[k] == '_')
            return 0; /* TYPE_MATCH: */
    if (!error && listed(ours, COUNT(ours), type, len))
        return 0; /* Explanation: */
    size_t k = i;
    while (k < n && !(s[k] == '\n' && (k + 1 == n || s[k + 1] == '\n' || s[k + 1] == ' ')))
        k++;
    return k - i;
}

/* The user's source: after "code: " of a graph comment, inside C comments, behind "x.py:3 " of a step or a hint, behind
 * a guard, and the line below 'File "x.py", line 3, in f'. How much of it begins at i, and what to write instead. */
static size_t source_at(const char *s, size_t n, size_t i, const char **instead)
{
    size_t k = i, said = said_by_exception(s, n, i);
    if (said) {
        *instead = "...";
        return said;
    }
    if (starts(s, n, i, "code: ") && i && s[i - 1] == ' ') {
        *instead = "code: ...";
        return line_end(s, n, i) - i;
    }
    if (starts(s, n, i, "/*"))
        for (k = i + 2; k + 1 < n && s[k] != '\n'; k++)
            if (s[k] == '*' && s[k + 1] == '/') {
                *instead = "/* ... */";
                return k + 2 - i;
            }
    if (starts(s, n, i, ".py:")) {
        for (k = i + 4; k < n && isdigit((unsigned char)s[k]);)
            k++;
        if (k > i + 4 && k < n && s[k] == ' ' && !starts(s, n, k, " in ")) {
            *instead = ".py ...";
            return line_end(s, n, i) - i;
        }
    }
    if (starts(s, n, i, "  # ") && !starts(s, n, i, "  # source: ")) { /* of a guard */
        for (k = i; k && s[k - 1] != '\n';)
            k--;
        if (starts(s, n, k, "| ") || starts(s, n, k, "+- ")) {
            *instead = "  # ...";
            return line_end(s, n, i) - i;
        }
    }
    if (s[i] == '\n') {
        for (k = i; k && s[k - 1] != '\n';)
            k--;
        while (k < i && (s[k] == ' ' || s[k] == '|'))
            k++;
        size_t end = line_end(s, n, i + 1), from = i + 1;
        while (from < end && s[from] == ' ')
            from++;
        if (starts(s, n, k, "File \"") && from > i + 1 && !starts(s, n, from, "File \"")) {
            *instead = "\n    ...";
            return end - i;
        }
    }
    if (starts(s, n, i, "\\n ")) { /* the same as a string of JSON */
        enum { FAR = 4096 };
        size_t low = i > FAR ? i - FAR : 0, from = i + 2, end;
        for (k = i;
             k > low && s[k - 1] != '\n' && !starts(s, n, k - 1, "\\n") && !starts(s, n, k, "File \\\"");)
            k--;
        while (from < n && s[from] == ' ')
            from++;
        for (end = from;
             end < n && s[end] != '\n' && !starts(s, n, end, "\\n") && (s[end] != '"' || s[end - 1] == '\\');)
            end++;
        if (starts(s, n, k, "File \\\"") && !starts(s, n, from, "File \\\"")) {
            *instead = "\\n    ...";
            return end - i;
        }
    }
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
        const char *instead;
        size_t skip = source_at(s, n, i, &instead);
        if (skip) {
            strbuf_add(out, instead);
            i += skip;
            dotted = false;
            continue;
        }
        if (!word_char(s[i])) {
            dotted = dotted && s[i] == '.';
            strbuf_addc(out, s[i++]);
            continue;
        }
        size_t k = word_end(s, n, i), len = k - i;
        bool root = is_root(s + i, len);
        bool path = i && (s[i - 1] == '/' || (k < n && s[k] == '/'));  /* a piece of a path */
        if (!path && len == 3 && !memcmp(s + i, "ops", 3) && dotted) { /* what follows may be the program's */
            strbuf_addn(out, s + i, len);
            dotted = false;
            i = k;
            continue;
        }
        bool secret = map_getn(&r->secret, s + i, len) || (r->with && map_getn(&r->with->secret, s + i, len));
        bool known = root || dotted || is_plain(s + i, len) || is_common(s + i, len) ||
                     (!secret && listed(ours, COUNT(ours), s + i, len));
        if (isdigit((unsigned char)s[i]) || (!path && known))
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
