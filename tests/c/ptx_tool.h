/* ptx_tool.h - texts go through ptxas where it is installed (test_ptx.c). */
#ifndef TAPER_PTX_TOOL_H
#define TAPER_PTX_TOOL_H

/* Fails the test with what ptxas says; a line says so where there is no ptxas. */
void ptx_assemble(const char *text, const char *arch, const char *who);
#endif
