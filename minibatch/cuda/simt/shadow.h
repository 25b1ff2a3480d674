// shadow.h -- who touched a piece of memory last, and whether a new access is ordered after that.
#pragma once
#include <cstdint>
#include <cstdlib>

#include "simt_api.h"

namespace simt {

struct Visit {         // one access, as remembered
  uint32_t block = 0;  // counted over all launches, from 1; 0: none
  uint32_t phase = 0;  // barriers the block had passed
  uint32_t clock = 0;  // of the lane that came: goes up at each __syncwarp it takes part in
  uint32_t pc = 0;
  uint16_t thread = 0;
  uint8_t operation = SIMT_READ;
};

// The last writer and two readers since. Two are enough to find a race with the next writer unless __syncwarp orders
// both of them and not a third; the readers kept are those least likely to be ordered.
struct Cell {
  Visit write;
  Visit last_read, far_read;
};

// How far apart two threads are: 0 the same, 1 same warp, 2 same block, 3 different blocks.
inline int distance(const Visit& a, const Visit& b) {
  if (a.block != b.block) return 3;
  if (a.thread / 32 != b.thread / 32) return 2;
  return a.thread != b.thread;
}

inline bool recent(const Visit& visit, const Visit& now) {
  return visit.block == now.block ? visit.phase == now.phase : visit.block != 0;
}

inline void remember_read(Cell& cell, const Visit& now) {
  const Visit& old = cell.last_read;
  if (distance(old, now) != 0 && recent(old, now)) {
    if (!recent(cell.far_read, now) || distance(old, now) >= distance(cell.far_read, now)) cell.far_read = old;
  }
  cell.last_read = now;
}

}  // namespace simt
