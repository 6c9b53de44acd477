// Channels whose broker is killed are continued by the next one: each share is received once and in order, ends stay
// open, and each end is told once of what happened to its peers.
#include <gmock/gmock.h>
#include <sys/mman.h>

#include <map>
#include <random>
#include <set>

#include "daemon/memory/host/host_backend.h"
#include "tests/unit/boundary/direct_entries.h"
#include "tests/unit/broker/broker_fixture.h"
#include "tests/unit/broker/fake_store.h"

namespace arraybridge {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr auto kSender = ChannelRole::kSender;
constexpr auto kReceiver = ChannelRole::kReceiver;
constexpr uint64_t kSharesInArena = 256;

struct Killed {};

// The lives of a broker. Each one has a copy of the store, so that its end takes nothing out of the store of the next
// one.
class RecoveryChannelTest : public testing::Test {
 protected:
  RecoveryChannelTest() { Restart(); }

  // Kills the broker. The clients of the sessions in `alive_` live on; the others' sessions end, as the service does
  // it.
  Recovered Restart() {
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
    for (const SessionId session : recovered->gone) broker_->EndSession(session);
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
  End OpenEnd(SessionId session, ChannelRole role, ChannelTerms terms = {}, uint64_t request = 0) {
    const auto opened = broker().OpenChannel(session, {"default", "frames", role, terms, request});
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
    EXPECT_EQ(broker().Release(end.session, {&lease, 1}, {}, {})->released, 1u);
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

TEST_F(RecoveryChannelTest, AQueueGoesOnWithTheNextShare) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(Next(receives), 1u);
  ASSERT_TRUE(Receive(receives).ok());  // and keeps it
  const Got second = got_;
  Restart();
  ASSERT_TRUE(Receive(receives).ok());
  EXPECT_EQ(got_.facts->sent->sequence, 3u);
  EXPECT_EQ(got_.facts->sent->stream, 1u);
  EXPECT_EQ(got_.facts->sent->process_id, 4711u);
  EXPECT_EQ(*got_.facts->sent->client, "test");
  EXPECT_GT(got_.facts->sent->time_ns, 0u);
  EXPECT_EQ(got_.facts->name, "frames");
  EXPECT_EQ(got_.facts->description, "what it is");
  EXPECT_EQ(got_.offset, 512u);
  EXPECT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(receives), ElementsAre(4, 5, 6));
  got_ = second;
  Release(receives);
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ASequenceIsUsedOnceThoughAllSharesAreGone) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (uint64_t i = 1; i < 10; ++i) {
    ASSERT_TRUE(Send(sends).ok());
    EXPECT_EQ(Next(receives), i);
    Restart();
  }
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AReceivedShareWhoseAnswerIsLostIsTheNextOneAgain) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  ASSERT_TRUE(Receive(receives, 77).ok());
  for (int life = 0; life < 3; ++life) {
    Restart();
    std::vector<ChannelId> put_back;
    EXPECT_FALSE(broker().TakeBackUnanswered(receives.session, 77, &put_back).has_value());
    EXPECT_EQ(put_back.size(), 1u);
    ASSERT_TRUE(Receive(receives, 77).ok());
    EXPECT_EQ(got_.facts->sent->sequence, 1u);
  }
  broker().Resumed(receives.session);
  Release(receives);
  Restart();
  EXPECT_THAT(All(receives), ElementsAre(2, 3));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AShareIsSentOnceThoughItsRequestIsRepeated) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  ASSERT_TRUE(Send(sends, 50).ok());
  ASSERT_TRUE(Send(sends, 51).ok());
  EXPECT_EQ(Next(receives), 1u);  // it is gone
  Restart();
  EXPECT_TRUE(broker().TakeBackUnanswered(sends.session, 50).has_value());
  EXPECT_NE(broker().TakeBackUnanswered(sends.session, 51)->share, ShareId{});
  EXPECT_FALSE(broker().TakeBackUnanswered(sends.session, 52).has_value());
  EXPECT_THAT(All(receives), ElementsAre(2));
  Restart();
  EXPECT_TRUE(broker().TakeBackUnanswered(sends.session, 51).has_value());
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ARepeatedOpenGetsTheEndThatItOpened) {
  auto sends = OpenEnd(Open(), kSender, {}, 9);
  Restart();
  const auto again = broker().OpenChannel(sends.session, {"default", "frames", kSender, {}, 9});
  EXPECT_EQ(again->end, sends.id);
  EXPECT_NE(broker().OpenChannel(sends.session, {"default", "frames", kSender, {}, 10})->end, sends.id);
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AReceiverThatDiedMeanwhileIsToldToTheSender) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(Next(receives), 1u);
  ASSERT_TRUE(Receive(receives).ok());  // it is lost with its receiver
  Die(receives.session);
  EXPECT_THAT(Restart().gone, ElementsAre(receives.session));
  const Status told = Send(sends);
  EXPECT_EQ(told.reason(), "RECEIVER_DIED");
  EXPECT_THAT(told.metadata(), testing::Contains(std::pair<std::string, std::string>("shares", "2")));
  EXPECT_THAT(told.metadata(), testing::Contains(std::pair<std::string, std::string>("process_id", "4711")));
  EXPECT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_TRUE(Send(sends).ok()) << "told once";
  auto next = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(next), ElementsAre(3, 4, 5));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ASenderThatDiedMeanwhileIsToldAfterItsShares) {
  auto sends = OpenEnd(Open(), kSender);
  auto receives = OpenEnd(Open(), kReceiver);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Send(sends).ok());
  Die(sends.session);
  Restart();
  EXPECT_EQ(Next(receives), 1u);
  Restart();
  EXPECT_EQ(Next(receives), 2u);
  EXPECT_EQ(Receive(receives).reason(), "SENDER_DIED");
  Restart();
  EXPECT_EQ(Receive(receives).reason(), "CHANNEL_EMPTY");
  auto next = OpenEnd(Open(), kSender);
  ASSERT_TRUE(Send(next).ok());
  ASSERT_TRUE(Receive(receives).ok());
  EXPECT_EQ(got_.facts->sent->sequence, 3u);
  EXPECT_EQ(got_.facts->sent->stream, 2u);
  Release(receives);
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, TheEndOfAStreamIsToldOnceAndAwaitsItsReceiver) {
  auto sends = OpenEnd(Open(), kSender);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(Send(sends).ok());
  Close(sends);
  Restart();  // the channel has no end, and lingers
  auto receives = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(receives), ElementsAre(1, 2));
  Restart();
  EXPECT_EQ(Receive(receives).reason(), "CHANNEL_EMPTY") << "told by the last call";
  EXPECT_EQ(receives.seen, 1u);
  receives.seen = 0;
  EXPECT_EQ(Receive(receives).reason(), "CHANNEL_ENDED") << "a repeated request gets the same notice";
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AQueueThatWasDrainedStaysEmpty) {
  auto sends = OpenEnd(Open(), kSender);
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(broker().DrainChannel(sends.session, "default", "frames", false)->shares, 12u);
  ASSERT_TRUE(Send(sends).ok());
  Restart();  // before a sweep has settled the last ones
  auto receives = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(receives), ElementsAre(13));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, EachReceiverOfABroadcastKeepsItsPosition) {
  const ChannelTerms terms{.capacity = 8, .mode = ChannelMode::kBroadcast, .replay = 2};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto fast = OpenEnd(Open(), kReceiver, terms);
  auto slow = OpenEnd(Open(), kReceiver, terms);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Send(sends).ok());
  for (uint64_t i = 1; i <= 4; ++i) EXPECT_EQ(Next(fast), i);
  EXPECT_EQ(Next(slow), 1u);
  Restart();
  EXPECT_EQ(Next(slow), 2u);
  ASSERT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(fast), ElementsAre(5, 6));
  EXPECT_THAT(All(slow), ElementsAre(3, 4, 5, 6));
  Restart();
  auto late = OpenEnd(Open(), kReceiver, terms);
  EXPECT_THAT(All(late), ElementsAre(5, 6));
  EXPECT_EQ(broker().OpenChannel(late.session, {"default", "frames", kReceiver, {.capacity = 9}}).status().reason(),
            "CHANNEL_CAPACITY");
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, AnUnansweredReceiveOfABroadcastIsRepeated) {
  const ChannelTerms terms{.capacity = 8, .mode = ChannelMode::kBroadcast};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto only = OpenEnd(Open(), kReceiver, terms);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  ASSERT_TRUE(Receive(only, 5).ok());
  Restart();
  broker().TakeBackUnanswered(only.session, 5);
  Restart();
  EXPECT_THAT(All(only), ElementsAre(1, 2, 3));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, ASlowReceiverMissesTheSameShares) {
  const ChannelTerms terms{.capacity = 2, .mode = ChannelMode::kBroadcast, .drop_oldest = true};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto slow = OpenEnd(Open(), kReceiver, terms);
  ASSERT_TRUE(Send(sends).ok());
  EXPECT_EQ(Next(slow), 1u);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(slow), ElementsAre(4, 5));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryChannelTest, TheNewestShareStays) {
  const ChannelTerms terms{.mode = ChannelMode::kLatest};
  auto sends = OpenEnd(Open(), kSender, terms);
  auto receives = OpenEnd(Open(), kReceiver, terms);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Send(sends).ok());
  Restart();
  EXPECT_THAT(All(receives), ElementsAre(3));
  auto late = OpenEnd(Open(), kReceiver, terms);
  Restart();
  EXPECT_THAT(All(late), ElementsAre(3));
  EXPECT_THAT(All(receives), IsEmpty());
  ExpectNothingIsLeft();
}

