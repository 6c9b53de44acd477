// SPDX-License-Identifier: Apache-2.0
// A server or a caller of a service, in C++, which the tests of Python run beside servers and callers in Python.
//
//   service_program ADDRESS NAMESPACE serve NAME KIND FILE       a line to FILE for each request that it begins
//   service_program ADDRESS NAMESPACE reorder NAME WINDOW        results of channel NAME; a line for each one or error
//   service_program ADDRESS NAMESPACE call NAME FIRST LAST MS    one call after the other; a line for each outcome
//   service_program ADDRESS NAMESPACE stream NAME NUMBER TAKEN MS  one answer of several items, of which it takes so
//   many service_program ADDRESS NAMESPACE submit NAME FIRST LAST MS  all of them at once
//
// Requests and answers are {"n": number, "x": array}, as in tests/python/services/server.py.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <arraybridge/patterns/batch.h>
#include <arraybridge/patterns/reorder.h>
#include <arraybridge/services/service.h>

namespace arraybridge {
namespace {

using std::chrono::milliseconds;
constexpr int64_t kElements = 4;

template <class... Parts>
void Tell(const Parts&... parts) {
  const std::string line = Concat(parts..., "\n");
  if (::write(STDOUT_FILENO, line.data(), line.size()) < 0) std::exit(2);
}

View ViewOf(std::vector<int64_t>& numbers) {
  return *Describe(numbers.data(), {0, 64, 1}, {static_cast<int64_t>(numbers.size())}, {}, {}, false, nullptr);
}

std::string StructureOf(int64_t number) { return Concat(R"({"d":[["n",{"v":)", number, R"(}],["x",0]]})"); }

int64_t NumberIn(const Acquired& request) {
  constexpr std::string_view kBefore = R"(["n",{"v":)";
  const std::string& structure = request.share->structure;
  return std::atoll(structure.c_str() + structure.find(kBefore) + kBefore.size());
}

int64_t SumOf(const View& view) {
  int64_t sum = 0;
  for (uint64_t i = 0; i < view.elements(); ++i) sum += static_cast<const int64_t*>(view.data)[i];
  return sum;
}

// As many items as the number says. "sequence" ends them; "hold-sequence" then holds the request.
bool Stream(const std::string& kind, int64_t number, ServiceRequest& request) {
  for (int64_t n = 0; n < number; ++n) {
    std::vector<int64_t> numbers(kElements, n);
    const View view = ViewOf(numbers);
    const auto sent = request.Stream({&view, 1}, StructureOf(n));
    if (!sent.ok()) return Tell(sent.status().ToString()), false;
    if (!*sent) return Tell("cancelled after ", n), true;
  }
  Tell("sent ", number);
  if (kind == "hold-sequence") std::this_thread::sleep_for(std::chrono::minutes(10));
  return request.End().ok();
}

// True: it was answered, or it is to be left without an answer.
bool Act(const std::string& kind, int64_t number, ServiceRequest& request) {
  if (kind == "fail") return request.Fail(Concat("number ", number, " is not for me")).ok();
  if (kind == "silent") return true;
  if (kind.ends_with("sequence")) return Stream(kind, number, request);
  if (kind == "hold" || kind == "retry-hold") {
    Tell("holds ", number);
    std::this_thread::sleep_for(std::chrono::minutes(10));
  }
  if (kind != "cancel") return false;
  Tell("holds ", number, " of ", request.caller().process_id);
  while (!request.cancelled()) std::this_thread::sleep_for(milliseconds(10));
  Tell("cancelled ", number);
  return false;
}

// Takes batches of at most four, and answers each from its end.
int ServeBatches(Service& service) {
  while (true) {
    auto batch = ReceiveBatch(service, {.most = 4, .within = milliseconds(600000)});
    if (!batch.ok()) return Tell(batch.status().ToString()), 1;
    Tell("batch ", batch->size());
    for (auto request = batch->rbegin(); request != batch->rend(); ++request) {
      if (!request->Reply(request->value().views, request->value().share->structure).ok()) return 1;
    }
  }
}

int Order(Broker& broker, const std::string& name, size_t window) {
  auto ordered = Reorder::Of(*broker.OpenChannel(name, Channel::Role::kReceiver), {.window = window});
  Tell("open ", ::getpid());
  while (true) {
    const auto next = ordered->Receive({});
    if (next.ok())
      Tell("result ", SumOf(next->views.at(0)));
    else
      Tell(next.status().reason(), " ", next.status().message());
    if (next.status().reason() == "CHANNEL_ENDED") return 0;
  }
}

int Serve(Broker& broker, const std::string& name, const std::string& kind, const char* file) {
  const int record = ::open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  auto service = Service::Open(broker, name, {.retry = kind.starts_with("retry")});
  if (!service.ok()) return Tell(service.status().ToString()), 1;
  Tell("open ", ::getpid());
  if (kind == "batches") return ServeBatches(*service);
  while (true) {
    auto request = service->Receive({});
    if (!request.ok()) return Tell(request.status().ToString()), 1;
    const int64_t number = NumberIn(request->value());
    const std::string line = Concat(number, " ", ::getpid(), "\n");
    if (::write(record, line.data(), line.size()) < 0) return 2;
    if (Act(kind, number, *request)) continue;
    const View& x = request->value().views.at(0);
    std::vector<int64_t> doubled;
    for (uint64_t i = 0; i < x.elements(); ++i) doubled.push_back(2 * static_cast<const int64_t*>(x.data)[i]);
    const View answer = ViewOf(doubled);
    const auto sent = request->Reply({&answer, 1}, StructureOf(number));
    if (!sent.ok()) return Tell(sent.status().ToString()), 1;
  }
}

void TellOutcome(int64_t number, const Result<Acquired>& answer) {
  if (answer.ok()) return Tell("answer ", number, " ", SumOf(answer->views.at(0)));
  Tell(answer.status().reason(), " ", number, " ", answer.status().message());
}

int Call(ServiceCaller& caller, int64_t first, int64_t last, milliseconds timeout, bool at_once) {
  std::vector<std::future<Result<Acquired>>> futures;
  std::vector<std::vector<int64_t>> arrays;
  for (int64_t number = first; number <= last; ++number) {
    arrays.emplace_back(kElements, number);
    const View view = ViewOf(arrays.back());
    const ServiceCaller::CallOptions options{.structure = StructureOf(number), .timeout = timeout};
    if (at_once) futures.push_back(caller.Submit({view}, options));
    if (!at_once) TellOutcome(number, caller.Call({&view, 1}, options));
  }
  for (auto& future : futures) TellOutcome(first++, future.get());
  return 0;
}

int Take(ServiceCaller& caller, int64_t number, int64_t most, milliseconds timeout) {
  std::vector<int64_t> numbers(kElements, number);
  auto answers = caller.Stream({ViewOf(numbers)}, {.structure = StructureOf(number), .timeout = timeout});
  for (int64_t taken = 0; taken < most; ++taken) {
    const auto item = answers.Next();
    if (!item.ok()) return Tell(item.status().reason(), " ", item.status().message()), 0;
    if (!*item) return Tell("end ", taken), 0;
    Tell("item ", NumberIn(**item), " ", SumOf((*item)->views.at(0)));
  }
  Tell("left");
  answers.Close();
  std::this_thread::sleep_for(std::chrono::seconds(2));
  return 0;
}

int Run(const std::vector<std::string>& words) {
  Broker broker({.address = words.at(0), .ns = words.at(1), .client = "in-c++"});
  const std::string& role = words.at(2);
  if (role == "reorder") return Order(broker, words.at(3), std::stoull(words.at(4)));
  if (role == "serve") return Serve(broker, words.at(3), words.at(4), words.at(5).c_str());
  auto caller = ServiceCaller::Open(broker, words.at(3));
  if (!caller.ok()) return Tell(caller.status().ToString()), 1;
  const milliseconds timeout(std::stoll(words.at(6)));
  if (role == "stream") return Take(*caller, std::stoll(words.at(4)), std::stoll(words.at(5)), timeout);
  return Call(*caller, std::stoll(words.at(4)), std::stoll(words.at(5)), timeout, role == "submit");
}

}  // namespace
}  // namespace arraybridge

int main(int count, char** words) { return arraybridge::Run({words + 1, words + count}); }
