// atomic.cpp -- every atomic function of a kernel: read, compute, compare and swap.
#include "check.h"
#include "runtime.h"

namespace simt {

namespace {

template <class Word>
uint64_t update(Word* address, Apply apply, void* closure) {
  Word old = __atomic_load_n(address, __ATOMIC_RELAXED), next;
  do {
    next = Word(apply(old, closure));
  } while (!__atomic_compare_exchange_n(address, &old, next, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
  return old;
}

}  // namespace

__attribute__((noinline)) uint64_t atomic_update(void* address, unsigned bytes, Apply apply, void* closure) {
  if constexpr (kChecked) check_access(address, bytes, SIMT_ATOMIC, true, __builtin_return_address(0));
  if (bytes == 4) return update(static_cast<uint32_t*>(address), apply, closure);
  return update(static_cast<uint64_t*>(address), apply, closure);
}

}  // namespace simt
