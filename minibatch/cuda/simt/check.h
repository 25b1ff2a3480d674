// check.h -- the checker: what every load and store of a kernel goes through in the checked build.
#pragma once
#include <vector>

#include "shadow.h"
#include "simt.h"
#include "simt_api.h"

namespace simt {

struct Array {  // one the host registered, or a __shared__ variable
  simt_array_info info;
  const char* base;
  unsigned granule;                  // bytes a cell stands for
  size_t tls_offset;                 // of a __shared__ variable
  std::vector<uint8_t> initialised;  // a granule each; empty for __shared__, where a cell knows its block
  std::vector<Cell> cells;           // a granule each; empty if nobody may write

  bool holds(const char* p) const { return p >= base && p < base + info.bytes; }
};

struct Module {  // the library this code is in
  const char *low, *high;
  size_t tls_bytes;
  size_t dynamic_offset;  // of dynamic shared memory in the thread-local segment
  std::vector<Array> shared;
};
const Module& module();  // module.cpp

extern std::vector<Array> arrays;  // the __shared__ variables first

// `aligned`: the type accessed demands an address that is a multiple of its size.
void check_access(const void* address, unsigned size, simt_operation operation, bool aligned, const void* pc);
void check_stack(const void* frame, const void* pc);

extern size_t trace_limit;  // trace.cpp; 0: no trace is wanted
void trace_access(const simt_access& access);

}  // namespace simt
