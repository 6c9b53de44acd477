// SPDX-License-Identifier: Apache-2.0
// A broker with channels that is killed and continued by the next one, over a store that both use.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "daemon/memory/host/host_backend.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/fake_store.h"

namespace arraybridge::daemon {

// The lives of a broker. Each one has a copy of the store, so that its end takes nothing out of the store of the next
// one.
class RecoveryChannelTest : public testing::Test {
 protected:
  static constexpr uint64_t kSharesInArena = 256;

  RecoveryChannelTest() { Restart(); }

  // Kills the broker. The clients of the sessions in `alive_` live on; the others' sessions end, as the service does
  // it.
  Recovered Restart() {
    Recovered recovered = KillAndRecover();
    for (const SessionId session : recovered.gone) broker_->EndSession(session);
    return recovered;
  }
  Recovered KillAndRecover() {
    auto passed = store_->PassOn();
    auto fresh = std::make_unique<FakeStore>();
    for (const StoredDescriptor& each : passed) {
      const DescriptorStore::Entry entry{each.name, each.fd.get()};
      EXPECT_TRUE(fresh->Store({&entry, 1}).ok());
    }
    broker_.reset();
    store_ = std::move(fresh);
    backend_ = MakeHostBackend({.capacity_bytes = 1024 * kPage});
    broker_ = std::make_unique<Broker>(config_, std::vector<MemoryBackend*>{backend_.get()});
    std::vector<LiveClient> clients;
    for (const SessionId session : alive_) clients.push_back({session, {.uid = 1000}});
    std::ranges::reverse(passed);  // a holder may return them in any order
    auto recovered = broker_->Recover(*store_, std::move(passed), clients);
    EXPECT_TRUE(recovered.ok()) << recovered.status().ToString();
    EXPECT_EQ(recovered->damaged_records, 0u);
    EXPECT_EQ(recovered->lost_shares, 0u);
    return *std::move(recovered);
  }
  Broker& broker() { return *broker_; }

  SessionId Open() {
    const SessionId session = broker().OpenSession({.uid = 1000, .process_id = 4711, .client = "test"})->session;
    alive_.insert(session);
    return session;
  }
  void Die(SessionId session) { alive_.erase(session); }

  struct End {
    SessionId session{};
    ChannelEndId id{};
    uint64_t seen = 0;
    Handle arena;
    uint64_t sent = 0;
  };
  End OpenEnd(SessionId session, ChannelRole role, ChannelTerms terms = {}, uint64_t request = 0,
              const std::string& name = "frames") {
    const auto opened = broker().OpenChannel(session, {"default", name, role, terms, request});
    EXPECT_TRUE(opened.ok()) << opened.status().ToString();
    End end{session, opened->end, opened->seen_notice, {}, 0};
    if (role == kReceiver) return end;
    auto arena = broker().Allocate(session, {"default", kHost, kSharesInArena * 256});
    EXPECT_TRUE(arena.ok()) << arena.status().ToString();
    end.arena = std::move(arena->handle);
    end.arena.descriptor.reset();
    EXPECT_TRUE(broker().Mapped(session, ArenaId{end.arena.arena}).ok());
    return end;
  }
  PublishCall Call(End& end, uint64_t request = 0) {
    PublishCall call;
    call.ns = "default";
    call.arena = ArenaId{end.arena.arena};
    call.arena_generation = end.arena.generation;
    call.offset = end.sent++ % kSharesInArena * 256;
    call.size = 256;
    call.description = "what it is";
    call.channel = end.id;
    call.seen_notice = end.seen;
    call.request = request;
    return call;
  }
  Status Send(End& end, uint64_t request = 0) {
    return Seen(end, broker().Publish(end.session, Call(end, request)).status());
  }
  Status Receive(End& end, uint64_t request = 0) {
    auto received = broker().Receive(end.session, end.id, end.seen, true, request);
    if (!received.ok()) return Seen(end, received.status());
    const LeasedShare& share = received->shares.at(0);
    got_ = {share.lease, share.facts, share.handle.offset};
    return Ok();
  }
  // The sequence of the next share, which is released at once; 0: there is none.
  uint64_t Next(End& end) {
    const Status received = Receive(end);
    if (!received.ok()) return 0;
    Release(end);
    return got_.facts->sent->sequence;
  }
  std::vector<uint64_t> All(End& end) {
    std::vector<uint64_t> all;
    while (const uint64_t next = Next(end)) all.push_back(next);
    return all;
  }
  void Release(const End& end) {
    const uint64_t lease = Number(got_.lease);
    EXPECT_EQ(*broker().Release(end.session, {&lease, 1}, {}, {}), 1u);
  }
  void Close(End& end) { EXPECT_TRUE(broker().CloseChannel(end.session, end.id, EndedHow::kClosed).ok()); }
  // As a client does: the next request says that the notice was seen.
  static Status Seen(End& end, Status told) {
    for (const auto& [key, value] : told.metadata()) {
      if (key == "notice") end.seen = std::stoull(value);
    }
    return told;
  }
  void ExpectNothingIsLeft() {
    for (const SessionId session : alive_) broker().EndSession(session);
    alive_.clear();
    for (int i = 0; i < 2; ++i) {
      broker().Sweep(Clock::now() + config_.orphan_grace.get());
      const Snapshot end = broker().TakeSnapshot();
      EXPECT_EQ(end.channels + end.queued_shares + end.withdrawn_shares + end.leases + end.shares, 0u);
      EXPECT_EQ(end.arenas + end.dying_arenas + end.charged_bytes, 0u);
      Restart();
    }
  }

