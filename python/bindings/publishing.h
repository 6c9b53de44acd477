// SPDX-License-Identifier: Apache-2.0
// Publishing: arrays that were born in broker memory, or lie in a share, are published where they lie, others as
// copies. Without Python objects; called without the GIL.
#pragma once

#include <arraybridge/broker.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>

namespace arraybridge::python {

// The options of a put, beside the name and the arrays.
struct PutOptions {
  Broker::PublishOptions publish;                    // no name is set
  std::string note_in_place;                         // note for arrays that are published without a copy
  std::string note_forward;                          // note for arrays that lie in a share
  bool keep_writing = false;                         // the arrays are written after they were published
  std::optional<std::chrono::milliseconds> timeout;  // to wait for room, if it is less than the Broker's
};

struct PutArrays {
  Share share;
  bool in_place = false;  // they lay in one placement, are published without a copy, and must not be written any more
};
// Publishes the arrays; copies them unless they were born in broker memory, or lie in one share.
Result<PutArrays> PublishArrays(Broker& broker, std::span<const View> views, std::string name,
                                const PutOptions& options);

}  // namespace arraybridge::python