// Any order of sends, receives, lost answers, held shares and kills: two receivers get each share once, each one in
// order.
TEST_F(RecoveryChannelTest, AnyOrderOfKillsLosesAndDoublesNothing) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    auto sends = OpenEnd(Open(), kSender);
    std::vector<End> receivers;
    receivers.push_back(OpenEnd(Open(), kReceiver));
    receivers.push_back(OpenEnd(Open(), kReceiver));
    std::multiset<uint64_t> got;
    std::map<uint64_t, Got> held;
    uint64_t request = 0;
    for (int step = 0; step < 300; ++step) {
      End& to = receivers[random() % 2];
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          static_cast<void>(Send(sends, ++request));
          break;
        case 3:
        case 4:
          if (const uint64_t next = Next(to)) got.insert(next);
          break;
        case 5:
          if (Receive(to, ++request).ok()) {  // its answer is lost
            Restart();
            broker().TakeBackUnanswered(to.session, request);
            broker().Resumed(to.session);
          }
          break;
        case 6:
          if (held.empty() && Receive(to).ok()) {
            got.insert(got_.facts->sent->sequence);
            held.emplace(Number(to.session), got_);
          }
          break;
        default:
          Restart();
          for (const auto& [session, lease] : held) {
            const uint64_t number = Number(lease.lease);
            EXPECT_EQ(broker().Release(SessionId{session}, {&number, 1}, {}, {})->released, 1u);
          }
          held.clear();
      }
    }
    for (End& each : receivers) {
      for (const uint64_t next : All(each)) got.insert(next);
    }
    uint64_t expected = 0;
    for (const uint64_t sequence : got) ASSERT_EQ(sequence, ++expected) << "seed " << seed;
    EXPECT_EQ(expected, broker().ListChannels(sends.session, {.page_size = 10})->rows.at(0).totals.sent);
    ExpectNothingIsLeft();
  }
}

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
    auto passed = store_->PassOn();
    std::vector<LiveClient> clients;
    for (const SessionId session : alive_) clients.push_back({session, {.uid = 1000}});
    auto fresh = std::make_unique<FakeStore>();
    for (const StoredDescriptor& each : passed) {
      const DescriptorStore::Entry entry{each.name, each.fd.get()};
      EXPECT_TRUE(fresh->Store({&entry, 1}).ok());
    }
    broker_.reset();
    store_ = std::move(fresh);
    backend_ = MakeHostBackend({.capacity_bytes = 1024 * kPage});
    broker_ = std::make_unique<Broker>(config_, std::vector<MemoryBackend*>{backend_.get()});
    std::ranges::reverse(passed);
    const auto recovered = broker_->Recover(*store_, std::move(passed), clients);
    ASSERT_TRUE(recovered.ok()) << recovered.status().ToString();
    for (const auto& each : recovered->revoking) Revoke(each);
    for (const SessionId session : recovered->gone) {
      for (const auto& each : broker_->DirectChannelsOf(session)) Revoke(each);
      broker_->EndSession(session);
    }
  }

  End sends_;
  End receives_;
  std::unique_ptr<Mapped> sent_;
  std::unique_ptr<Mapped> taken_;
  std::unique_ptr<Mapped> control_;
  UniqueFd consumer_doorbell_;
};

