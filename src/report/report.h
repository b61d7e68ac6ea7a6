/* report.h - trace files (TAPER_TRACE) to one HTML page, or a JSON summary.
 * Reads files and nothing else of the compiler. Everything in a trace is untrusted: lines that make no sense
 * are skipped and counted, and whatever reaches the page is escaped. */
#ifndef TAPER_REPORT_H
#define TAPER_REPORT_H
#include "base/err.h"
#include "base/strbuf.h"

typedef struct report report;
report *report_new(void);
void report_free(report *r);
/* A trace file, or a directory: every *.log in it. False: unreadable, or a directory without traces. */
bool report_add(report *r, const char *path, tp_err *err);
void report_add_text(report *r, const char *name, const char *text, size_t n); /* as if read from a file */
void report_html(const report *r, strbuf *out);
void report_json(const report *r, strbuf *out);
#endif
