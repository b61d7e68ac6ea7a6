/* cmd_stage.c - taper graph joint|decompose|forward|backward|schedule|vir|asm|c FILE: what one stage makes of a graph. */
#include "base/near.h"
#include "cli/graph.h"
#include "compile/stages.h"
#include "ir/pass.h"
#include <stdio.h>

typedef struct stage_row {
    const char *name, *text;
} stage_row;
static const stage_row rows[] = {
#define STAGE(name, text, what) { #name, #text },
#include "compile/stages.def"
};

static stage_id stage_of(const char *name)
{
    int i = 0;
    while (i < STAGE_COUNT - 1 && strcmp(rows[i].name, name))
        i++;
    return (stage_id)i;
}

static int find_target(const char *word, const target **t)
{
    *t = !strcmp(word, "host") ? target_host() : target_by_word(word);
    if (*t)
        return 0;
    strbuf b = { 0 };
    near_word near = { word };
    for (const char *const *w = target_words(); *w; w++) {
        near_try(&near, *w);
        strbuf_adds(&b, *w, ", ", NULL);
    }
    int rc = cli_usage("there is no target '%.40s'; it is one of %sor host%s", word, strbuf_str(&b),
                       near_hint(&near));
    strbuf_free(&b);
    return rc;
}

int graph_stage(int argc, char **argv)
{
    cli_args a = { argc, 1, argv };
    stage_id stage = stage_of(argv[0]);
    bool graph = !strcmp(rows[stage].text, "graph");
    const char *file = NULL, *out = NULL, *of = "forward", *word = stage == STAGE_c ? "c" : "avx2";
    stage_options o = { 0 };
    int rc = 0;
    tp_err e = { 0 };

    while (a.at < argc && !rc) {
        if (stage == STAGE_schedule && cli_flag(&a, "why"))
            o.why = true;
        else if (!cli_option(&a, "grad", &o.grad) && !cli_option(&a, "output", &out) &&
                 (graph || (!cli_option(&a, "target", &word) && !cli_option(&a, "of", &of))))
            rc = graph_file(&a, &file);
    }
    if (rc)
        return rc;
    if (!file)
        return cli_usage("'graph %s' needs a FILE", argv[0]);
    if (strcmp(of, "forward") && strcmp(of, "backward"))
        return cli_usage("--of is forward or backward, not '%.40s'", of);
    o.backward = !strcmp(of, "backward");
    if ((rc = find_target(word, &o.target)))
        return rc;

    strbuf b = { 0 };
    tp_comp c = { .err = &e, .verify = true };
    ir_graph *g = graph_load(file, &e);
    bool ok = g && ir_verify(g, &e) && stage_text(&c, g, stage, &o, &b);
    if (ok)
        rc = graph_write(&b, out);
    else
        rc = cli_fail(&e);
    ir_graph_free(g);
    strbuf_free(&b);
    return rc;
}
