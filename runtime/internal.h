/* internal.h: what the files of runtime/ share. */
#ifndef SGRAD_RUNTIME_INTERNAL_H
#define SGRAD_RUNTIME_INTERNAL_H

/* Index of the calling worker in per-worker arrays; SGRAD_MAX_WORKERS for any other thread. */
int sgrad__worker(void);

void sgrad__caches_clear(void);     /* when no task runs any more */
void sgrad__devices_close(void);    /* likewise */
int sgrad__cuda_devices(void);      /* CUDA devices that could be used; 0 without CUDA */

int sgrad__trace_prepare(const char *folder);   /* before StarPU starts; NULL: no trace */
void sgrad__trace_convert(void);                /* after it has stopped */

#endif
