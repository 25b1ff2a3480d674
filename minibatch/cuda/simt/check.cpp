// check.cpp -- is this access inside an array, initialised, and ordered with those of other threads?
#ifdef SIMT_CHECK
#include "check.h"

#include <algorithm>

#include "runtime.h"

extern thread_local __align__(128) unsigned char smem[simt::kMaxDynamicShared];

namespace simt {

std::vector<Array> arrays;

namespace {

constexpr uint64_t kEndless = 1u << 26;  // accesses without waiting: some seconds

uint32_t first_block = 1, next_block = 1;  // numbers of this launch's blocks, counted over all launches
uint32_t phase;
std::vector<uint32_t> clocks;  // [thread][lane]: how much of that lane's past happened before the thread's present
const char *closure_begin, *closure_end, *shared_begin, *shared_end;

uint32_t* clocks_of(int thread) { return &clocks[size_t(thread) * 32]; }

struct Access {
  const char* address;
  unsigned size;
  simt_operation operation;
  const void* pc;

  bool writes() const { return operation != SIMT_READ; }
  bool reads() const { return operation != SIMT_WRITE; }
};

simt_report report_access(simt_kind kind, const Access& access, const Array* array) {
  simt_report report = report_of(kind, access.pc, current->running);
  report.operation = access.operation;
  report.size = access.size;
  report.offset = access.address - (array ? array->base : nullptr);
  if (array) report.array = int32_t(array - arrays.data());
  return report;
}

[[noreturn]] void stop_at(simt_kind kind, const Access& access, const Array* array) {
  submit(report_access(kind, access, array));
  stop_block();
}

const Array* nearest_array(const char* p) {
  const Array* nearest = nullptr;
  size_t least = ~size_t(0);
  bool shared = p >= shared_begin && p < shared_end;
  for (const Array& array : arrays) {
    const char* end = array.base + array.info.bytes;
    size_t away = p < array.base ? size_t(array.base - p) : p < end ? 0 : size_t(p - end);
    if (bool(array.info.shared) == shared && away < least) nearest = &array, least = away;
  }
  return nearest;
}

// Not in an array. Lawful are the kernel's arguments and constants; else the thread is stopped.
void outside(const Access& access) {
  const char* p = access.address;
  if (!access.writes() && p >= closure_begin && p + access.size <= closure_end) return;
  if (!access.writes() && p >= module().low && p + access.size <= module().high) return;
  if (current->stacks.contains(p)) stop_at(SIMT_STACK, access, nullptr);
  stop_at(SIMT_OUT_OF_BOUNDS, access, nearest_array(p));
}

bool ordered(const Visit& before, const Visit& now, bool shared) {
  if (before.block < first_block) return true;   // none, or in an earlier launch
  if (before.block != now.block) return shared;  // blocks of a launch are not ordered
  if (before.thread == now.thread || before.phase < now.phase) return true;
  if (before.thread / 32 != now.thread / 32) return false;  // only a barrier orders different warps
  return clocks_of(now.thread)[before.thread % 32] >= before.clock;
}

const Visit* conflict(const Cell& cell, const Visit& now, bool shared) {
  bool both_atomic = cell.write.operation == SIMT_ATOMIC && now.operation == SIMT_ATOMIC;
  if (!both_atomic && !ordered(cell.write, now, shared)) return &cell.write;
  if (now.operation == SIMT_READ) return nullptr;
  if (!ordered(cell.last_read, now, shared)) return &cell.last_read;
  return ordered(cell.far_read, now, shared) ? nullptr : &cell.far_read;
}

void report_race(const Array& array, const Access& access, const Visit& before) {
  simt_report report = report_access(SIMT_RACE, access, &array);
  report.other_block = before.block - first_block;
  report.other_thread = before.thread;
  report.other_operation = before.operation;
  report.other_pc = before.pc;
  submit(report);
}

void visit_granules(Array& array, const Access& access, size_t first, size_t last) {
  const Visit now{first_block + current->id,
                  phase,
                  clocks_of(current->running)[current->running % 32],
                  library_offset(access.pc),
                  uint16_t(current->running),
                  uint8_t(access.operation)};
  bool uninitialised = false, race = false;
  for (size_t i = first; i <= last; ++i) {
    Cell& cell = array.cells[i];
    Access part = access;
    part.address = std::max(access.address, array.base + i * array.granule);
    if (access.reads() && !uninitialised) {
      uninitialised = array.info.shared ? cell.write.block != now.block : !array.initialised[i];
      if (uninitialised) submit(report_access(SIMT_UNINITIALISED, part, &array));
    }
    const Visit* before = race ? nullptr : conflict(cell, now, array.info.shared);
    if (before) report_race(array, part, *before), race = true;
    if (access.writes()) {
      cell.write = now;
      if (!array.info.shared) array.initialised[i] = 1;
    } else {
      remember_read(cell, now);
    }
  }
}

Array* find(const char* p) {
  static size_t last = 0;  // most accesses are to the array of the one before
  if (last < arrays.size() && arrays[last].holds(p)) return &arrays[last];
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].holds(p)) return &arrays[last = i];
  }
  return nullptr;
}

