// arrays.cpp -- the arrays of a checked launch, as the host registers them.
#ifdef SIMT_CHECK
#include <algorithm>

#include "check.h"
#include "runtime.h"

extern "C" {

void simt_reset(int os_threads, int reversed) {
  simt::clear_reports();
  simt_trace(0);
  simt::set_schedule(os_threads, reversed != 0);
  // The cells of __shared__ variables stay: they know by the number of their block that they are out of date.
  const auto& shared = simt::module().shared;
  if (simt::arrays.empty()) simt::arrays = shared;
  simt::arrays.resize(shared.size());
  for (simt::Array& array : simt::arrays) {
    if (array.cells.empty()) array.cells.resize(array.info.bytes);
  }
}

int simt_array(const char* name, void* base, size_t bytes, unsigned element_bytes, int writable, int initialised) {
  simt::Array array{};
  std::snprintf(array.info.name, sizeof array.info.name, "%s", name);
  array.info.bytes = bytes;
  array.info.element_bytes = element_bytes;
  array.info.writable = writable != 0;
  array.base = static_cast<const char*>(base);
  array.granule = std::min(element_bytes, 4u);  // so that neighbouring elements never count as the same place
  array.initialised.assign(bytes / array.granule, initialised != 0);
  if (writable) array.cells.resize(bytes / array.granule);
  simt::arrays.push_back(std::move(array));
  return int(simt::arrays.size() - 1);
}

void simt_mark(int index, size_t first, size_t count, int initialised) {
  simt::Array& array = simt::arrays[size_t(index)];
  size_t per_element = array.info.element_bytes / array.granule;
  auto begin = array.initialised.begin() + std::ptrdiff_t(first * per_element);
  std::fill(begin, begin + std::ptrdiff_t(count * per_element), uint8_t(initialised != 0));
}

size_t simt_arrays(const simt_array_info** first) {
  static std::vector<simt_array_info> infos;
  infos.clear();
  for (const simt::Array& array : simt::arrays) infos.push_back(array.info);
  *first = infos.data();
  return infos.size();
}
}
#endif
