/* envvars.h - environment variables by number, from the one table in envvars.def. */
#ifndef TAPER_ENVVARS_H
#define TAPER_ENVVARS_H
#include "base/base.h"

typedef enum {
#define ENV(id, name, torch, help) ENV_##id,
#include "base/envvars.def"
    ENV_COUNT
} env_var;
typedef struct env_row {
    const char *name, *torch, *help;
} env_row;

const env_row *env_row_of(env_var v);
/* The value, or NULL when unset. Under the torch alias the torch spelling counts where ours is unset. */
const char *env_get(env_var v);
bool env_on(env_var v);                  /* set, and not "", "0", "false", "no" or "off" */
int64_t env_int(env_var v, int64_t def); /* def when unset or not a whole number */
/* The spelling the user knows: torch's under the alias. */
const char *env_name(env_var v);

/* The torch alias: torch spellings of variables count, and messages speak of torch. Set once, by front. */
void env_set_torch_alias(bool on);
bool env_torch_alias(void);
#endif
