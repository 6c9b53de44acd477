// A Channel::End is what the copies of a Channel share: an open end, on the session on which it was opened.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <string>

#include <arraybridge/broker.h>
#include <arraybridge/channel.h>

#include "client/codec.h"
#include "client/direct_pages.h"
#include "client/direct_producer.h"
#include "client/session.h"
#include "client/direct_consumer.h"
#include "proto/boundary/mutex.h"

namespace arraybridge {

// Thread-safe.
class Channel::End : public std::enable_shared_from_this<End> {
 public:
  End(std::shared_ptr<Session> session, const Broker::Options& options, std::string name, Role role,
      const codec::OpenedChannel& opened);
  // Abandons it, unless it was closed.
  ~End();
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  const std::string& name() const { return name_; }
  uint64_t capacity() const { return capacity_; }

  Status Send(const Placement& placement, const SendOptions& options);
  Result<Acquired> Receive(const ReceiveOptions& options);
  Status Close(bool complete);

  // Abandons an end that no Channel has. `deadline`: as for Lifeline::Post.
  static void Forget(Session& session, uint64_t channel, std::optional<Deadline> deadline);

 private:
  using Until = std::optional<Deadline>;

  bool is_inherited() const;
  Status CheckHere() const;
  Status Explain(Status failed) const;
  std::chrono::milliseconds Slice(const Until& until) const;
  Result<Answer> Ask(std::chrono::milliseconds slice);

  // Without calls (channel_direct.cc).
  // Something is about to go by a call. Asks for a direct channel, once it is worth it; waits for nothing.
  void PrefetchDirect() AB_EXCLUDES(mutex_);
  void HandleDirect(codec::BrowsePart part, Result<Answer> answer) AB_EXCLUDES(mutex_);
  void MapDirect() AB_REQUIRES(mutex_);
  // It has ended, or is to be used no more.
  void LeaveDirect(bool tell) AB_EXCLUDES(mutex_);
  std::shared_ptr<DirectProducer> direct_producer() AB_EXCLUDES(mutex_);
  std::shared_ptr<DirectConsumer> direct_consumer() AB_EXCLUDES(mutex_);
  DirectWait WaitOf(const Until& until) const;
  // Nothing: it goes, or comes, by a call.
  std::optional<Status> SendDirect(const Placement& placement, const SendOptions& options, const Until& until);
  std::optional<Status> PutDirect(DirectProducer& direct, const Placement& placement, std::string_view description,
                                  const Until& until);
  std::optional<Result<Acquired>> ReceiveDirect(const ReceiveOptions& options, const Until& until);
  // The broker has nothing to receive by calls, of those that it had counted before.
  void CaughtUp(uint64_t counted) AB_EXCLUDES(mutex_);
  void CountReceived() AB_REQUIRES(mutex_);
  void Arrived(Result<Answer> answer);
  bool is_behind();
  std::optional<Answer> TakeKept();

  std::shared_ptr<Session> session_;
  const Broker::Options options_;
  const std::string name_;
  const Role role_;
  const uint64_t id_;
  const uint64_t capacity_;
  const uint64_t forks_;  // of the process in which it was opened
  std::atomic<bool> closed_{false};

  Mutex mutex_;
  uint64_t unanswered_ AB_GUARDED_BY(mutex_) = 0;  // requests whose caller has gone
  std::deque<Answer> kept_ AB_GUARDED_BY(mutex_);  // what came for them, in the order in which it was sent

  static constexpr uint64_t kAskMost = 256;
  uint64_t calls_ AB_GUARDED_BY(mutex_) = 0;     // since somebody asked for a direct channel
  uint64_t ask_with_ AB_GUARDED_BY(mutex_) = 1;  // which call is worth a question
  uint64_t pause_ AB_GUARDED_BY(mutex_) = 1;     // calls until the next one, doubling
  bool asked_ AB_GUARDED_BY(mutex_) = false;     // it is on its way, or there
  DirectPages::Files files_ AB_GUARDED_BY(mutex_);
  std::shared_ptr<DirectProducer> sent_ AB_GUARDED_BY(mutex_);
  std::shared_ptr<DirectConsumer> taken_ AB_GUARDED_BY(mutex_);
  uint64_t received_ AB_GUARDED_BY(mutex_) = 0;  // by calls
  bool revoke_ AB_GUARDED_BY(mutex_) = false;  // the broker is to end it
};

}  // namespace arraybridge
