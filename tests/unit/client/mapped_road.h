// An end of a road as a client maps it, beside the daemon's own side of it.
#pragma once

#include <memory>
#include <utility>

#include "client/road_pages.h"
#include "daemon/memory/road.h"

namespace arraybridge {

// This side's pages, sealed.
inline std::unique_ptr<RoadPages> MapRoad(Road& road, RoadSide side) {
  const auto part = [&](RoadPart which) {
    auto file = road.Export(side, which);
    AB_CHECK(file.ok());
    return *std::move(file);
  };
  RoadPages::Files files{part(RoadPart::kOwn), part(RoadPart::kOther), part(RoadPart::kSign), part(RoadPart::kBell),
                         part(RoadPart::kOtherBell)};
  auto pages = RoadPages::Map(side == RoadSide::kSender, std::move(files));
  AB_CHECK(pages.ok() && road.Seal(side).ok());
  return *std::move(pages);
}

}  // namespace arraybridge