void record(const Array& array, const Access& access) {
  int64_t offset = access.address - array.base;
  for (unsigned done = 0; done < access.size; done += 16) {  // the copy of a large struct: as if in pieces
    trace_access({offset + done, library_offset(access.pc), current->id, uint16_t(current->launch),
                  uint16_t(current->running), uint8_t(access.operation), uint8_t(std::min(16u, access.size - done)),
                  int16_t(&array - arrays.data())});
  }
}

}  // namespace

void check_access(const void* address, unsigned size, simt_operation operation, bool aligned, const void* pc) {
  if (!current) return;  // the host code of the launcher is instrumented as well
  const Access access{static_cast<const char*>(address), size, operation, pc};
  const char *p = access.address, *stack = current->stacks.bottom(current->running);
  if (++current->turn_accesses > kEndless) {
    simt_report report = report_access(SIMT_ENDLESS, access, nullptr);
    report.count = current->turn_accesses;
    submit(report);
    stop_block();
  }
  if (p >= stack && p < stack + kStack) return;
  if (p >= reinterpret_cast<char*>(&indices) && p < reinterpret_cast<char*>(&indices + 1)) return;
  Array* array = find(p);
  if (!array) return outside(access);
  if (p + size > array->base + array->info.bytes) stop_at(SIMT_OUT_OF_BOUNDS, access, array);
  if (aligned && reinterpret_cast<uintptr_t>(p) % size) stop_at(SIMT_MISALIGNED, access, array);
  if (access.writes() && !array->info.writable) stop_at(SIMT_READ_ONLY, access, array);
  if (trace_limit) record(*array, access);
  size_t first = size_t(p - array->base) / array->granule, last = size_t(p + size - 1 - array->base) / array->granule;
  if (array->info.writable) return visit_granules(*array, access, first, last);
  for (size_t i = first; i <= last; ++i) {
    if (array->initialised[i]) continue;
    Access part = access;
    part.address = std::max(p, array->base + i * array->granule);
    return submit(report_access(SIMT_UNINITIALISED, part, array));
  }
}

void check_stack(const void* frame, const void* pc) {
  if (!current) return;
  auto* p = static_cast<const char*>(frame);
  if (p >= current->stacks.bottom(current->running)) return;
  submit(report_of(SIMT_STACK, pc, current->running));
  stop_block();
}

void check_launch(dim3 grid, unsigned dynamic_bytes, const void* closure, size_t closure_bytes) {
  first_block = next_block;
  next_block += grid.x * grid.y * grid.z;
  closure_begin = static_cast<const char*>(closure);
  closure_end = closure_begin + closure_bytes;
  shared_begin = reinterpret_cast<const char*>(smem) - module().dynamic_offset;
  shared_end = shared_begin + module().tls_bytes;
  for (Array& array : arrays) {  // their place depends on the OS thread that launches
    if (!array.info.shared) continue;
    array.base = shared_begin + array.tls_offset;
    if (array.tls_offset == module().dynamic_offset) array.info.bytes = dynamic_bytes;
  }
}

void check_block() {
  phase = 0;
  clocks.assign(current->threads.size() * 32, 0);
  for (size_t i = 0; i < current->threads.size(); ++i) clocks[i * 32 + i % 32] = 1;
}

void check_barrier() { ++phase; }

// Vector clocks: all learn what any of them knew, and then each begins a new tick of its own.
void check_syncwarp(int warp, unsigned lanes) {
  uint32_t known[32] = {};
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    const uint32_t* own = clocks_of(warp * 32 + __builtin_ctz(rest));
    for (int i = 0; i < 32; ++i) known[i] = std::max(known[i], own[i]);
  }
  for (unsigned rest = lanes; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    std::copy(known, known + 32, clocks_of(warp * 32 + lane));
    ++clocks_of(warp * 32 + lane)[lane];
  }
}

}  // namespace simt
#endif
