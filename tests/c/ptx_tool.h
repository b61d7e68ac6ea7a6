/* ptx_tool.h - texts go through ptxas where it is installed (test_ptx.c). */
#ifndef TAPER_PTX_TOOL_H
#define TAPER_PTX_TOOL_H
#include "base/strbuf.h"

/* Fails the test with what ptxas says; a line says so where there is no ptxas. */
void ptx_assemble(const char *text, const char *arch, const char *who);
/* Fails the test where the text is not that of tests/ptx/NAME.ptx; TAPER_BLESS=1 writes it anew. */
void ptx_same_text(const char *name, strbuf *text);
#endif
