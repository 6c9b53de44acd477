// SPDX-License-Identifier: Apache-2.0
// The messages of a LocalDoor, reused for all frames so that a request needs no allocation.
#pragma once

#include <string>

#include "arraybridge/v1/broker.pb.h"

namespace arraybridge {

struct LocalDoorRequests {
  v1::OpenSessionRequest open_session;
  v1::GetServerInfoRequest get_server_info;
  v1::AllocateRequest allocate;
  v1::MappedRequest mapped;
  v1::ExportRequest export_arena;
  v1::ReleaseRequest release;
  v1::WithdrawRequest withdraw;
  v1::ListRequest list;
  v1::GetStatsRequest get_stats;
  v1::RedeemRequest redeem;
  v1::BrowseRequest browse;
  v1::OpenChannelRequest open_channel;
  v1::CloseChannelRequest close_channel;
  v1::ReceiveRequest receive;
  v1::WatchRequest watch;
  v1::InspectRequest inspect;
  std::string acquired;  // the answer to Acquire and Receive
};

}  // namespace arraybridge
