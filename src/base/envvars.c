#include "base/envvars.h"
#include <errno.h>
#include <stdatomic.h>
#include <strings.h>

static const env_row rows[] = {
#define ENV(id, name, torch, help) { name, torch, help },
#include "base/envvars.def"
};
static _Atomic bool alias;

void env_set_torch_alias(bool on) { alias = on; }
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

int64_t env_int(env_var v, int64_t def)
{
    const char *s = env_get(v);
    char *end;
    if (!s || !*s)
        return def;
    errno = 0;
    long long x = strtoll(s, &end, 10);
    return errno || *end ? def : x;
}
