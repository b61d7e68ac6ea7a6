#define _GNU_SOURCE
/* Any bytes are read as a bundle or refused. The input is the three files, a line of four dashes between them. */
#include "fuzz.h"
#include "base/file.h"
#include "debug/script.h"
#include <stdio.h>
#include <unistd.h>

static const char *const names[] = { "failure.json", "graph.py", "inputs.safetensors" };

int FUZZ_ENTRY(const uint8_t *data, size_t n)
{
    static char dir[64];
    if (!dir[0]) {
        snprintf(dir, sizeof dir, "/tmp/taper_fuzz_bundle_%d", (int)getpid());
        MUST(file_mkdirs(dir, NULL));
    }
    const uint8_t *at = data, *end = data + n;
    for (int i = 0; i < 3; i++) {
        const uint8_t *cut = i < 2 ? memmem(at, (size_t)(end - at), "\n----\n", 6) : NULL;
        const uint8_t *stop = cut ? cut + 1 : end;
        char *path = path_join(dir, names[i]);
        MUST(file_write(path, at, (size_t)(stop - at), NULL));
        free(path);
        at = cut ? cut + 6 : end;
    }
    tp_err err = { 0 };
    signature s;
    repro *r = bundle_read(dir, &s, false, &err);
    MUST(r || err_is_set(&err));
    if (r) { /* what was read can be written, and is the same then */
        strbuf text = { 0 };
        script_python(&text, r, &s, &(script_opts){ .stable = true });
        strbuf_free(&text);
        repro_free(r);
    }
    return 0;
}
