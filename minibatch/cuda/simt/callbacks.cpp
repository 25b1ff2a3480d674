// callbacks.cpp -- what the compiler calls before each load and store of a kernel.
//
// -fsanitize=thread puts these calls in, and libtsan, which normally answers them, is not linked. The return address
// is in the kernel and names the source line.
#ifdef SIMT_CHECK
#include "check.h"
#include "runtime.h"

#define PC __builtin_return_address(0)
#define ACCESS(size)                                                                               \
  void __tsan_read##size(void* p) { simt::check_access(p, size, SIMT_READ, true, PC); }            \
  void __tsan_write##size(void* p) { simt::check_access(p, size, SIMT_WRITE, true, PC); }          \
  void __tsan_unaligned_read##size(void* p) { simt::check_access(p, size, SIMT_READ, false, PC); } \
  void __tsan_unaligned_write##size(void* p) { simt::check_access(p, size, SIMT_WRITE, false, PC); }

extern "C" {

ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* p, size_t n) { simt::check_access(p, unsigned(n), SIMT_READ, false, PC); }
void __tsan_write_range(void* p, size_t n) { simt::check_access(p, unsigned(n), SIMT_WRITE, false, PC); }

// clang++ from version 16 on makes these of the copy of a struct.
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  simt::check_access(from, unsigned(n), SIMT_READ, false, PC);
  simt::check_access(to, unsigned(n), SIMT_WRITE, false, PC);
  return std::memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  simt::check_access(from, unsigned(n), SIMT_READ, false, PC);
  simt::check_access(to, unsigned(n), SIMT_WRITE, false, PC);
  return std::memmove(to, from, n);
}
void* __tsan_memset(void* to, int byte, size_t n) {
  simt::check_access(to, unsigned(n), SIMT_WRITE, false, PC);
  return std::memset(to, byte, n);
}

// A frame too large has by now one word below its stack, in the neighbour's: nobody's code runs on after the report.
void __tsan_func_entry(void*) { simt::check_stack(__builtin_frame_address(0), PC); }
void __tsan_func_exit(void) {}
void __tsan_init(void) {}
void __tsan_vptr_update(void*, void*) {}
void __tsan_vptr_read(void*) {}
uint8_t __tsan_atomic8_load(const volatile uint8_t* p, int) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }  // guards

// -fsanitize=bounds: the index of an array of fixed size is out of range. The layout is that of GCC's and LLVM's ubsan.
struct BoundsType {
  uint16_t kind, info;
  char name[1];
};
struct BoundsData {
  const char* file;
  uint32_t line, column;
  const BoundsType *array, *index;
};
void __ubsan_handle_out_of_bounds(const BoundsData* data, uintptr_t index) {
  if (!simt::current) {
    std::fprintf(stderr, "%s:%u: index %zd outside %s\n", data->file, data->line, ssize_t(index), data->array->name);
    std::abort();
  }
  simt_report report = simt::report_of(SIMT_ARRAY_INDEX, PC, simt::current->running);
  report.offset = int64_t(index);
  report.line = data->line;
  simt::set_name(report.name, data->array->name);
  simt::set_name(report.other_name, data->file);
  simt::submit(report);
  simt::stop_block();
}
}
#endif
