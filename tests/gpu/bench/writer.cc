// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/bench/writer.h"

#include <chrono>
#include <cstdlib>
#include <memory>

#include <arraybridge/broker.h>

#include "client/memory/cuda/cuda_devices.h"
#include "tests/bench/support.h"
#include "tests/gpu/experiments/peer.h"

namespace arraybridge::bench {
namespace {

using experiments::Answer;
using experiments::Peer;

constexpr auto kPatience = std::chrono::seconds(300);  // for all sizes

void Must(const Status& status, const std::string& what) {
  if (!status.ok()) Fail(what + ": " + status.ToString());
}

// The reader's answer, in microseconds.
double Must(const Answer& answer, const std::string& what) {
  if (!answer.ok()) Fail(what + ": " + answer.ToString());
  return std::atof(answer.value.c_str());
}

void Figure(const std::string& id, uint64_t bytes, double us) {
  Print(id, {{"bytes", static_cast<double>(bytes)}, {"us", us}});
}

class Writer {
 public:
  explicit Writer(const GpuWork& work)
      : work_(work), broker_({.address = work.address, .cuda_driver = work.driver}), devices_(Found(work.driver)) {}

  std::unique_ptr<Peer> Reader() const {
    auto reader = std::make_unique<Peer>(
        "reader", experiments::PeerOptions{.experiment = "bench", .driver = work_.driver},
        std::chrono::steady_clock::now() + kPatience, [](const std::string& late) { Fail(late); });
    Must(reader->Do("connect " + work_.address), "the reader connects");
    Must(reader->Do("context"), "the reader's context");
    return reader;
  }

  void Measure(Peer& reader, uint64_t bytes) {
    const auto inside = devices_.Enter(0);
    if (!inside.ok()) Fail(inside.status().ToString());
    const cuda::Driver& driver = devices_.driver();
    cuda::CUdeviceptr from = 0;
    cuda::CUdeviceptr to = 0;
    Must(driver.Check(driver.MemAlloc(&from, bytes), "cuMemAlloc", bytes), "source");
    Must(driver.Check(driver.MemAlloc(&to, bytes), "cuMemAlloc", bytes), "target");
    const auto view = Describe(reinterpret_cast<void*>(from), {1, 8, 1}, {static_cast<int64_t>(bytes)}, {},
                               {kDeviceCuda, 0, {}}, false, nullptr);
    Must(view.status(), "view");
    const auto stream = devices_.OwnStream(0);
    Must(stream.status(), "stream");
    const auto floor = [&] {
      Must(driver.Check(driver.MemcpyDtoDAsync(to, from, bytes, *stream), "cuMemcpyDtoDAsync"), "floor");
      Must(driver.Check(driver.StreamSynchronize(*stream), "cuStreamSynchronize"), "floor");
    };
    const auto put = [&] { Put(*view, "frame", {}); };
    for (int i = 0; i < 3; ++i) put();  // arenas exist, and the reader has mapped them
    MeasureOpening(bytes);
    const auto hand_off = [&] {
      put();
      Must(reader.Do("get frame"), "get");
    };
    // The stream is the producer's own, so neither side waits on the host: the reader's stream waits for the copy.
    View queued = *view;
    queued.stream = reinterpret_cast<uintptr_t>(*stream);
    queued.stream_is_producers = true;
    const auto put_event = [&] { Put(queued, "frame", {}); };
    const auto hand_off_event = [&] {
      put_event();
      Must(reader.Do("order frame"), "get in order");
    };
    for (int i = 0; i < 3; ++i) hand_off(), hand_off_event();
    const auto medians = Interleaved(work_.rounds, 1, {floor, put, hand_off, put_event, hand_off_event});
    Figure("floor_d2d", bytes, medians[0]);
    Figure("put_d2d", bytes, medians[1]);
    Figure("hand_off_sync", bytes, medians[2]);
    Figure("put_event", bytes, medians[3]);
    Figure("hand_off_event", bytes, medians[4]);
    Must(broker_.Flush(), "flush");
    Figure("get_warm", bytes, Must(reader.Do("warm frame " + std::to_string(work_.rounds)), "warm"));
    if (bytes <= work_.host_bytes_max) {
      const std::string fetch = "fetch host " + std::to_string(bytes);
      const auto through_host = [&] {
        Put(*view, "host", Device{});
        Must(reader.Do(fetch), "fetch");
      };
      for (int i = 0; i < 2; ++i) through_host();
      Figure("host_fallback", bytes, Interleaved(work_.rounds, 1, {through_host})[0]);
      Must(broker_.Withdraw({.name = "host"}), "withdraw");
    }
    Must(broker_.Withdraw({.name = "frame"}), "withdraw");
    Must(broker_.Flush(), "flush");
    driver.MemFree(from);
    driver.MemFree(to);
  }

 private:
  static const CudaDevices& Found(const std::string& driver) {
    const auto devices = CudaDevices::OfThisProcess(driver);
    Must(devices.status(), "CUDA");
    return **devices;
  }
  void Put(const View& view, const std::string& name, const std::optional<Device>& device) {
    const auto placed = broker_.Place({&view, 1}, {.own = false, .device = device, .publish = {}});
    Must(placed.status(), "place");
    Must(broker_.Publish(*placed, {.name = name, .replace = true}).status(), "publish");
  }
  // The first array of a new process that has its context.
  void MeasureOpening(uint64_t bytes) {
    std::vector<double> times(3);
    for (double& time : times) time = Must(Reader()->Do("get frame"), "cold get");
    Figure("get_cold", bytes, Median(times));
  }

  const GpuWork work_;
  Broker broker_;
  const CudaDevices& devices_;
};

}  // namespace

void MeasureGpu(const GpuWork& work) {
  Writer writer(work);
  const auto reader = writer.Reader();
  for (const uint64_t bytes : work.sizes) writer.Measure(*reader, bytes);
}

}  // namespace arraybridge::bench
