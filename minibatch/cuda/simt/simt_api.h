/* simt_api.h -- what the host asks of a built library, plain C for ctypes.

   How a library is built; README.md says why with these flags. Every simt/(name).cpp is compiled without
   instrumentation, the kernel file with it in the checked build:
     both      -std=c++20 -fPIC -g1 -gdwarf-4 -fno-strict-aliasing, and for g++ -fno-extern-tls-init -fno-gnu-unique
     fast      runtime -O2;               kernel -O2
     checked   runtime -O2 -DSIMT_CHECK;  kernel -O1 -fsanitize=thread -fsanitize=bounds
               and -fno-tree-sra (g++) or -mllvm -tsan-instrument-read-before-write=1 (clang++)
     link      -shared -Wl,-Bsymbolic -pthread -ldl, and not -fsanitize=thread: the callbacks are in callbacks.cpp;
               -Wl,--defsym=NAME=smem for each NAME of an `extern __shared__` array other than smem

   How a call goes. One caller at a time, so hold a lock around the whole of it:
     simt_reset(os_threads, reversed)
     simt_array(...) for every array the kernel may touch; simt_mark for parts never written;   checked build only
     simt_trace(limit) if a trace is wanted
     the launcher of the kernel (any function that ends in simt::launch)
     simt_reports(&first), and simt_trace_records(&first), simt_launches(&first), simt_arrays(&first)
   The pointers handed out stay good until the next simt_reset. In the fast build arrays and traces are empty. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum simt_kind {
  SIMT_UNINITIALISED = 1, /* a read of what was never written */
  SIMT_OUT_OF_BOUNDS,     /* address in no array; the thread is stopped before the access, as for all that say "stop" */
  SIMT_READ_ONLY,         /* write to an array registered as read-only; stop */
  SIMT_MISALIGNED,        /* address no multiple of the access size, a fault on the GPU; stop */
  SIMT_ARRAY_INDEX,       /* index outside an array of fixed size; `name` is its type; stop */
  SIMT_RACE,              /* two threads, at least one writes, nothing orders them */
  SIMT_BARRIER_MISMATCH,  /* threads of a block wait in different __syncthreads() */
  SIMT_BARRIER_RETURNED,  /* some threads returned, others wait in __syncthreads() */
  SIMT_WARP_MISMATCH,     /* lanes that meet are in different warp functions or give different masks */
  SIMT_LANE_NOT_IN_MASK,  /* a lane calls a warp function whose mask leaves it out */
  SIMT_SOURCE_LANE,       /* a shuffle reads lane `other_thread`, which is not in the mask or has returned */
  SIMT_DEADLOCK,          /* no thread can go on; followed by one SIMT_WAITING for each group of threads */
  SIMT_WAITING,           /* threads `thread`..`other_thread` (linear) wait in `name`, or have returned (name empty) */
  SIMT_STACK,             /* local arrays larger than a thread's stack, or an address in another thread's; stop */
  SIMT_ENDLESS,           /* `count` accesses by one thread and no end: it probably spins on another's write; stop */
  SIMT_ASSERT,            /* assert(name) failed; stop */
  SIMT_LAUNCH             /* launch refused; `name` says why */
};

enum simt_operation { SIMT_READ = 0, SIMT_WRITE = 1, SIMT_ATOMIC = 2 };

struct simt_report {
  int32_t kind, operation;            /* simt_kind, simt_operation */
  uint32_t launch;                    /* index into simt_launches */
  uint32_t block, thread;             /* linear index in the grid, in the block */
  uint32_t other_block, other_thread; /* of a race: who touched it before; of a shuffle: the source lane */
  int32_t other_operation;            /* of a race */
  int32_t array;                      /* index into simt_arrays; -1: none */
  uint32_t size;                      /* bytes of the access */
  int64_t offset;                     /* bytes from the start of the array; may lie outside */
  uint64_t pc, other_pc;              /* for addr2line: offset in the library of the call or access */
  uint32_t mask;                      /* of a warp function */
  uint32_t line;                      /* where the compiler gives it (array index, assert), else 0 */
  uint64_t count;                     /* how many times this happened at this pc */
  char name[96];                      /* warp function, type, expression or reason; see the kinds */
  char other_name[96];                /* the other warp function; the file that belongs to `line` */
};

struct simt_access { /* one access of one thread, in the order of execution */
  int64_t offset;    /* bytes from the start of the array */
  uint32_t pc, block;
  uint16_t launch, thread;
  uint8_t operation, size; /* size in bytes, at most 16 */
  int16_t array;
};

struct simt_launch {
  char name[64];
  uint32_t grid[3], block[3], dynamic_bytes;
};

struct simt_array_info {
  char name[64];
  uint64_t bytes;
  uint32_t element_bytes; /* 0: not known (a __shared__ variable) */
  uint8_t shared, writable;
};

int simt_is_checked(void);
/* Forget arrays, reports and trace. `os_threads` run blocks side by side (fast build); `reversed` 0 or 1: the order in
   which threads and blocks take turns. */
void simt_reset(int os_threads, int reversed);
/* Returns the index of the array, to be used in simt_mark; -1 in the fast build. Leave a red zone of a few KiB on both
   sides (copy the data into a larger buffer), else an access outside may land in the neighbour and look lawful. */
int simt_array(const char* name, void* base, size_t bytes, unsigned element_bytes, int writable, int initialised);
/* Elements [first, first + count) count as written (1) or as never written (0). */
void simt_mark(int array, size_t first, size_t count, int initialised);
/* Record accesses from now on, at most `limit` of them; 0 switches off. */
void simt_trace(size_t limit);

size_t simt_reports(const struct simt_report** first);
size_t simt_trace_records(const struct simt_access** first);
uint64_t simt_trace_dropped(void); /* accesses beyond the limit */
size_t simt_launches(const struct simt_launch** first);
size_t simt_arrays(const struct simt_array_info** first); /* __shared__ variables come first */

#ifdef __cplusplus
}
#endif
