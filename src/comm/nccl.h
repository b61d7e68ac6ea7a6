/* nccl.h - collectives between GPUs. A group of a job gets a communicator beside what moves bytes of the host. Private to comm/. */
#ifndef TAPER_COMM_NCCL_H
#define TAPER_COMM_NCCL_H
#include "comm/backend.h"

/* start, test, drop, mark and idle alone. */
extern const comm_backend comm_nccl;
/* Called by all ranks of a group; returns when all have. id: from comm_nccl_id of one of them. */
void *comm_nccl_group(tp_device on, const char *id, int n, int my, int64_t deadline, comm_job *job,
                      tp_err *err);
void comm_nccl_free(void *group, bool aborted);
tp_device comm_nccl_device(const void *group);
/* In the caller's thread, before a call is queued: is it possible, and a mark behind what the device's current queue has been given. */
void *comm_nccl_ready(void *group, const comm_call *c, tp_err *err);
void comm_nccl_forget(void *group, void *mark);
/* Calls started between the two reach the device together. */
bool comm_nccl_begin(tp_err *err);
bool comm_nccl_end(tp_err *err);
#endif
