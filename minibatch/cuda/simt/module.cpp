// module.cpp -- finds the __shared__ variables: the thread-local symbols in the symbol table of this library.
#ifdef SIMT_CHECK
#include <cxxabi.h>
#include <link.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "check.h"

namespace simt {

namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

Array shared_variable(const std::string& name, size_t offset, size_t bytes) {
  Array array{};
  std::snprintf(array.info.name, sizeof array.info.name, "%s", name.c_str());
  array.info.bytes = bytes;
  array.info.shared = array.info.writable = 1;
  array.granule = 1;  // its element type is not known here
  array.tls_offset = offset;
  return array;
}

void add_symbol(Module& module, const std::string& name, size_t offset, size_t bytes, std::string& dynamic_name) {
  if (name.rfind("simt::", 0) == 0) return;  // ours: the indices, the current block
  if (bytes == 0) {                          // made by the linker: what the kernel calls dynamic shared memory
    dynamic_name += (dynamic_name.empty() ? "" : "/") + name;
    return;
  }
  if (name == "smem") module.dynamic_offset = offset;
  auto scope = name.rfind("::");
  module.shared.push_back(shared_variable(scope == name.npos ? name : name.substr(scope + 2), offset, bytes));
}

void read_symbols(Module& module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  if (bytes.size() < sizeof(ElfW(Ehdr))) return;
  auto* header = reinterpret_cast<const ElfW(Ehdr)*>(bytes.data());
  auto* sections = reinterpret_cast<const ElfW(Shdr)*>(bytes.data() + header->e_shoff);
  std::string dynamic_name;
  for (int s = 0; s < header->e_shnum; ++s) {
    if (sections[s].sh_type != SHT_SYMTAB) continue;
    auto* symbols = reinterpret_cast<const ElfW(Sym)*>(bytes.data() + sections[s].sh_offset);
    const char* names = bytes.data() + sections[sections[s].sh_link].sh_offset;
    for (size_t i = 0; i < sections[s].sh_size / sizeof *symbols; ++i) {
      const auto& symbol = symbols[i];
      if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS) continue;
      add_symbol(module, demangled(names + symbol.st_name), symbol.st_value, symbol.st_size, dynamic_name);
    }
  }
  for (Array& array : module.shared) {
    if (array.tls_offset != module.dynamic_offset || dynamic_name.empty()) continue;
    std::snprintf(array.info.name, sizeof array.info.name, "%s", dynamic_name.c_str());
  }
}

int visit(dl_phdr_info* info, size_t, void* data) {
  Module found{};
  found.low = reinterpret_cast<const char*>(~uintptr_t(0));
  bool mine = false;
  auto here = reinterpret_cast<const char*>(&module);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& segment = info->dlpi_phdr[i];
    auto start = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_TLS) found.tls_bytes = segment.p_memsz;
    if (segment.p_type != PT_LOAD) continue;
    mine |= here >= start && here < start + segment.p_memsz;
    found.low = std::min(found.low, start);
    found.high = std::max(found.high, start + segment.p_memsz);
  }
  if (!mine) return 0;
  read_symbols(found, info->dlpi_name);
  *static_cast<Module*>(data) = std::move(found);
  return 1;
}

}  // namespace

const Module& module() {
  static const Module found = [] {
    Module module{};
    dl_iterate_phdr(visit, &module);
    return module;
  }();
  return found;
}

}  // namespace simt
#endif
