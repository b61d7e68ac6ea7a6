/* envvars.h - environment variables by number, from the one table in envvars.def. */
#ifndef TAPER_ENVVARS_H
#define TAPER_ENVVARS_H
#include "base/base.h"

typedef enum {
#define ENV(id, name, torch, type, help) ENV_##id,
#include "base/envvars.def"
    ENV_COUNT
} env_var;
typedef struct env_row {
    const char *name, *torch, *help;
    enum { ENV_text, ENV_flag, ENV_int } type;
    int64_t lo, hi; /* of numbers */
} env_row;

const env_row *env_row_of(env_var v);
/* The value, or NULL when unset. Under the torch alias the torch spelling counts where ours is unset. */
const char *env_get(env_var v);
bool env_on(env_var v); /* set, and not "", "0", "false", "no" or "off" */
/* def when it is unset. What is no whole number, or none that makes sense, is def as well, and stderr hears of it once. */
int64_t env_int(env_var v, int64_t def);
/* Reads every number once, so that what is wrong with one shows at the start and not when, or if, it is needed. */
void env_check(void);
/* The spelling the user knows: torch's under the alias. */
const char *env_name(env_var v);

/* The torch alias: torch spellings of variables count, and messages speak of torch. Set once, by front. */
void env_set_torch_alias(bool on);
bool env_torch_alias(void);
#endif
