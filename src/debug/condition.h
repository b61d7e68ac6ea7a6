/* condition.h - for which sizes and values a minimal failure fails: "n % 16 == 15", "an element below 0". */
#ifndef TAPER_CONDITION_H
#define TAPER_CONDITION_H
#include "debug/trial.h"

/* The size of inputs that decides, and the simplest rule that fits every size that was tried, into out: "n % 16 == 15, where n is
 * the size 47 of the inputs". False: the failure does not depend on sizes in such a way, or nothing was found out. */
bool condition_find(const repro *r, const signature *want, const trial_limits *l, strbuf *out, tp_err *err);
/* What it takes beside the sizes, each of which the failure goes away without: "an element below 0, an input that is not contiguous". */
bool condition_needs(const repro *r, const signature *want, const trial_limits *l, strbuf *out, tp_err *err);
/* The rule alone, for sizes n[i] that fail or not. False: none fits, or all are alike. */
bool condition_rule(const int64_t *n, const bool *fails, int count, strbuf *out);
#endif
