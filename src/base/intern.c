#include "base/intern.h"

uint32_t intern_id(interns *t, const char *s, size_t n, bool *fresh)
{
    uintptr_t id = (uintptr_t)map_getn(&t->ids, s, n);
    if (fresh)
        *fresh = !id;
    if (id)
        return (uint32_t)(id - 1);
    char *copy = mem_strndup(s, n);
    vec_push(&t->strings, copy);
    map_putn(&t->ids, s, n, (void *)(uintptr_t)t->strings.n);
    return (uint32_t)(t->strings.n - 1);
}

const char *intern_str(interns *t, const char *s, size_t n)
{
    uint32_t id = intern_id(t, s, n, NULL);
    return t->strings.at[id];
}

void interns_free(interns *t)
{
    for (size_t i = 0; i < t->strings.n; i++)
        free((char *)t->strings.at[i]);
    vec_free(&t->strings);
    map_free(&t->ids);
}
