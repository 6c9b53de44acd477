// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/reader.h"

#include <cstdlib>
#include <optional>
#include <sstream>

#include <arraybridge/broker.h>
#include <arraybridge/device.h>

#include "client/memory/cuda/cuda_devices.h"
#include "tests/bench/support.h"
#include "tests/gpu/experiments/message.h"

namespace arraybridge::bench {
namespace {

using experiments::Receive;
using experiments::Send;

constexpr int kWriter = 3;

class Reader {
 public:
  explicit Reader(std::string driver) : driver_(std::move(driver)) {}

  // Returns "0 <value>", or "1 <reason>".
  std::string Do(const std::string& command) {
    std::istringstream words(command);
    std::string verb;
    std::string name;
    uint64_t number = 0;
    words >> verb >> name >> number;
    const double begun = NowMicroseconds();
    Status done = Ok();
    if (verb == "connect") done = Connect(name);
    if (verb == "context") done = Context();
    if (verb == "get") done = Get(name);
    if (verb == "order") done = GetInOrder(name);
    if (verb == "fetch") done = Fetch(name, number);
    if (verb == "warm") return Warm(name, static_cast<int>(number));
    if (!done.ok()) return "1 " + done.ToString();
    return "0 " + std::to_string(NowMicroseconds() - begun);
  }

 private:
  Status Connect(const std::string& address) {
    broker_.emplace(Broker::Options{.address = address, .cuda_driver = driver_});
    return broker_->GetStats().status();
  }
  Status Context() {
    auto devices = CudaDevices::OfThisProcess(driver_);
    if (!devices.ok()) return devices.status();
    devices_ = *devices;
    const auto inside = devices_->Enter(0);
    return inside.ok() ? Ok() : inside.status();
  }
  Status Get(const std::string& name) {
    auto acquired = broker_->Acquire({.name = name});
    if (!acquired.ok()) return acquired.status();
    kept_ = *std::move(acquired);
    return Ok();
  }
  // Orders the next work of this process's stream after the bytes are complete.
  Status GetInOrder(const std::string& name) {
    AB_RETURN_IF_ERROR(Get(name));
    const auto inside = devices_->Enter(0);
    if (!inside.ok()) return inside.status();
    const auto stream = devices_->OwnStream(0);
    if (!stream.ok()) return stream.status();
    return OrderAfterProducer(kept_->views[0], reinterpret_cast<uintptr_t>(*stream));
  }
  std::string Warm(const std::string& name, int rounds) {
    const Status first = Get(name);
    if (!first.ok()) return "1 " + first.ToString();
    const auto median = Interleaved(rounds, 10, {[&] {
                                      if (!broker_->Acquire({.name = name}).ok()) Fail("acquire of " + name);
                                    }});
    return "0 " + std::to_string(median[0]);
  }
  Status Fetch(const std::string& name, uint64_t bytes) {
    const auto inside = devices_->Enter(0);
    if (!inside.ok()) return inside.status();
    const cuda::Driver& driver = devices_->driver();
    if (room_ < bytes) {
      if (own_ != 0) driver.MemFree(own_);
      AB_RETURN_IF_ERROR(driver.Check(driver.MemAlloc(&own_, bytes), "cuMemAlloc", bytes));
      room_ = bytes;
    }
    auto acquired = broker_->Acquire({.name = name});
    if (!acquired.ok()) return acquired.status();
    const auto stream = devices_->OwnStream(0);
    if (!stream.ok()) return stream.status();
    const void* const from = acquired->views[0].data;
    AB_RETURN_IF_ERROR(driver.Check(driver.MemcpyHtoDAsync(own_, from, bytes, *stream), "cuMemcpyHtoDAsync"));
    return driver.Check(driver.StreamSynchronize(*stream), "cuStreamSynchronize");
  }

  const std::string driver_;
  const CudaDevices* devices_ = nullptr;
  cuda::CUdeviceptr own_ = 0;
  uint64_t room_ = 0;
  std::optional<Broker> broker_;
  std::optional<Acquired> kept_;
};

}  // namespace

int RunReader(const std::string& driver) {
  Reader reader(driver);
  while (const auto message = Receive(kWriter)) {
    if (!Send(kWriter, reader.Do(message->text))) break;
  }
  std::_Exit(0);
}

}  // namespace arraybridge::bench
