// report.cpp -- what went wrong, as records; reports.py turns them into sentences.
#include <dlfcn.h>

#include <map>
#include <mutex>

#include "runtime.h"

namespace simt {

namespace {

std::mutex lock;  // blocks of the fast build run side by side
std::vector<simt_report> reports;
std::map<std::pair<int, uint64_t>, size_t> seen;  // kind and pc -> index in reports
std::vector<simt_launch> launches;

}  // namespace

uint32_t library_offset(const void* pc) {
  static const char* base = [] {
    Dl_info info{};
    dladdr(reinterpret_cast<const void*>(&library_offset), &info);
    return static_cast<const char*>(info.dli_fbase);
  }();
  return uint32_t(static_cast<const char*>(pc) - base);
}

simt_report report_of(simt_kind kind, const void* pc, int thread) {
  simt_report report{};
  report.kind = kind;
  report.launch = current->launch;
  report.block = current->id;
  report.thread = uint32_t(thread);
  report.array = -1;
  report.pc = pc ? library_offset(pc) : 0;
  return report;
}

void set_name(char (&to)[96], const char* name) { std::snprintf(to, sizeof to, "%s", name); }

void submit(const simt_report& report) {
  std::lock_guard guard(lock);
  if (report.kind != SIMT_WAITING) {  // these describe the deadlock before them
    auto [place, is_new] = seen.try_emplace({report.kind, report.pc}, reports.size());
    if (!is_new) {
      ++reports[place->second].count;
      return;
    }
  }
  reports.push_back(report);
  if (report.count == 0) reports.back().count = 1;
}

uint32_t add_launch(const char* name, dim3 grid, dim3 block, unsigned dynamic_bytes) {
  simt_launch launch{{}, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, dynamic_bytes};
  std::snprintf(launch.name, sizeof launch.name, "%s", name);
  launches.push_back(launch);
  return uint32_t(launches.size() - 1);
}

void clear_reports() {
  reports.clear();
  seen.clear();
  launches.clear();
}

}  // namespace simt

extern "C" {

int simt_is_checked(void) { return simt::kChecked; }

size_t simt_reports(const simt_report** first) {
  *first = simt::reports.data();
  return simt::reports.size();
}

size_t simt_launches(const simt_launch** first) {
  *first = simt::launches.data();
  return simt::launches.size();
}

#ifndef SIMT_CHECK
void simt_reset(int os_threads, int reversed) {
  simt::clear_reports();
  simt::set_schedule(os_threads, reversed != 0);
}
int simt_array(const char*, void*, size_t, unsigned, int, int) { return -1; }
void simt_mark(int, size_t, size_t, int) {}
void simt_trace(size_t) {}
size_t simt_trace_records(const simt_access** first) { return *first = nullptr, 0; }
uint64_t simt_trace_dropped(void) { return 0; }
size_t simt_arrays(const simt_array_info** first) { return *first = nullptr, 0; }
#endif

// assert() in a kernel ends up here instead of in the C library, which would end the process.
void __assert_fail(const char* expression, const char* file, unsigned line, const char* function) noexcept {
  if (!simt::current) {
    std::fprintf(stderr, "%s:%u: %s: assertion `%s' failed\n", file, line, function, expression);
    std::abort();
  }
  simt_report report = simt::report_of(SIMT_ASSERT, __builtin_return_address(0), simt::current->running);
  report.line = line;
  simt::set_name(report.name, expression);
  simt::set_name(report.other_name, file);
  simt::submit(report);
  simt::stop_block();
}
}
