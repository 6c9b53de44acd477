// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/guests/module.h"

#include <algorithm>
#include <cstring>

#include "tests/simulated_cuda/alloc.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/ptx/decoder.h"

namespace arraybridge::simulated {

using namespace cuda;  // this implements that interface

namespace {

constexpr std::string_view kElf =
    "\x7f"
    "ELF";
constexpr uint32_t kFatBinary = 0xBA55ED50;
constexpr uint32_t kFatBinaryWrapper = 0x466243B1;

bool IsBinary(const void* image) {
  uint32_t first = 0;
  std::memcpy(&first, image, sizeof(first));
  return std::memcmp(image, kElf.data(), kElf.size()) == 0 || first == kFatBinary || first == kFatBinaryWrapper;
}

}  // namespace

std::shared_ptr<Module> Module::Load(Process& process, Context& context, const void* image, CUresult* result,
                                     std::string* why) {
  *result = CUDA_ERROR_NO_BINARY_FOR_GPU;
  *why = "the image has machine code, and the simulated driver runs PTX alone";
  if (IsBinary(image)) return nullptr;
  *result = CUDA_ERROR_INVALID_IMAGE;
  *why = "the image is no PTX";
  if (std::strstr(static_cast<const char*>(image), ".version") == nullptr) return nullptr;
  auto made = std::make_shared<Module>(context);
  made->program = ptx::Parse(static_cast<const char*>(image));
  *result = CUDA_ERROR_INVALID_PTX;
  *why = made->program.error;
  if (!why->empty()) return nullptr;
  *result = made->PlaceVariables(process, why);
  if (*result != CUDA_SUCCESS) {
    made->Unload(process);
    return nullptr;
  }
  made->DecodeAll(made);
  return made;
}

CUresult Module::PlaceVariables(Process& process, std::string* why) {
  uint64_t bytes = 0;
  for (const auto& variable : program.variables) {
    if (variable->is_extern) continue;
    variable->address = ptx::RoundUp(bytes, variable->align);
    bytes = variable->address + variable->bytes;
  }
  if (bytes == 0) return CUDA_SUCCESS;
  memory_ = Allocate(process, bytes, context.physical);
  if (memory_ == 0) return CUDA_ERROR_OUT_OF_MEMORY;
  for (const auto& variable : program.variables) {
    if (!variable->is_extern) variable->address += memory_;
  }
  for (const auto& variable : program.variables) {
    const ptx::Variable* defined = Variable(variable->name);
    if (variable->is_extern && defined != nullptr) variable->address = defined->address;
  }
  std::byte* const memory = process.space.Bytes(memory_, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  std::memset(memory, 0, bytes);
  for (const auto& variable : program.variables) {
    if (variable->is_extern) continue;
    if (!Relocate(*variable, why)) return CUDA_ERROR_INVALID_PTX;
    std::copy(variable->initial.begin(), variable->initial.end(), memory + (variable->address - memory_));
  }
  return CUDA_SUCCESS;
}

// Writes the addresses of other variables into the variable's initial bytes.
bool Module::Relocate(ptx::Variable& variable, std::string* why) {
  for (const ptx::Relocation& relocation : variable.relocations) {
    const ptx::Variable* other = Variable(relocation.name);
    if (other == nullptr) {
      *why = "'" + variable.name + "' has the address of '" + relocation.name + "', which is no variable";
      return false;
    }
    const uint64_t address = other->address + static_cast<uint64_t>(relocation.added);
    std::memcpy(variable.initial.data() + relocation.offset, &address,
                std::min<size_t>(relocation.bytes, sizeof(address)));
  }
  return true;
}

void Module::DecodeAll(const std::shared_ptr<Module>& self) {
  for (const auto& [name, function] : program.functions) {
    if (function->defined) codes_[name].function = function.get();
  }
  const ptx::Linkage linkage{&program, &codes_};
  for (auto& [name, code] : codes_) {
    ptx::Decode(linkage, code);
    if (code.function->entry) functions[name] = {self, &code};
  }
}

void Module::Unload(Process& process) {
  if (memory_ != 0) Destroy(process, memory_);
  memory_ = 0;
  for (const auto& [other, module] : elsewhere_) module->Unload(process);
}

std::shared_ptr<Module> Module::In(Process& process, Context& other) {
  if (library.empty()) return nullptr;
  std::shared_ptr<Module>& there = elsewhere_[&other];
  CUresult result = CUDA_SUCCESS;
  std::string why;
  if (there == nullptr) there = Load(process, other, library.c_str(), &result, &why);
  return there;
}

ModuleFunction* Module::Find(const std::string& name) {
  const auto found = functions.find(name);
  return found == functions.end() ? nullptr : &found->second;
}

const ptx::Variable* Module::Variable(const std::string& name) const {
  for (const auto& variable : program.variables) {
    if (!variable->is_extern && variable->name == name) return variable.get();
  }
  return nullptr;
}

}  // namespace arraybridge::simulated
