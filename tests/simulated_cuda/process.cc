// SPDX-License-Identifier: Apache-2.0
#include "tests/simulated_cuda/process.h"

#include <cstdio>

#include <unistd.h>

#include "proto/boundary/cuda/driver.h"
#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

std::atomic<Hook> hook = nullptr;

// "cuMemAlloc" for "cuMemAlloc_v2".
std::string BaseName(const std::string& symbol) {
  const size_t size = symbol.size();
  return size > 3 && symbol.compare(size - 3, 2, "_v") == 0 ? symbol.substr(0, size - 3) : symbol;
}

// The error that the configuration injects into this call, the nth of its name.
CUresult Injected(Process& process, const std::string& name, long nth) {
  for (const Fault& fault : process.config.faults) {
    if (fault.symbol != name && fault.symbol != "*") continue;
    const bool hit = fault.one_in != 0 ? process.random() % fault.one_in == 0 : fault.nth == 0 || fault.nth == nth;
    if (hit) return static_cast<CUresult>(fault.code);
  }
  return CUDA_SUCCESS;
}

bool NeedsContext(const Config& config, Needs needs) {
  return needs == Needs::kContext || (needs == Needs::kContextForMemory && config.context_for_memory);
}

}  // namespace

Process& Process::Get() {
  static Process* const process = new Process;
  return *process;
}

Call::Call(const char* name, Needs needs) : symbol(name), process(Process::Get()) {
  // A forked child has no driver; the parent's lock may have been held during the fork.
  if (process.forked) {
    refused_ = CUDA_ERROR_NOT_INITIALIZED;
    return;
  }
  if (const Hook before = hook.load()) before(symbol);
  lock = Lock(process.mutex);
  refused_ = Refusal(needs);
}

CUresult Call::Refusal(Needs needs) {
  const std::string name = BaseName(symbol);
  const long nth = ++process.calls[name];
  if (process.config.trace) std::fprintf(stderr, "simulated_cuda: [%d] %s %ld\n", getpid(), symbol, nth);
  const CUresult injected = Injected(process, name, nth);
  if (IsSticky(injected)) process.sticky = injected;
  if (injected != CUDA_SUCCESS) return injected;
  if (needs == Needs::kNothing) return CUDA_SUCCESS;
  if (!process.initialised) return CUDA_ERROR_NOT_INITIALIZED;
  if (InHostFunction()) return CUDA_ERROR_NOT_PERMITTED;
  if (process.sticky != CUDA_SUCCESS) return process.sticky;
  if (process.capture.Forbids(symbol)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const auto& stack = CurrentContexts();
  context_ = stack.empty() || stack.back() == nullptr || !stack.back()->alive() ? nullptr : stack.back();
  return NeedsContext(process.config, needs) && context_ == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

std::vector<std::shared_ptr<Stream>> Process::AllStreams() {
  std::erase_if(draining, [](const auto& stream) { return stream->idle(); });
  std::vector<std::shared_ptr<Stream>> all = draining;
  for (const auto& [key, stream] : streams) all.push_back(stream);
  for (const Context& context : devices.contexts) {
    if (context.legacy != nullptr) all.push_back(context.legacy);
    for (const auto& [thread, stream] : context.per_thread) all.push_back(stream);
  }
  return all;
}

std::vector<std::shared_ptr<Stream>> Process::StreamsOf(const Context& context) {
  std::vector<std::shared_ptr<Stream>> own = AllStreams();
  std::erase_if(own, [&](const auto& stream) { return stream->context != &context; });
  return own;
}

void Process::RefuseQueuedWork(const char* symbol, uint64_t base, uint64_t size) {
  for (const auto& stream : AllStreams()) {
    if (stream->Uses(base, size)) Violation(symbol, "queued work still uses this memory", base);
  }
}

std::shared_ptr<Stream> Process::FindStream(const char* symbol, CUstream stream, Context* current) {
  const auto number = reinterpret_cast<uintptr_t>(stream);
  if (number <= kStreamLegacy) return current == nullptr ? nullptr : current->legacy;
  if (number == kStreamPerThread) {
    if (current == nullptr) return nullptr;
    auto& own = current->per_thread[std::this_thread::get_id()];
    if (own == nullptr) own = std::make_shared<Stream>(current, true, false);
    return own;
  }
  if (destroyed.count(stream) != 0) Violation(symbol, "this stream was destroyed", number);
  const auto found = streams.find(stream);
  return found == streams.end() ? nullptr : found->second;
}

std::shared_ptr<Event> Process::FindEvent(const char* symbol, CUevent event) const {
  if (destroyed.count(event) != 0) Violation(symbol, "this event was destroyed", reinterpret_cast<uintptr_t>(event));
  const auto found = events.find(event);
  return found == events.end() ? nullptr : found->second;
}

void Process::Enqueue(const std::shared_ptr<Stream>& stream, Work work) {
  if (stream->capturing) return;
  std::vector<Point> after;
  if (stream->blocking) {
    for (const auto& other : AllStreams()) {
      const bool ordered = other->context == stream->context && other->blocking && other != stream;
      if (ordered && (stream->legacy || other->legacy) && !other->idle()) after.push_back({other, other->tail()});
    }
  }
  stream->Enqueue(std::move(work), std::move(after));
}

// For tests in the same process.
extern "C" __attribute__((visibility("default"))) void simulated_cuda_set_hook(Hook before);
void simulated_cuda_set_hook(Hook before) { hook = before; }

}  // namespace arraybridge::simulated
