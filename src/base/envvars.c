#include "base/envvars.h"
#include "base/near.h"
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>

static const env_row rows[] = {
#define TEXT                             ENV_text, 0, 0
#define FLAG                             ENV_flag, 0, 0
#define INT(lo, hi)                      ENV_int, lo, hi
#define ENV(id, name, torch, type, help) { name, torch, help, type },
#include "base/envvars.def"
};
static _Atomic bool alias;

void env_set_torch_alias(bool on)
{
    alias = on;
    env_check();
}
bool env_torch_alias(void) { return alias; }
const env_row *env_row_of(env_var v) { return &rows[v]; }
const char *env_name(env_var v) { return alias && *rows[v].torch ? rows[v].torch : rows[v].name; }

const char *env_get(env_var v)
{
    const char *s = getenv(rows[v].name);
    return !s && alias && *rows[v].torch ? getenv(rows[v].torch) : s;
}

bool env_on(env_var v)
{
    static const char *const off[] = { "", "0", "false", "no", "off" };
    const char *s = env_get(v);
    for (size_t i = 0; s && i < COUNT(off); i++)
        if (!strcasecmp(s, off[i]))
            return false;
    return s != NULL;
}

static void complain(env_var v, const char *s)
{
    static _Atomic bool said[ENV_COUNT];
    const char *name = getenv(rows[v].name) ? rows[v].name : rows[v].torch;
    if (atomic_exchange(&said[v], true))
        return;
    fprintf(stderr, "taper: %s=%.40s is ignored: it must be a whole number from %lld", name, s,
            (long long)rows[v].lo);
    if (rows[v].hi < 1 << 30)
        fprintf(stderr, " to %lld", (long long)rows[v].hi);
    fputs(rows[v].hi < 1 << 30 ? "\n" : " on\n", stderr);
}

int64_t env_int(env_var v, int64_t def)
{
    const char *s = env_get(v);
    char *end;
    assert(rows[v].type == ENV_int);
    if (!s || !*s)
        return def;
    errno = 0;
    long long x = strtoll(s, &end, 10);
    if (!errno && !*end && end > s && x >= rows[v].lo && x <= rows[v].hi)
        return x;
    complain(v, s);
    return def;
}

/* TAPER_LOGZ=...: nothing reads it. Said once, and only of names that are nearly right: tests and tools have their own. */
static void check_names(void)
{
    static _Atomic bool done;
    extern char **environ;
    if (atomic_exchange(&done, true))
        return;
    for (char **e = environ; e && *e; e++) {
        char name[64];
        size_t n = strcspn(*e, "=");
        if (strncmp(*e, "TAPER_", 6) || n >= sizeof name)
            continue;
        memcpy(name, *e, n);
        name[n] = 0;
        near_word near = { name };
        for (int v = 0; v < ENV_COUNT; v++)
            near_try(&near, rows[v].name);
        if (near_best(&near) && near.distance > 0 && near.distance <= 2)
            fprintf(stderr, "taper: the environment variable %s is not one that Taper reads%s\n", name,
                    near_hint(&near));
    }
}

static bool among(const char *s, const char *words, bool cases) /* with blanks between them */
{
    size_t n = strlen(s);
    for (const char *w = words; *w; w += strcspn(w, " "), w += strspn(w, " "))
        if (strcspn(w, " ") == n && !(cases ? strncmp(w, s, n) : strncasecmp(w, s, n)))
            return true;
    return n == 0;
}

/* Texts that are one word of a few; what is none of them counts as unset where it is read. */
static const struct {
    env_var v;
    const char *words;
} choices[] = { { ENV_isa, "base none avx2 avx512" },
                { ENV_products, "blas" },
                { ENV_units, "none avx512 amx" } };

static void check_words(env_var v, const char *words, const char *taken)
{
    static _Atomic bool said[ENV_COUNT];
    const char *s = env_get(v);
    if (s && !among(s, words, rows[v].type == ENV_text) && !atomic_exchange(&said[v], true))
        fprintf(stderr, "taper: %s=%.40s is %s: it must be one of: %s\n",
                getenv(rows[v].name) ? rows[v].name : rows[v].torch, s, taken, words);
}

void env_check(void)
{
    check_names();
    for (int v = 0; v < ENV_COUNT; v++)
        if (rows[v].type == ENV_int)
            env_int((env_var)v, 0);
        else if (rows[v].type == ENV_flag)
            check_words((env_var)v, "0 1 false true no yes off on", "taken for 1");
    for (size_t i = 0; i < COUNT(choices); i++)
        check_words(choices[i].v, choices[i].words, "ignored");
}
