// SPDX-License-Identifier: Apache-2.0
// A client's session whose broker opens it and then acts only on a test's command. For code that sends no requests.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/arenas/session_release.h"
#include "client/memory/host/host_mapper.h"
#include "client/session/session.h"
#include "proto/boundary/frame.h"

namespace arraybridge {

class QuietSession {
 public:
  QuietSession() {
    std::string folder = std::filesystem::temp_directory_path() / "fuzz-XXXXXX";
    AB_CHECK(::mkdtemp(folder.data()) != nullptr);
    const std::string path = folder + "/lifeline.sock";
    const UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    AB_CHECK(path.size() < sizeof name.sun_path);
    path.copy(name.sun_path, path.size());
    AB_CHECK(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0);
    AB_CHECK(::listen(listener.get(), 1) == 0);
    std::thread broker([&] { Open(listener); });
    std::vector<std::unique_ptr<MemoryMapper>> mappers;
    mappers.push_back(MakeHostMapper());
    const Session::Shared shared{.reclaimer = reclaimer_,
                                 .mappers = std::make_shared<MapperTable>(std::move(mappers)),
                                 .deferred_errors = deferred_errors_};
    auto opened = Session::Open({.address = folder, .spin = {}}, shared,
                                std::chrono::steady_clock::now() + std::chrono::seconds(60));
    broker.join();
    AB_CHECK(opened.ok());
    session_ = *std::move(opened);
    std::filesystem::remove_all(folder);
  }
  QuietSession(const QuietSession&) = delete;
  QuietSession& operator=(const QuietSession&) = delete;

  Session& operator*() { return *session_; }
  Session* operator->() { return session_.get(); }
  DeferredErrors& deferred_errors() { return *deferred_errors_; }
  // Receives the session's next message without waiting. False: there is none.
  bool Hears(Frame* frame) { return ReceiveFrame(broker_.get(), buffer_, false, frame) == ReceiveOutcome::kFrame; }
  // Sends the broker's answer, and lets the session read it.
  void Answer(const FrameHeader& asked, Code code, int descriptor = -1) {
    const FrameHeader header{asked.verb, 0, static_cast<uint32_t>(code), asked.request};
    AB_CHECK(SendFrame(broker_.get(), header, {}, descriptor, true) == SendOutcome::kSent);
    session_->lifeline().ReadArrived();
  }
  void Answer(const FrameHeader& asked, const std::vector<UniqueFd>& descriptors) {
    std::vector<int> numbers;
    for (const UniqueFd& each : descriptors) numbers.push_back(each.get());
    const FrameHeader header{asked.verb, 0, 0, asked.request};
    AB_CHECK(SendFrame(broker_.get(), header, {}, numbers, true) == SendOutcome::kSent);
    session_->lifeline().ReadArrived();
  }
  void HangUp() { broker_.reset(); }
  // Gives back the dropped objects, and reads the session's messages about them.
  void Settle() {
    reclaimer_->Collect();
    Frame frame;
    while (Hears(&frame)) continue;
  }

 private:
  void Open(const UniqueFd& listener) {
    broker_.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Frame hello;
    AB_CHECK(ReceiveFrame(broker_.get(), buffer_, true, &hello) == ReceiveOutcome::kFrame);
    // An OpenSessionResponse: session 1, protocol 1.
    const FrameHeader header{hello.header.verb, 0, 0, hello.header.request};
    AB_CHECK(SendFrame(broker_.get(), header, "\x08\x01\x18\x01", -1, true) == SendOutcome::kSent);
  }

  std::vector<std::byte> buffer_ = std::vector<std::byte>(kFrameBytesMax);
  const std::shared_ptr<Reclaimer> reclaimer_ = Reclaimer::Make(ReclaimSessionReleases);
  const std::shared_ptr<DeferredErrors> deferred_errors_ = std::make_shared<DeferredErrors>();
  UniqueFd broker_;
  std::shared_ptr<Session> session_;
};

}  // namespace arraybridge
