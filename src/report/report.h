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
void report_redact(report *r); /* before anything is added: names, paths and source lines are replaced */
/* A trace file, or a directory: every *.log in it. False: unreadable, or a directory without traces. */
bool report_add(report *r, const char *path, tp_err *err);
/* As if read from a file; the text must outlive the report. */
void report_add_text(report *r, const char *name, const char *text, size_t n);
void report_html(report *r, strbuf *out);
void report_json(report *r, strbuf *out);
void report_chrome(report *r, strbuf *out); /* Chrome's trace events, for Perfetto */
void report_sarif(report *r, strbuf *out);  /* breaks, recompiles, errors and hints for editors */
/* The page into a file, as it is made: memory does not grow with it. diff: NULL, or the trace to compare with. */
bool report_html_file(report *r, report *diff, const char *path, tp_err *err);
void report_diff_html(report *a, report *b, strbuf *out);
#endif