  const Device kHost{kDeviceCpu, 0, {}};
  Config config_;
  struct Got {
    LeaseId lease{};
    std::shared_ptr<const ShareFacts> facts;
    uint64_t offset = 0;
  };
  Got got_;  // by the last Receive
  std::set<SessionId> alive_;

  std::unique_ptr<FakeStore> store_ = std::make_unique<FakeStore>();
  std::unique_ptr<MemoryBackend> backend_;
  std::unique_ptr<Broker> broker_;
};

class Mapped {
 public:
  Mapped(const UniqueFd& file, uint64_t bytes, int how)
      : bytes_(bytes), base_(::mmap(nullptr, bytes, how, MAP_SHARED, file.get(), 0)) {
    EXPECT_NE(base_, MAP_FAILED);
  }
  ~Mapped() { ::munmap(base_, bytes_); }
  Mapped(const Mapped&) = delete;
  Mapped& operator=(const Mapped&) = delete;
  template <class Page>
  Page& as() const {
    return *static_cast<Page*>(base_);
  }

 private:
  const uint64_t bytes_;
  void* const base_;
};

struct Killed {};

class RecoveryDirectTest : public RecoveryChannelTest {
 protected:
  static constexpr uint64_t kSlots = 8;

  RecoveryDirectTest()
      : sends_(OpenEnd(Open(), kSender, {.capacity = kSlots})), receives_(OpenEnd(Open(), kReceiver)) {}

  // Both ends have mapped it.
  void Connect() {
    auto of_sender = broker().ExportDirectChannel(sends_.session, sends_.id);
    auto of_receiver = broker().ExportDirectChannel(receives_.session, receives_.id);
    ASSERT_TRUE(of_sender.ok() && of_receiver.ok()) << of_sender.status().ToString();
    constexpr int kBoth = PROT_READ | PROT_WRITE;
    sent_ = std::make_unique<Mapped>(of_sender->files[0], direct_channel::BytesOfProducerPage(kSlots), kBoth);
    taken_ = std::make_unique<Mapped>(of_receiver->files[0], sizeof(direct_channel::ConsumerPage), kBoth);
    control_ = std::make_unique<Mapped>(of_sender->files[direct_channel::kControl], 4096, PROT_READ);
    consumer_doorbell_ = std::move(of_receiver->files[direct_channel::kDoorbell]);
    of_sender->files.clear();
    of_receiver->files.clear();
    ASSERT_TRUE(broker().DirectChannelMapped(sends_.session, sends_.id, control().number).ok());
    ASSERT_TRUE(broker().DirectChannelMapped(receives_.session, receives_.id, control().number).ok());
    ASSERT_EQ(control().opened, 1u);
  }
  const direct_channel::ControlBlock& control() const { return control_->as<direct_channel::ControlBlock>(); }
  void SendDirect() {
    direct_channel::Header header;
    header.arena = sends_.arena.arena;
    header.generation = sends_.arena.generation;
    header.offset = sends_.sent++ * 256;
    header.size = 256;
    header.bit = sends_.sent;
    header.time_ns = 1;
    direct_channel::WriteEntry(sent_->as<direct_channel::ProducerPage>(), kSlots, header, "described");
  }
  void TakeDirect() { direct_channel::TakeEntry(taken_->as<direct_channel::ConsumerPage>()); }
  // As the service does it. Dies after `most` entries; with one more, before the ends learn of it.
  static constexpr uint64_t kAll = UINT64_MAX;
  void Revoke(const std::shared_ptr<const DirectChannelRecord>& of, uint64_t most = kAll) {
    uint64_t published = 0;
    of->pages->Revoke(
        [&](const direct_channel::Entry& entry, uint64_t number) {
          if (published++ == most) throw Killed();
          PublishCall call;
          call.ns = of->ns;
          call.arena = ArenaId{direct_channel::HeaderOf(entry).arena};
          call.arena_generation = direct_channel::HeaderOf(entry).generation;
          call.offset = direct_channel::HeaderOf(entry).offset;
          call.size = direct_channel::HeaderOf(entry).size;
          call.channel = of->sending;
          call.from_direct = true;
          call.entry = number;
          const auto sent = broker().Publish(of->sender, call);
          EXPECT_TRUE(sent.ok()) << sent.status().ToString();
          return sent.ok();
        },
        [&](bool complete, uint64_t taken) {
          if (published == most) throw Killed();
          broker().DirectChannelEnded(*of, complete, taken);
          if (most != kAll) throw Killed();
        });
  }
  // Kills the broker and does what the service does at the start.
  void Restart() {
    const Recovered recovered = KillAndRecover();
    for (const auto& each : recovered.revoking) Revoke(each);
    for (const SessionId session : recovered.gone) EndSession(session);
  }
  void EndSession(SessionId session) {
    Die(session);
    for (const auto& each : broker_->DirectChannelsOf(session)) Revoke(each);
    broker_->EndSession(session);
  }

  End sends_;
  End receives_;
  std::unique_ptr<Mapped> sent_;
  std::unique_ptr<Mapped> taken_;
  std::unique_ptr<Mapped> control_;
  UniqueFd consumer_doorbell_;
};

}  // namespace arraybridge::daemon
