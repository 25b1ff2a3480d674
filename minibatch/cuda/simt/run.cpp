// run.cpp -- a launch: blocks over OS threads, and in a block one fiber after the other.
#include <sys/mman.h>

#include <atomic>
#include <memory>
#include <thread>

#include "runtime.h"

// Dynamic shared memory. The kernel declares it with a type of its own, so no header does.
extern thread_local __align__(128) unsigned char smem[simt::kMaxDynamicShared];
thread_local __align__(128) unsigned char smem[simt::kMaxDynamicShared];

namespace simt {

constinit thread_local Indices indices{};
constinit thread_local Block* current = nullptr;

namespace {

constexpr size_t kGuard = 4096;
constexpr size_t kBelow = 1 << 20;  // below the lowest stack: room to report a frame too large (see callbacks.cpp)

int os_threads = 1;
bool reversed_order = false;
std::atomic<bool> anything_stopped{false};

void resume(Block& block, int next) {
  int previous = block.running;
  if (next == previous) return;
  block.running = next;
  block.turn_accesses = 0;
  block.indices->thread = block.threads[next].index;
  fiber_switch(previous < 0 ? block.scheduler : block.threads[previous].fiber, block.threads[next].fiber);
}

// The next ready thread in [first, end), starting after `from` and going round; -1 if there is none.
int next_ready(const Block& block, int first, int end, int from) {
  int step = block.reversed ? -1 : 1;
  for (int i = first; i < end; ++i) {
    from += step;
    if (from >= end) from = first;
    if (from < first) from = end - 1;
    if (block.threads[from].state == State::kReady) return from;
  }
  return -1;
}

}  // namespace

// For functions that wait, one look-up of a thread-local variable costs as much as the switch: hence `block`.
void wait_turn(Block& block) {
  int count = int(block.threads.size()), first = block.running & ~31, end = std::min(first + 32, count);
  int next = next_ready(block, first, end, block.running);  // this warp first: its stacks are in the cache
  if (next < 0) next = next_ready(block, 0, count, block.reversed ? first : end - 1);
  if (next >= 0) return resume(block, next);
  int previous = block.running;
  block.running = -1;
  fiber_switch(block.threads[previous].fiber, block.scheduler);
}

void begin_round(Block& block, int first, int end) {
  resume(block, next_ready(block, first, end, block.reversed ? first : end - 1));
}

namespace {

void thread_main() {
  Block& block = *current;
  block.body(block.closure);
  int returned = block.running;
  block.me().state = State::kReturned;
  --block.alive;
  warp_without(block, returned);
  barrier_without_returned(block);
  wait_turn(block);
  __builtin_unreachable();
}

void prepare_threads(Block& block, dim3 dim) {
  int count = int(dim.x * dim.y * dim.z);
  block.threads.resize(count);
  block.stacks.reserve(count);
  block.warps.assign((count + 31) / 32, {0, 0xffffffffu});
  if (count % 32) block.warps.back().alive = (1u << count % 32) - 1;
  for (int i = 0; i < count; ++i) {
    unsigned t = unsigned(i);
    Thread& thread = block.threads[i];
    thread.state = State::kReady;
    thread.index = {t % dim.x, t / dim.x % dim.y, t / dim.x / dim.y};
    char* top = block.stacks.bottom(i) + kStack - 64 * (i & 15);  // staggered, else all tops share one cache set
    fiber_prepare(thread.fiber, block.stacks.bottom(i), top, thread_main);
  }
  block.alive = count;
  block.at_barrier = 0;
  block.running = -1;
  block.abandoned = false;
}

bool same_place(const Thread& a, const Thread& b) {
  return a.state == b.state && (a.state == State::kReturned || (a.site == b.site && a.waits_in == b.waits_in));
}

void report_deadlock(Block& block) {
  if (anything_stopped.exchange(true)) return;  // another block was first
  int count = int(block.threads.size()), first_waiting = 0;
  while (block.threads[first_waiting].state == State::kReturned) ++first_waiting;
  submit(report_of(SIMT_DEADLOCK, block.threads[first_waiting].site, first_waiting));
  for (int first = 0, end; first < count; first = end) {
    const Thread& thread = block.threads[first];
    for (end = first + 1; end < count && same_place(thread, block.threads[end]); ++end) {
    }
    bool returned = thread.state == State::kReturned;
    simt_report group = report_of(SIMT_WAITING, returned ? nullptr : thread.site, first);
    group.other_thread = unsigned(end - 1);
    group.mask = thread.state == State::kAtWarp ? thread.mask : 0;
    if (!returned) set_name(group.name, thread.waits_in);
    submit(group);
  }
}

void run_block(Block& block, uint32_t id, dim3 grid, dim3 dim) {
  block.id = id;
  block.reversed = reversed_order;
  prepare_threads(block, dim);
  block.indices = &indices;
  indices.block = {id % grid.x, id / grid.x % grid.y, id / grid.x / grid.y};
  indices.block_dim = dim;
  indices.grid_dim = grid;
  current = &block;
  if constexpr (kChecked) check_block();
  resume(block, block.reversed ? int(block.threads.size()) - 1 : 0);
  if (block.alive && !block.abandoned) report_deadlock(block);
  current = nullptr;
}

Block& own_block() {  // kept from launch to launch, for its stacks
  thread_local auto block = std::make_unique<Block>();
  return *block;
}

const char* refusal(dim3 grid, dim3 block, unsigned dynamic_bytes) {
  auto empty = [](dim3 d) { return d.x == 0 || d.y == 0 || d.z == 0; };
  if (empty(grid)) return "the grid has no block";
  if (empty(block)) return "the block has no thread";
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) return "the grid is larger than 2^31-1 x 65535 x 65535";
  if (uint64_t(grid.x) * grid.y * grid.z > 0xffffffffu) return "more than 2^32-1 blocks: too many for the emulator";
  if (block.x > 1024 || block.y > 1024 || block.z > 64) return "the block is larger than 1024 x 1024 x 64";
  if (block.x * block.y * block.z > kMaxThreads) return "more than 1024 threads in a block";
  if (dynamic_bytes > kMaxDynamicShared) return "more than 96 KiB of dynamic shared memory";
  return nullptr;
}

}  // namespace