TEST_F(RecoveryDirectTest, GoesOnAndIsRevokedByTheNextBroker) {
  ASSERT_TRUE(Send(sends_).ok());
  EXPECT_EQ(Next(receives_), 1u);
  Connect();
  for (int i = 0; i < 2; ++i) SendDirect();
  TakeDirect();
  Restart();
  EXPECT_EQ(control().revoked, direct_channel::kStands);
  SendDirect();
  EXPECT_EQ(Receive(receives_).reason(), "CHANNEL_IS_DIRECT");
  EXPECT_EQ(broker().Publish(sends_.session, Call(sends_)).status().reason(), "CHANNEL_IS_DIRECT");
  --sends_.sent;
  Restart();
  Revoke(broker().DirectChannelOf(sends_.session, sends_.id));
  EXPECT_EQ(control().revoked, direct_channel::kRevoked);
  EXPECT_EQ(control().counted, 3u);
  EXPECT_EQ(control().taken, 1u);
  char byte = 0;
  EXPECT_EQ(::read(consumer_doorbell_.get(), &byte, 1), 1);
  ASSERT_TRUE(Send(sends_).ok());
  EXPECT_THAT(All(receives_), ElementsAre(3, 4, 5));
  Restart();
  const uint64_t number = control().number;
  broker().ForgetDirectChannels(sends_.session, {&number, 1});
  EXPECT_FALSE(store_->Has("d1"));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, AShareBetweenItsEntriesKeepsItsPlace) {
  Connect();
  SendDirect();
  TakeDirect();
  ASSERT_TRUE(Send(sends_).ok());
  EXPECT_EQ(control().calls, 1u);
  Restart();
  EXPECT_EQ(control().calls, 1u);
  SendDirect();
  EXPECT_EQ(Next(receives_), 2u);
  EXPECT_EQ(Receive(receives_).reason(), "CHANNEL_IS_DIRECT");
  Revoke(broker().DirectChannelOf(sends_.session, sends_.id));
  EXPECT_EQ(Next(receives_), 3u);
  ExpectNothingIsLeft();
}

