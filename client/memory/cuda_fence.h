// Fences on GPUs: interprocess events, recorded by who publishes, waited for by who reads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "client/fence_event.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// An event that happens when everything has ended that is queued on these streams of `device` by now. Null if there is
// none to record: no interprocess events here, or all of them are waited for; then wait for the streams instead.
// FAILED_PRECONDITION, STREAM_CAPTURING: one of them is being captured, and nothing was recorded.
Result<std::unique_ptr<RecordedEvent>> RecordAfter(const Device& device, std::span<const uintptr_t> streams);

// The event of that name, of another process or of this one. UNAVAILABLE, EVENT_NOT_OPENED: the driver refuses it.
Result<std::shared_ptr<const FenceEvent>> OpenEvent(const Device& device, const std::string& handle);

}  // namespace arraybridge