bool stopped() { return anything_stopped; }

void set_schedule(int threads, bool reversed) {
  os_threads = kChecked ? 1 : threads;
  reversed_order = reversed;
  anything_stopped = false;
}

void stop_block() {
  Block& block = *current;
  anything_stopped = block.abandoned = true;
  int previous = block.running;
  block.running = -1;
  fiber_switch(block.threads[previous].fiber, block.scheduler);
  __builtin_unreachable();
}

void run(const char* name, dim3 grid, dim3 dim, unsigned dynamic_bytes, Body body, void* closure, size_t bytes) {
  if (stopped()) return;
  uint32_t launch = add_launch(name, grid, dim, dynamic_bytes);
  if (const char* reason = refusal(grid, dim, dynamic_bytes)) {
    simt_report report{};
    report.kind = SIMT_LAUNCH;
    report.launch = launch;
    set_name(report.name, reason);
    submit(report);
    anything_stopped = true;
    return;
  }
  if constexpr (kChecked) check_launch(grid, dynamic_bytes, closure, bytes);
  uint32_t blocks = grid.x * grid.y * grid.z;
  std::atomic<uint32_t> taken{0};
  auto work = [&] {
    Block& block = own_block();
    block.launch = launch;
    block.body = body;
    block.closure = closure;
    for (uint32_t i; !stopped() && (i = taken++) < blocks;) {
      run_block(block, reversed_order ? blocks - 1 - i : i, grid, dim);
    }
  };
  std::vector<std::thread> helpers;
  for (uint32_t i = 1; i < std::min(uint32_t(os_threads), blocks); ++i) helpers.emplace_back(work);
  work();
  for (auto& helper : helpers) helper.join();
}

Stacks::~Stacks() {
  if (mapping_) munmap(mapping_, kBelow + count_ * kStack);
}

void Stacks::reserve(int count) {
  if (count_ >= size_t(count)) return;
  if (mapping_) munmap(mapping_, kBelow + count_ * kStack);
  count_ = size_t(count);
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* mapping = mmap(nullptr, kBelow + count_ * kStack, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (mapping == MAP_FAILED) {
    std::fprintf(stderr, "simt: no memory for the stacks of %d threads\n", count);
    std::abort();
  }
  mapping_ = static_cast<char*>(mapping);
  base_ = mapping_ + kBelow;
  if (kChecked) return;  // there callbacks.cpp looks at the stack pointer
  for (int i = 0; i < count; ++i) mprotect(bottom(i), kGuard, PROT_NONE);  // an overflow crashes instead of corrupting
}

}  // namespace simt
