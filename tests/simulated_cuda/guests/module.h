// SPDX-License-Identifier: Apache-2.0
// A Module is a PTX text that was loaded into a context: its functions, and its variables in device memory. A binary
// for hardware cannot be loaded.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "tests/simulated_cuda/guests/abi.h"
#include "tests/simulated_cuda/ptx/thread.h"

namespace arraybridge::simulated {

struct Context;
struct Process;
class Module;

struct ModuleFunction {
  std::weak_ptr<Module> module;
  const ptx::Code* code = nullptr;
  int max_dynamic_shared = 49152;
};

class Module {
 public:
  // Null, with `result` and `why`, if the image cannot be loaded. REQUIRES: the process's lock.
  static std::shared_ptr<Module> Load(Process& process, Context& context, const void* image, cuda::CUresult* result,
                                      std::string* why);
  // Gives the memory of the variables back.
  void Unload(Process& process);

  // The same library in another context. Null: this is a module, which belongs to its context, or there is no memory
  // for the variables. REQUIRES: the process's lock.
  std::shared_ptr<Module> In(Process& process, Context& other);

  // Null if there is none.
  ModuleFunction* Find(const std::string& name);
  const ptx::Variable* Variable(const std::string& name) const;

  Context& context;
  ptx::Program program;
  std::map<std::string, ModuleFunction> functions;  // the entries; the addresses are stable
  std::string library;                              // of a library: its text. Its kernels run in all contexts

  explicit Module(Context& of) : context(of) {}

 private:
  cuda::CUresult PlaceVariables(Process& process, std::string* why);
  bool Relocate(ptx::Variable& variable, std::string* why);
  void DecodeAll(const std::shared_ptr<Module>& self);

  std::map<std::string, ptx::Code> codes_;
  std::map<Context*, std::shared_ptr<Module>> elsewhere_;
  uint64_t memory_ = 0;
};

}  // namespace arraybridge::simulated
