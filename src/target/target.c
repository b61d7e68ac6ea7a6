/* target.c - the table of targets. */
#include "target/target.h"
#include "target/cuda/cuda.h"

/* By device; the best first. The last one of a device that is always available ends the search. */
static const target *const rows[] = { &target_avx512, &target_avx2, &target_c, &target_interp, &target_cuda };

static bool can_run(const target *t)
{
    const char *why;
    return t->available(t, &why);
}

const target *target_of(dev_kind k)
{
    static const target *_Atomic found[DEV_COUNT]; /* racing threads find the same */
    const target *t = found[k];
    for (size_t i = 0; !t && i < COUNT(rows); i++)
        if (rows[i]->device == k && can_run(rows[i]))
            found[k] = t = rows[i];
    return t;
}

const target *target_named(dev_kind k, const char *name, const char *level, const char **why)
{
    bool any = !strcmp(name, "auto"), open = !strcmp(level, "auto");
    *why = k == DEV_cpu ? "" : "this build of Taper has no target for it";
    for (size_t i = 0; i < COUNT(rows); i++) {
        const target *t = rows[i];
        if (t->device != k || (!any && strcmp(name, t->name)))
            continue;
        open |= !strcmp(level, t->level);
        if (*t->level && !open)
            *why = "the options allow no instruction set that it needs";
        else if (t->available(t, why))
            return t;
    }
    return k == DEV_cpu ? &target_interp : NULL;
}

const target *target_below(const target *t, const char *level)
{
    for (size_t i = 0, past = 0; i < COUNT(rows); i++) {
        if (past && !strcmp(rows[i]->name, t->name) && !strcmp(rows[i]->level, level) && can_run(rows[i]))
            return rows[i];
        past |= rows[i] == t;
    }
    return NULL;
}

void target_id(const target *t, strbuf *out)
{
    strbuf_adds(out, t->name, *t->level ? "-" : "", t->level, NULL);
}

const target *target_by_id(const char *id, size_t n)
{
    const target *found = NULL;
    strbuf b = { 0 };
    for (size_t i = 0; !found && i < COUNT(rows); i++) {
        strbuf_clear(&b);
        target_id(rows[i], &b);
        if (b.n == n && !memcmp(b.s, id, n))
            found = rows[i];
    }
    strbuf_free(&b);
    return found;
}

const char *const *target_words(void)
{
    static const char *words[COUNT(rows) + 1];
    for (size_t i = 0; i < COUNT(rows); i++) /* racing threads write the same */
        words[i] = *rows[i]->level ? rows[i]->level : rows[i]->name;
    return words;
}

const target *target_by_word(const char *word)
{
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strcmp(word, *rows[i]->level ? rows[i]->level : rows[i]->name))
            return rows[i];
    return target_by_id(word, strlen(word));
}

void target_key(const target *t, strbuf *out)
{
    strbuf_adds(out, "target=", t->name, "\n", NULL);
    if (t->key)
        t->key(t, out);
}

void *target_code_new(const target *t, const char *name, size_t size)
{
    target_code *c = mem_zalloc(size);
    c->on = t;
    c->name = mem_strdup(name);
    return c;
}
