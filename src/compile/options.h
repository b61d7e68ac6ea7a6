/* options.h - options of the last stage by number, from the one table in options.def. */
#ifndef TAPER_RUN_OPTIONS_H
#define TAPER_RUN_OPTIONS_H
#include "base/err.h"
#include "base/strbuf.h"
#include "target/target.h"

typedef enum {
#define OPTION(name, def, values, help) OPT_##name,
#include "compile/options.def"
    OPT_COUNT
} option_id;

typedef struct run_options {
    int8_t v[OPT_COUNT]; /* index of the word */
} run_options;

typedef struct option_row {
    const char *name, *def, *values, *help;
} option_row;
const option_row *option_row_of(option_id o);
const char *option_word(option_id o, int v, char *buf, size_t n); /* the word, in buf */
const char *option_word_at(option_id o, int v, size_t *n);        /* n bytes of the table itself */

/* The defaults, as changed by the environment (TAPER_EMITTER). */
run_options options_default(void);
void options_environment(run_options *o); /* what the environment says of every compile */
/* Those that are not the defaults, as "name=value name=value"; and back (words that are not known are passed over). */
void options_own(strbuf *b, const run_options *o);
void options_parse(run_options *o, const char *text);
/* Names and values may come from users: unknown ones are refused, with those there are. */
bool options_set(run_options *o, const char *name, const char *value, tp_err *err);
/* o's, or the defaults where o is NULL. */
static inline run_options options_of(const struct run_options *o) { return o ? *o : options_default(); }
/* The target that the options emitter and isa ask for; where this machine has no such one, another or NULL, with the reason in
 * *why (empty otherwise; NULL: nobody asks). */
const target *options_target(const run_options *o, dev_kind device, const char **why);
target_caps options_caps(const run_options *o, const target *t); /* as the option unroll changes them */
void options_print(strbuf *b, const run_options *o);             /* "emitter=c isa=auto" */
#endif
