// runtime.h -- the state of a running block, for the files of this folder only.
#pragma once
#include <vector>

#include "fiber.h"
#include "simt.h"
#include "simt_api.h"

namespace simt {

#ifdef SIMT_CHECK
constexpr bool kChecked = true;
#else
constexpr bool kChecked = false;
#endif

constexpr size_t kStack = 128 * 1024;  // of one CUDA thread; pages never touched cost nothing
constexpr int kVote = -1;              // Thread::source of those who want the ballot and no lane's value

enum class State : uint8_t { kReady, kAtBarrier, kAtWarp, kReturned };

struct Thread {
  Fiber fiber;
  State state;
  uint3 index;
  // What it waits in, for the reports; of a warp function also what it brought and what it takes away.
  const char* waits_in;
  const void* site;
  unsigned mask;
  int line;  // of the __syncthreads
  int source;
  uint64_t value, result;
};

struct Warp {
  unsigned arrived;  // lanes waiting in a warp function
  unsigned alive;    // lanes that exist and have not returned
};

class Stacks {  // one mapping, cut into equal stacks
 public:
  ~Stacks();
  void reserve(int count);
  char* bottom(int i) const { return base_ + i * kStack; }
  bool contains(const void* p) const { return p >= mapping_ && p < base_ + count_ * kStack; }

 private:
  char *mapping_ = nullptr, *base_ = nullptr;
  size_t count_ = 0;
};

struct Block {  // what one OS thread needs to run a block
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  Stacks stacks;
  Fiber scheduler;
  Body body;
  void* closure;
  uint32_t launch, id;  // indices: of the launch, and of the block in its grid
  int running;          // index of the thread whose turn it is
  int alive, at_barrier, first_at_barrier;
  bool reversed, abandoned;
  Indices* indices;        // this OS thread's
  uint64_t turn_accesses;  // since the last switch, to notice a thread that spins

  Thread& me() { return threads[running]; }
};

extern constinit thread_local Block* current;  // null outside kernels

// run.cpp
void wait_turn(Block& block);                        // let others run until this thread is ready again
void begin_round(Block& block, int first, int end);  // after a meeting the first of these goes on, not the last to come
[[noreturn]] void stop_block();  // give up the block and the launches after it; nobody's code runs on
bool stopped();
void set_schedule(int os_threads, bool reversed);  // and forget that anything was stopped

// warp.cpp
void barrier_without_returned(Block& block);  // a thread that returns is no longer waited for
void warp_without(Block& block, int returned);

// report.cpp
uint32_t library_offset(const void* pc);
simt_report report_of(simt_kind kind, const void* pc, int thread);  // filled in for a thread of the current block
void set_name(char (&to)[96], const char* name);
void submit(const simt_report& report);  // once for each kind and pc; again, it is only counted
uint32_t add_launch(const char* name, dim3 grid, dim3 block, unsigned dynamic_bytes);
void clear_reports();

// check.cpp
void check_launch(dim3 grid, unsigned dynamic_bytes, const void* closure, size_t closure_bytes);
void check_block();
void check_barrier();                           // all threads of the block have met
void check_syncwarp(int warp, unsigned lanes);  // these lanes have met

}  // namespace simt