// The receiver moves on after the counts were decided, and the first entries are published: none comes twice.
TEST_F(RecoveryDirectTest, AnEndThatWasBegunIsFinished) {
  for (uint64_t most = 0; most <= 4; ++most) {
    Connect();
    for (int i = 0; i < 4; ++i) SendDirect();
    TakeDirect();
    EXPECT_THROW(Revoke(broker().DirectChannelOf(sends_.session, sends_.id), most), Killed);
    TakeDirect();
    Restart();
    EXPECT_EQ(control().revoked, direct_channel::kRevoked);
    EXPECT_EQ(control().taken, 1u);
    EXPECT_EQ(All(receives_).size(), 3u) << most;
    const uint64_t number = control().number;
    broker().ForgetDirectChannels(sends_.session, {&number, 1});
  }
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, OneThatIsNotMappedYetEnds) {
  ASSERT_TRUE(broker().ExportDirectChannel(sends_.session, sends_.id).ok());
  Restart();
  EXPECT_EQ(broker().DirectChannelOf(sends_.session, sends_.id), nullptr);
  EXPECT_FALSE(store_->Has("d1"));
  Connect();
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, TheEntriesOfADeadSenderAreReceived) {
  Connect();
  for (int i = 0; i < 3; ++i) SendDirect();
  TakeDirect();
  Die(sends_.session);
  Restart();
  EXPECT_EQ(Next(receives_), 2u);
  EXPECT_EQ(Next(receives_), 3u);
  const Status told = Receive(receives_);
  EXPECT_EQ(told.reason(), "SENDER_DIED");
  EXPECT_THAT(told.metadata(), testing::Contains(std::pair<std::string, std::string>("shares", "3")));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, TheEntriesOfADeadReceiverWaitForTheNextOne) {
  Connect();
  for (int i = 0; i < 3; ++i) SendDirect();
  TakeDirect();
  Die(receives_.session);
  Restart();
  EXPECT_EQ(Send(sends_).reason(), "RECEIVER_DIED");
  auto next = OpenEnd(Open(), kReceiver);
  EXPECT_THAT(All(next), ElementsAre(2, 3));
  ExpectNothingIsLeft();
}

TEST_F(RecoveryDirectTest, AForwardOfAnEntryKeepsItsRange) {
  Connect();
  SendDirect();
  TakeDirect();
  PublishCall forward;
  forward.ns = "default";
  forward.name = "kept";
  forward.arena = ArenaId{sends_.arena.arena};
  forward.arena_generation = sends_.arena.generation;
  forward.size = 256;
  forward.source = ShareSource{.direct_channel = control().number, .bit = 1};
  ASSERT_TRUE(broker().Publish(receives_.session, forward).ok());
  EXPECT_EQ(control().kept[0], 2u);
  Restart();
  EXPECT_EQ(control().kept[0], 2u);
  const ShareKey key{.name = "kept"};
  const auto acquired = broker().Acquire(receives_.session, "default", {&key, 1}, false);
  ASSERT_TRUE(acquired.ok());
  EXPECT_TRUE(broker().Withdraw(receives_.session, "default", {&key, 1}).ok());
  EXPECT_EQ(control().kept[0], 2u) << "it is leased";
  Restart();
  EXPECT_EQ(control().kept[0], 2u);
  const uint64_t lease = Number(acquired->shares.at(0).lease);
  EXPECT_EQ(broker().Release(receives_.session, {&lease, 1}, {}, {})->released, 1u);
  EXPECT_EQ(control().kept[0], 0u);
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace arraybridge
