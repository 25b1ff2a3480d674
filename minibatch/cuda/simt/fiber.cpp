// fiber.cpp -- switching stacks: save the registers that a called function must preserve, change the stack pointer.
#include "fiber.h"

#include <cstdint>

#ifndef SIMT_UCONTEXT

#if defined(__x86_64__)
constexpr int kSavedWords = 6;  // rbp rbx r12 r13 r14 r15, and above them the return address
asm(R"(
.text
.globl simt_switch_stack
.hidden simt_switch_stack
.type simt_switch_stack,@function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch_stack,.-simt_switch_stack
)");
#elif defined(__aarch64__)
constexpr int kSavedWords = 20;  // x29, x30 (the return address), x19-x28, d8-d15
asm(R"(
.text
.globl simt_switch_stack
.hidden simt_switch_stack
.type simt_switch_stack,%function
simt_switch_stack:
  stp x29,x30,[sp,#-160]!
  stp x19,x20,[sp,#16]
  stp x21,x22,[sp,#32]
  stp x23,x24,[sp,#48]
  stp x25,x26,[sp,#64]
  stp x27,x28,[sp,#80]
  stp d8,d9,[sp,#96]
  stp d10,d11,[sp,#112]
  stp d12,d13,[sp,#128]
  stp d14,d15,[sp,#144]
  mov x9,sp
  str x9,[x0]
  mov sp,x1
  ldp x19,x20,[sp,#16]
  ldp x21,x22,[sp,#32]
  ldp x23,x24,[sp,#48]
  ldp x25,x26,[sp,#64]
  ldp x27,x28,[sp,#80]
  ldp d8,d9,[sp,#96]
  ldp d10,d11,[sp,#112]
  ldp d12,d13,[sp,#128]
  ldp d14,d15,[sp,#144]
  ldp x29,x30,[sp],#160
  ret
.size simt_switch_stack,.-simt_switch_stack
)");
#endif

namespace simt {

void fiber_prepare(Fiber& fiber, char*, char* top, void (*entry)()) {
  auto* word = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
#if defined(__x86_64__)
  *--word = nullptr;  // entry() finds the stack as after a call: 8 bytes off a multiple of 16
  *--word = reinterpret_cast<void*>(entry);
#endif
  for (int i = 0; i < kSavedWords; ++i) *--word = nullptr;
#if defined(__aarch64__)
  word[1] = reinterpret_cast<void*>(entry);
#endif
  fiber.stack_pointer = word;
}

}  // namespace simt

#else

namespace simt {

void fiber_prepare(Fiber& fiber, char* bottom, char* top, void (*entry)()) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = bottom;
  fiber.context.uc_stack.ss_size = size_t(top - bottom);
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, entry, 0);
}

}  // namespace simt

#endif
