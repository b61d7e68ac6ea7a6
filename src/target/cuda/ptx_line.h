/* ptx_line.h - for files that write PTX as text into (t)->b. */
#ifndef TAPER_CUDA_PTX_LINE_H
#define TAPER_CUDA_PTX_LINE_H

/* One instruction. */
#define P(t, ...)                         \
    do {                                  \
        strbuf_addc((t)->b, '\t');        \
        strbuf_addf((t)->b, __VA_ARGS__); \
        strbuf_add((t)->b, ";\n");        \
    } while (0)
#define LABEL(t, ...) strbuf_addf((t)->b, __VA_ARGS__)
#endif
