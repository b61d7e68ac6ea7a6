/* host.c - see host.h. */
#include "ops/host.h"

tp_host host;

bool host_interrupted(void *unused)
{
    tp_err err = { 0 };
    return host.poll && !host.poll(&err);
}
