// SPDX-License-Identifier: Apache-2.0
// Initialisation, primary contexts, and the current context of a thread.
#include <algorithm>
#include <vector>

#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>

#include "tests/simulated_cuda/alloc.h"
#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

// The kind of an object that a context must not leave behind; null if there is none.
const char* LeftBehind(Process& process, const Context& context) {
  for (const auto& [base, range] : process.space.ranges) {
    if (process.devices.OrdinalOf(range.block->device()) != context.ordinal) continue;
    if (range.kind == RangeKind::kAlloc) return "last release with live cuMemAlloc memory";
    if (range.kind == RangeKind::kLegacyImport) return "last release with an open legacy handle";
  }
  for (const auto& [handle, module] : process.modules) {
    if (&module->context == &context) return "last release with a loaded module";
  }
  for (const auto& [key, event] : process.events) {
    if (event->context == &context) return "last release with live events";
  }
  for (const auto& stream : process.StreamsOf(context)) {
    if (!stream->idle()) return "last release with queued work";
  }
  return nullptr;
}

// For guests, as on hardware: destroys the objects of the context with it.
void DestroyWhatLives(Process& process, const Context& context) {
  for (const auto& [handle, module] : process.modules) {
    if (&module->context == &context) module->Unload(process);
  }
  std::erase_if(process.modules, [&](const auto& entry) { return &entry.second->context == &context; });
  std::vector<uint64_t> bases;
  for (const auto& [base, range] : process.space.ranges) {
    const bool here = process.devices.OrdinalOf(range.block->device()) == context.ordinal;
    if (here && range.kind != RangeKind::kVmm) bases.push_back(base);
  }
  for (const uint64_t base : bases) Destroy(process, base);
  std::erase_if(process.events, [&](const auto& entry) { return entry.second->context == &context; });
  std::erase_if(process.streams, [&](const auto& entry) { return entry.second->context == &context; });
  std::erase_if(process.draining, [&](const auto& stream) { return stream->context == &context; });
}

bool TakeExclusive(const Process& process, Context& context) {
  const std::string path = process.config.directory + "/exclusive." + std::to_string(context.physical);
  UniqueFd file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!file.valid() || flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  context.exclusive = std::move(file);
  return true;
}

}  // namespace

std::vector<Context*>& CurrentContexts() {
  static thread_local std::vector<Context*> stack;
  return stack;
}

SIM_API cuInit(unsigned int flags) {
  Call call(__func__, Needs::kNothing);
  if (call.refused()) return call.refused();
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (call.process.devices.count() == 0) return CUDA_ERROR_NO_DEVICE;
  if (call.process.initialised) return CUDA_SUCCESS;
  call.process.initialised = true;
  pthread_atfork(nullptr, nullptr, [] { Process::Get().forked = true; });
  return CUDA_SUCCESS;
}

SIM_API cuDriverGetVersion(int* version) {
  const Call call(__func__, Needs::kNothing);
  if (call.refused()) return call.refused();
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = call.process.config.version;
  return CUDA_SUCCESS;
}

SIM_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = call.process.devices.ContextOf(device);
  if (primary.references == 0) {
    if (call.process.config.exclusive && !TakeExclusive(call.process, primary)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    ++primary.created;
    primary.legacy = std::make_shared<Stream>(&primary, true, true);
    primary.per_thread.clear();
  }
  ++primary.references;
  *context = ToApi(&primary);
  return CUDA_SUCCESS;
}

SIM_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  Context& primary = call.process.devices.ContextOf(device);
  if (primary.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
  if (primary.references == 1) {
    const char* left = LeftBehind(call.process, primary);
    if (left != nullptr && !call.process.config.guest) Violation(__func__, left, static_cast<uint64_t>(device));
    DestroyWhatLives(call.process, primary);
    primary.exclusive.reset();
  }
  --primary.references;
  return CUDA_SUCCESS;
}

SIM_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned int* flags, int* active) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!call.process.devices.Has(device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = call.process.devices.ContextOf(device).alive() ? 1 : 0;
  return CUDA_SUCCESS;
}

SIM_API cuCtxSetCurrent(CUcontext context) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  Context* known = call.process.devices.Known(context);
  if (context != nullptr && (known == nullptr || !known->alive())) return CUDA_ERROR_INVALID_CONTEXT;
  auto& stack = CurrentContexts();
  if (stack.empty()) stack.push_back(nullptr);
  stack.back() = known;
  return CUDA_SUCCESS;
}

SIM_API cuCtxGetCurrent(CUcontext* context) {
  const Call call(__func__);
  if (call.refused()) return call.refused();
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto& stack = CurrentContexts();
  *context = stack.empty() ? nullptr : ToApi(stack.back());
  return CUDA_SUCCESS;
}

SIM_API cuCtxSynchronize() {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (call.process.capture.ForbidsContext(call.context())) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  for (const auto& stream : call.process.StreamsOf(*call.context())) {
    const CUresult result = stream->Run(call.lock, stream->tail(), call.process.changed);
    if (result != CUDA_SUCCESS) return result;
  }
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
