/* graph.h - what the commands of `taper graph` share: reading a graph, writing text. */
#ifndef TAPER_CLI_GRAPH_H
#define TAPER_CLI_GRAPH_H
#include "cli/cli.h"
#include "ir/graph.h"

ir_graph *graph_load(const char *path, tp_err *err);   /* "-": from standard input */
int graph_file(cli_args *a, const char **file);        /* takes the one FILE; 0, or 2 after a message */
int graph_write(const strbuf *text, const char *path); /* NULL: to standard output; the exit code */
int graph_stage(int argc, char **argv);                /* the commands of compile/stages.def */
#endif
