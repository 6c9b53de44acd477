// SPDX-License-Identifier: Apache-2.0
// An end of a direct channel as a client maps it, beside the daemon's own side of it.
#pragma once

#include <memory>
#include <utility>

#include "client/direct_channels/direct_pages.h"
#include "daemon/memory/shared_pages/direct_channel.h"

namespace arraybridge::daemon {

// This side's pages, sealed.
inline std::unique_ptr<DirectPages> MapDirect(DirectChannel& direct, DirectEnd side) {
  auto files = direct.Export(side);
  AB_CHECK(files.ok());
  auto pages = DirectPages::Map(side == DirectEnd::kProducer, *files);
  AB_CHECK(pages.ok() && direct.Seal(side).ok());
  return *std::move(pages);
}

}  // namespace arraybridge::daemon
