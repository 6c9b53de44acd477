// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/simulated_cuda/calls.h"
#include "tests/simulated_cuda/process.h"
#include "tests/simulated_cuda/violation.h"

namespace arraybridge::simulated {
namespace {

constexpr uint32_t kQueriesOfAWait = 16;

CUevent Add(Process& process, const std::shared_ptr<Event>& event) {
  const auto key = reinterpret_cast<CUevent>(event.get());
  process.events[key] = event;
  process.destroyed.erase(key);
  return key;
}

}  // namespace

SIM_API cuEventCreate(CUevent* event, unsigned int flags) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  constexpr uint32_t kKnown = kEventBlockingSync | kEventDisableTiming | kEventInterprocess;
  if (event == nullptr || (flags & ~kKnown) != 0) return CUDA_ERROR_INVALID_VALUE;
  if ((flags & kEventInterprocess) != 0 && (flags & kEventDisableTiming) == 0) return CUDA_ERROR_INVALID_VALUE;
  if (call.process.events.size() >= kEventsMax) return CUDA_ERROR_OUT_OF_MEMORY;
  auto made = std::make_shared<Event>();
  made->flags = flags;
  made->context = call.context();
  made->maker = std::this_thread::get_id();
  *event = Add(call.process, made);
  return CUDA_SUCCESS;
}

SIM_API cuEventRecord(CUevent event, CUstream stream) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  const auto recorded = call.process.FindEvent(__func__, event);
  const auto found = call.process.FindStream(__func__, stream, call.context());
  if (recorded == nullptr || found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (recorded->imported) Violation(__func__, "this project never records an imported event");
  if (recorded->context != found->context) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = call.process.capture.RefusalToUse(*found)) return captured;
  const EventSlot* slot = recorded->slot();
  if (slot != nullptr && slot->importers.Any(recorded->slot_number)) ++call.process.recorded_while_imported;
  recorded->captured = found->capturing;
  Record(recorded, {found});
  return CUDA_SUCCESS;
}

SIM_API cuEventQuery(CUevent event) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindEvent(__func__, event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = call.process.capture.RefusalToWaitFor(*found)) return captured;
  if (!found->OwnerKeepsIt()) Violation(__func__, "the exporter destroyed this event");
  const uint64_t record = found->Latest();
  if (found->Done() >= record) return found->queries = 0, CUDA_SUCCESS;
  const auto& config = call.process.config;
  if (found->imported && found->OwnerIsDead()) {
    return config.dead_events_pend ? CUDA_ERROR_NOT_READY : CUDA_ERROR_INVALID_HANDLE;
  }
  ++found->queries;  // each record resets it; for other processes, an answer that it has occurred
  // A process that asks again and again for another one's event waits for it.
  const bool waits = call.process.IsHeld() ? found->imported && found->queries > kQueriesOfAWait : found->queries > 1;
  return waits ? Complete(call.lock, found, record) : CUDA_ERROR_NOT_READY;
}

SIM_API cuEventSynchronize(CUevent event) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  const auto found = call.process.FindEvent(__func__, event);
  if (found == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (const CUresult captured = call.process.capture.RefusalToWaitFor(*found)) return captured;
  if (!found->OwnerKeepsIt()) Violation(__func__, "the exporter destroyed this event");
  return Complete(call.lock, found, found->Latest());
}

SIM_API cuEventDestroy_v2(CUevent event) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (call.process.destroyed.count(event) != 0) {
    Violation(__func__, "destroyed twice", reinterpret_cast<uintptr_t>(event));
  }
  const auto found = call.process.events.find(event);
  if (found == call.process.events.end()) return CUDA_ERROR_INVALID_HANDLE;
  const std::shared_ptr<Event> gone = std::move(found->second);  // queued work may keep it alive
  call.process.events.erase(found);
  call.process.destroyed.insert(event);
  EventSlot* slot = gone->slot();
  if (slot == nullptr) return CUDA_SUCCESS;
  if (gone->imported) {
    slot->importers.Remove(getpid(), gone->slot_number);
    return CUDA_SUCCESS;
  }
  if (slot->importers.Any(gone->slot_number)) Violation(__func__, "importers still hold this event");
  slot->alive = 0;
  return CUDA_SUCCESS;
}

SIM_API cuIpcGetEventHandle(CUipcEventHandle* handle, CUevent event) {
  Call call(__func__);
  if (call.refused()) return call.refused();
  if (call.process.Off(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)) return CUDA_ERROR_NOT_SUPPORTED;
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto found = call.process.FindEvent(__func__, event);
  if (found == nullptr || found->imported || (found->flags & kEventInterprocess) == 0) return CUDA_ERROR_INVALID_HANDLE;
  if (found->maker != std::this_thread::get_id()) return CUDA_ERROR_INVALID_HANDLE;
  if (!call.process.event_file.Publish(found)) return CUDA_ERROR_OUT_OF_MEMORY;
  const EventHandleBytes bytes{kMagic, found->nonce, call.process.event_file.name(), getpid(), found->slot_number, {}};
  std::memcpy(handle, &bytes, sizeof(bytes));
  return CUDA_SUCCESS;
}

SIM_API cuIpcOpenEventHandle(CUevent* event, CUipcEventHandle handle) {
  Call call(__func__, Needs::kContext);
  if (call.refused()) return call.refused();
  if (call.process.Off(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED)) return CUDA_ERROR_NOT_SUPPORTED;
  EventHandleBytes bytes{};
  std::memcpy(&bytes, &handle, sizeof(bytes));
  if (event == nullptr || bytes.magic != kMagic || bytes.slot >= kEventsMax) return CUDA_ERROR_INVALID_VALUE;
  if (bytes.pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  if (call.process.events.size() >= kEventsMax) return CUDA_ERROR_OUT_OF_MEMORY;
  auto opened = std::make_shared<Event>();
  // Missing if the two processes do not share the directory, as with a private /dev/shm.
  opened->file.reset(open(EventFile::PathOf(bytes.pid, bytes.file).c_str(), O_RDWR | O_CLOEXEC));
  if (!opened->file.valid()) return CUDA_ERROR_MAP_FAILED;
  if (opened->OwnerIsDead()) return CUDA_ERROR_INVALID_VALUE;
  void* mapping = mmap(nullptr, sizeof(EventDoor), PROT_READ | PROT_WRITE, MAP_SHARED, opened->file.get(), 0);
  if (mapping == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  opened->door = static_cast<EventDoor*>(mapping);
  opened->imported = true;
  opened->flags = kEventDisableTiming | kEventInterprocess;
  opened->context = call.context();
  opened->slot_number = bytes.slot;
  opened->nonce = bytes.nonce;
  if (!opened->OwnerKeepsIt()) return CUDA_ERROR_INVALID_VALUE;
  if (!opened->slot()->importers.Add(getpid(), bytes.slot)) return CUDA_ERROR_OUT_OF_MEMORY;
  *event = Add(call.process, opened);
  return CUDA_SUCCESS;
}

}  // namespace arraybridge::simulated
