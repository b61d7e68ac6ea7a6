/* cmd_compile.c - taper compile: a graph file as C, as a library or as assembly, for programs without Taper. */
#include "cli/cli.h"
#include "base/file.h"
#include "target/c/c.h"
#include "export/emit.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static char *stem_of(const char *path) /* "dir/my-model.graph" -> "my_model" */
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    strbuf b = { 0 };
    for (const char *p = base; *p && *p != '.'; p++)
        strbuf_addc(&b, isalnum((unsigned char)*p) && (unsigned char)*p < 128 ? *p : '_');
    if (!b.n || isdigit((unsigned char)b.s[0])) {
        char *rest = strbuf_take(&b);
        strbuf_addf(&b, "graph_%s", rest ? rest : "");
        free(rest);
    }
    return strbuf_take(&b);
}

static bool is_identifier(const char *s)
{
    static const char *const words[] = { "auto",    "break", "case",   "char",   "const",    "continue",
                                         "default", "do",    "double", "else",   "enum",     "extern",
                                         "float",   "for",   "goto",   "if",     "int",      "long",
                                         "return",  "short", "signed", "sizeof", "static",   "struct",
                                         "switch",  "void",  "union",  "while",  "unsigned", "volatile",
                                         "typedef", "main" };
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (const char *p = s; *p; p++)
        if ((unsigned char)*p >= 128 || (!isalnum((unsigned char)*p) && *p != '_'))
            return false;
    for (size_t i = 0; i < COUNT(words); i++)
        if (!strcmp(s, words[i]))
            return false;
    return strlen(s) < 64;
}

static int run_compile(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    const char *graph = NULL, *kind = NULL, *out = NULL, *name = NULL;
    bool blas = false;
    while (a.at < argc) {
        if (cli_option(&a, "emit", &kind) || cli_option(&a, "name", &name))
            continue;
        if (cli_flag(&a, "blas"))
            blas = true;
        else if (!strcmp(argv[a.at], "-o")) {
            if (a.at + 1 >= argc)
                return cli_usage("-o needs a file");
            out = argv[a.at + 1];
            a.at += 2;
        } else if (argv[a.at][0] == '-' || graph)
            return cli_unknown(&a);
        else
            graph = argv[a.at++];
    }
    if (!graph || !out || !kind)
        return cli_usage("compile takes a graph file, --emit c|so|asm and -o FILE");
    if (strcmp(kind, "c") && strcmp(kind, "so") && strcmp(kind, "asm"))
        return cli_usage("--emit is c, so or asm, not '%.40s'", kind);
    if (blas && strcmp(kind, "c"))
        return cli_usage("--blas goes with --emit c: the program that links it chooses the BLAS");
    if (name && !is_identifier(name))
        return cli_usage("'%.60s' cannot be the name of a C function", name);

    tp_err err = { 0 };
    tp_comp c = { .err = &err };
    strbuf text = { 0 }, header = { 0 }, bytes = { 0 }, hpath = { 0 };
    char *fn = name ? mem_strdup(name) : stem_of(out);
    ir_graph *g = ir_load(graph, NULL, &err);
    bool ok = g && ir_verify(g, &err) && emit_c(&c, g, fn, blas, &text, &header);
    if (ok && !strcmp(kind, "c"))
        strbuf_addn(&bytes, text.s, text.n);
    else if (ok)
        ok = gen_cc_export(strbuf_str(&text), !strcmp(kind, "asm"), &bytes, &err);
    const char *slash = strrchr(out, '/'), *dot = strrchr(out, '.');
    strbuf_addf(&hpath, "%.*s.h", (int)(dot && (!slash || dot > slash) ? dot - out : (ptrdiff_t)strlen(out)),
                out);
    ok = ok && file_write(out, bytes.s ? bytes.s : "", bytes.n, &err) &&
         file_write(hpath.s, header.s, header.n, &err);
    if (ok)
        printf("wrote %s (%zu bytes) and %s: call %s()\n", out, bytes.n, hpath.s, fn);
    int rc = ok ? 0 : cli_fail(&err);
    ir_graph_free(g);
    strbuf_free(&text);
    strbuf_free(&header);
    strbuf_free(&bytes);
    strbuf_free(&hpath);
    free(fn);
    return rc;
}

const cli_cmd cmd_compile = {
    "compile",
    "GRAPH --emit c|so|asm -o FILE [--name NAME] [--blas]",
    "Makes C, a shared library or assembly of a graph, for programs without Taper",
    "  GRAPH        a graph file, as taper.export(fn, args).save(\"GRAPH\") writes it, with "
    "GRAPH.safetensors beside it\n"
    "  --emit c     one C file that needs a C compiler and libm; beside it a header to call it\n"
    "  --emit so    the same built as a shared library, --emit asm as assembly, by $CC or cc\n"
    "  --name NAME  of the function; default: the file's name\n"
    "  --blas       products by cblas_sgemm and cblas_dgemm\n",
    run_compile,
    NULL
};
