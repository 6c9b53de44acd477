// SPDX-License-Identifier: Apache-2.0
// Fences on GPUs: interprocess events, recorded by the publisher and waited for by readers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "client/memory/fence_event.h"
#include "proto/boundary/handle.h"
#include "proto/boundary/result.h"

namespace arraybridge {

// Records an event that occurs when all work that is queued on these streams of `device` so far has ended. Null: there
// are no interprocess events, or all of them are in use; then the caller waits for the streams. FAILED_PRECONDITION,
// STREAM_CAPTURING: one of the streams is being captured; no event was recorded.
Result<std::unique_ptr<RecordedEvent>> RecordAfter(const Device& device, std::span<const uintptr_t> streams);

// Opens the event with that handle, of another process or of this one. A wait asks `maker_ended` each second whether
// the other process has ended. UNAVAILABLE, EVENT_NOT_OPENED: the driver refuses it.
Result<std::shared_ptr<const FenceEvent>> OpenEvent(const Device& device, const std::string& handle,
                                                    std::function<bool()> maker_ended);

}  // namespace arraybridge
