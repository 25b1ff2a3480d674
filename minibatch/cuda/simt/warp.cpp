// warp.cpp -- where threads meet: __syncthreads for a block; __syncwarp, shuffles and votes for the lanes of a mask.
#include <algorithm>

#include "runtime.h"

namespace simt {

namespace {

constexpr const char* kShuffleNames[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync", "__shfl_xor_sync"};
constexpr const char* kVoteNames[] = {"__ballot_sync", "__any_sync", "__all_sync"};
constexpr const char* kSyncwarp = "__syncwarp";

void release_barrier(Block& block) {
  for (Thread& thread : block.threads) {
    if (thread.state == State::kAtBarrier) thread.state = State::kReady;
  }
  block.at_barrier = 0;
  if constexpr (kChecked) check_barrier();
}

void report_returned(Block& block) {
  int waiting = block.first_at_barrier, returned = 0;
  while (block.threads[returned].state != State::kReturned) ++returned;
  simt_report report = report_of(SIMT_BARRIER_RETURNED, block.threads[waiting].site, waiting);
  report.other_thread = unsigned(returned);
  submit(report);
}

void report_mismatch(simt_kind kind, const Block& block, int thread, int other) {
  const Thread &a = block.threads[thread], &b = block.threads[other];
  simt_report report = report_of(kind, a.site, thread);
  report.other_thread = unsigned(other);
  report.other_pc = library_offset(b.site);
  report.mask = a.mask;
  set_name(report.name, a.waits_in);
  set_name(report.other_name, b.waits_in);
  submit(report);
}

void report_source(const Block& block, int thread, int source) {
  simt_report report = report_of(SIMT_SOURCE_LANE, block.threads[thread].site, thread);
  report.other_thread = unsigned(source);
  report.mask = block.threads[thread].mask;
  set_name(report.name, block.threads[thread].waits_in);
  submit(report);
}

// If all of `mask` that have not returned are here, hand out the results and wake them.
bool release_lanes(Block& block, int warp, int caller) {
  const Thread& last = block.threads[caller];
  Warp& lanes = block.warps[warp];
  unsigned met = last.mask & lanes.alive;
  if ((lanes.arrived & met) != met) return false;
  Thread* first = &block.threads[warp * 32];
  unsigned ballot = 0;
  for (unsigned rest = met; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    ballot |= unsigned(first[lane].value & 1) << lane;
    if (first[lane].mask != last.mask || first[lane].waits_in != last.waits_in) {
      report_mismatch(SIMT_WARP_MISMATCH, block, warp * 32 + lane, caller);
    }
  }
  for (unsigned rest = met; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest), source = first[lane].source;
    if (source == kVote) {
      first[lane].result = ballot | uint64_t(met) << 32;
    } else if (met >> source & 1) {
      first[lane].result = first[source].value;
    } else {
      report_source(block, warp * 32 + lane, warp * 32 + source);
      first[lane].result = first[lane].value;
    }
    first[lane].state = State::kReady;
  }
  lanes.arrived &= ~met;
  if (kChecked && last.waits_in == kSyncwarp) check_syncwarp(warp, met);
  return true;
}

// The last to arrive does the exchange for all: a lane let go may be in its next shuffle before another reads this one.
uint64_t meet(Block& block, const char* name, const void* site, unsigned mask, uint64_t value, int source) {
  int warp = block.running / 32, lane = block.running % 32;
  Thread& me = block.me();
  me.waits_in = name;
  me.site = site;
  me.mask = mask;
  me.value = me.result = value;
  me.source = source;
  if (!(mask >> lane & 1)) {
    simt_report report = report_of(SIMT_LANE_NOT_IN_MASK, site, block.running);
    report.mask = mask;
    set_name(report.name, name);
    submit(report);
    return value;
  }
  block.warps[warp].arrived |= 1u << lane;
  if (release_lanes(block, warp, block.running)) {
    begin_round(block, warp * 32, std::min(warp * 32 + 32, int(block.threads.size())));
  } else {
    me.state = State::kAtWarp;
    wait_turn(block);
  }
  return me.result;
}

// CUDA C++ Programming Guide, "Warp Shuffle Functions": a lane that would read beyond its group reads itself.
int source_lane(Shuffle kind, int lane, unsigned operand, int width) {
  int group = lane & ~(width - 1), end = group + width;
  switch (kind) {
    case Shuffle::kIndex:
      return group + int(operand & unsigned(width - 1));
    case Shuffle::kUp:
      return int64_t(lane) - operand >= group ? lane - int(operand) : lane;
    case Shuffle::kDown:
      return uint64_t(lane) + operand < uint64_t(end) ? lane + int(operand) : lane;
    default:
      return (lane ^ int(operand & 31)) < end ? lane ^ int(operand & 31) : lane;
  }
}

}  // namespace

__attribute__((noinline)) void syncthreads(int line) {
  Block& block = *current;
  Thread& me = block.me();
  me.site = __builtin_return_address(0);
  me.waits_in = "__syncthreads";
  me.mask = 0;
  me.line = line;
  if (block.at_barrier == 0) {
    block.first_at_barrier = block.running;
  } else if (kChecked && line != block.threads[block.first_at_barrier].line) {
    report_mismatch(SIMT_BARRIER_MISMATCH, block, block.running, block.first_at_barrier);
  }
  me.state = State::kAtBarrier;
  if (++block.at_barrier == block.alive) {
    if (kChecked && block.alive < int(block.threads.size())) report_returned(block);
    release_barrier(block);
    return begin_round(block, 0, int(block.threads.size()));
  }
  wait_turn(block);
}

void barrier_without_returned(Block& block) {
  if (block.at_barrier == 0 || block.at_barrier < block.alive) return;
  if (kChecked) report_returned(block);
  release_barrier(block);
}

void warp_without(Block& block, int returned) {
  Warp& lanes = block.warps[returned / 32];
  lanes.alive &= ~(1u << returned % 32);
  for (unsigned rest = lanes.arrived; rest; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    if (lanes.arrived >> lane & 1) release_lanes(block, returned / 32, (returned & ~31) + lane);
  }
}

__attribute__((noinline)) void syncwarp(unsigned mask) {
  meet(*current, kSyncwarp, __builtin_return_address(0), mask, 0, kVote);
}

__attribute__((noinline)) uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t bits, unsigned operand, int width) {
  Block& block = *current;
  int source = source_lane(kind, block.running % 32, operand, width);
  return meet(block, kShuffleNames[int(kind)], __builtin_return_address(0), mask, bits, source);
}

__attribute__((noinline)) unsigned vote(Vote kind, unsigned mask, bool predicate) {
  uint64_t result = meet(*current, kVoteNames[int(kind)], __builtin_return_address(0), mask, predicate, kVote);
  unsigned ballot = unsigned(result), met = unsigned(result >> 32);
  if (kind == Vote::kBallot) return ballot;
  return kind == Vote::kAny ? ballot != 0 : ballot == met;
}

}  // namespace simt
