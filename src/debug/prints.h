/* prints.h - what a program printed, compared: numbers by tolerance, the rest exactly. What two runs of the same program do
 * not agree on (times, addresses, temporary files, random numbers) is left out. */
#ifndef TAPER_PRINTS_H
#define TAPER_PRINTS_H
#include "base/strbuf.h"

typedef enum { PRINTS_same, PRINTS_numbers, PRINTS_text, PRINTS_lines } prints_kind;
/* How many times farther the numbers of got are from eager than near, which is eager with other roundings; INFINITY: more than numbers
 * differ. */
double prints_rounded(const strbuf *eager, const strbuf *again, const strbuf *near, const strbuf *got);
/* eager and again: two runs without the compiler; got: the run in question. why (may be NULL) gets the first difference:
 * "line 3: 4.0 (compiled), 2.8 (eager)". */
prints_kind prints_compare(const strbuf *eager, const strbuf *again, const strbuf *got, strbuf *why);
/* Are the lines the same, in whatever order? */
bool prints_reordered(const strbuf *a, const strbuf *b);
#endif
