/* near.h - the name that somebody probably meant.
 *   near_word n = { "repotr" };  near_try(&n, "report");  ...  near_hint(&n)  ->  "; did you mean 'report'?" */
#ifndef TAPER_NEAR_H
#define TAPER_NEAR_H
#include "base/base.h"

typedef struct near_word {
    const char *want;
    char best[64]; /* private from here */
    int distance;
    char text[96];
} near_word;

void near_try(near_word *n, const char *name); /* one of the names that exist */
const char *near_best(const near_word *n);     /* the nearest that is near enough, or NULL */
const char *near_hint(near_word *n);           /* lives as long as n; "" when none is near enough */
#endif
