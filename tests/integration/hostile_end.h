// SPDX-License-Identifier: Apache-2.0
// An end of a channel that writes into its direct channel's page whatever a test wants.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "client/direct_channels/direct_pages.h"
#include "client/lifeline/lifeline.h"
#include "client/wire/codec.h"
#include "tests/unit/boundary/direct_entries.h"

namespace arraybridge {

class HostileEnd {
 public:
  HostileEnd(const std::string& address, const std::string& channel, bool sends) : sends_(sends) {
    auto connected = Lifeline::Connect(address, Until());
    EXPECT_TRUE(connected.ok());
    lifeline_ = *std::move(connected);
    Call(Verb::kOpenSession,
         wire::Encode(wire::OpenSessionRequest{
             .protocol_min = kProtocolVersion, .protocol_max = kProtocolVersion, .client = "hostile"}));
    using Role = wire::OpenChannelRequest::Role;
    const wire::OpenChannelRequest request{.name = channel, .role = sends ? Role::kSender : Role::kReceiver};
    const Answer opened = Call(Verb::kOpenChannel, wire::Encode(request));
    end_ = codec::Read<wire::OpenChannelResponse>(opened.payload)->channel;
  }

  // REQUIRES: the other end is open.
  void MapDirect() {
    Answer answer =
        Call(Verb::kBrowse,
             wire::Encode(wire::BrowseRequest{.part = wire::BrowseRequest::Part::kDirectChannel, .channel = end_}));
    std::vector<UniqueFd> files = std::move(answer.more);
    files.insert(files.begin(), std::move(answer.descriptor));
    ASSERT_EQ(files.size(), direct_channel::kFiles);
    other_doorbell_.reset(::dup(files[direct_channel::kOtherDoorbell].get()));
    auto mapped = DirectPages::Map(sends_, files);
    ASSERT_TRUE(mapped.ok()) << mapped.status().ToString();
    pages_ = *std::move(mapped);
    const wire::MappedRequest said{.direct_channel_of = end_, .direct_channel_number = pages_->control().number};
    Call(Verb::kMapped, wire::Encode(said));
  }
  // An arena of its own, sealed.
  Handle MakeArena() {
    Answer answer = Call(Verb::kAllocate, wire::Encode(wire::AllocateRequest{.size = 1 << 20}));
    Handle handle = *codec::HandleOf(*codec::Read<wire::AllocateResponse>(answer.payload)->handle);
    answer.descriptor.reset();
    Call(Verb::kMapped, wire::Encode(wire::MappedRequest{.arena = handle.arena}));
    return handle;
  }

  // An array of uint64 at the arena's begin.
  static codec::PublishedArray Words(int64_t words) {
    return {{.type = {1, 64, 1}, .dtype = "uint64", .shape = {words}, .strides = {}},
            static_cast<uint64_t>(words) * sizeof(uint64_t)};
  }
  void Publish(const Handle& arena, std::string_view name, int64_t words) {
    codec::Publish request;
    request.message.namespace_ = "default";
    request.message.name = name;
    request.message.arena = arena.arena;
    request.message.arena_generation = arena.generation;
    request.message.size = static_cast<uint64_t>(words) * sizeof(uint64_t);
    request.arrays = {Words(words)};
    Call(Verb::kPublish, codec::Encode(request));
  }

  bool opened() const { return pages_->opened(); }
  direct_channel::ProducerPage& sent() { return *static_cast<direct_channel::ProducerPage*>(pages_->own()); }
  direct_channel::ConsumerPage& taken() { return *static_cast<direct_channel::ConsumerPage*>(pages_->own()); }
  void Put(const direct_channel::Header& said, const std::string& description) {
    direct_channel::WriteEntry(sent(), pages_->capacity(), said, description);
  }
  // Rings until nothing goes into the doorbell any more, and makes whoever writes to what this end has wait.
  void RingWithoutEnd() const {
    const std::array<char, 4096> rings{};
    while (::write(other_doorbell_.get(), rings.data(), rings.size()) > 0) continue;
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_EQ(::fcntl(other_doorbell_.get(), F_SETFL, O_RDWR), 0);
  }
  // Takes what rings for the other end.
  void Steal() const {
    std::array<char, 4096> rings;
    ::fcntl(other_doorbell_.get(), F_SETFL, O_RDWR | O_NONBLOCK);
    while (::read(other_doorbell_.get(), rings.data(), rings.size()) > 0) continue;
  }
  // A file cannot be put into a doorbell for somebody else to close.
  bool TakesFiles() const {
    struct stat info {};
    return ::fstat(other_doorbell_.get(), &info) != 0 || !S_ISFIFO(info.st_mode);
  }

 private:
  static Deadline Until() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }
  Answer Call(Verb verb, const std::string& request) {
    auto answer = lifeline_->Call(verb, request, Until());
    EXPECT_TRUE(answer.ok()) << answer.status().ToString();
    return answer.ok() ? *std::move(answer) : Answer{};
  }

  const bool sends_;
  std::shared_ptr<Lifeline> lifeline_;
  uint64_t end_ = 0;
  std::unique_ptr<DirectPages> pages_;
  UniqueFd other_doorbell_;
};

}  // namespace arraybridge
