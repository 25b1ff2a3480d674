// trace.cpp -- keeps every access; trace.py counts sectors, traffic and bank conflicts from it.
#ifdef SIMT_CHECK
#include "check.h"

namespace simt {

size_t trace_limit = 0;

namespace {

std::vector<simt_access> trace;
uint64_t dropped = 0;

}  // namespace

void trace_access(const simt_access& access) {
  if (trace.size() < trace_limit) {
    trace.push_back(access);
  } else {
    ++dropped;
  }
}

}  // namespace simt

extern "C" {

void simt_trace(size_t limit) {
  simt::trace.clear();
  simt::trace_limit = limit;
  simt::dropped = 0;
}

size_t simt_trace_records(const simt_access** first) {
  *first = simt::trace.data();
  return simt::trace.size();
}

uint64_t simt_trace_dropped(void) { return simt::dropped; }
}
#endif
