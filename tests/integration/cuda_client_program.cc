// SPDX-License-Identifier: Apache-2.0
// A client process with arrays in GPU memory: `cuda_client_program <address> <driver>`. Each line of standard input is
// a command. The program answers each with one line: the result, "ok", or the error.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <dlfcn.h>

#include <arraybridge/broker.h>
#include <arraybridge/device.h>

#include "client/memory/cuda/cuda_devices.h"

namespace arraybridge {
namespace {

constexpr int64_t kBytes = 1 << 20;

const ArraySpec kSpec{.type = {1, 8, 1}, .dtype = "uint8", .shape = {kBytes}, .strides = {}};

const Device kFirstGpu{kDeviceCuda, 0, {}};

class Client {
 public:
  Client(const std::string& address, const std::string& driver, uint64_t arenas)
      : driver_path_(driver),
        broker_({.address = address,
                 .timeout = std::chrono::seconds(10),
                 .cuda_driver = driver,
                 .read_arenas_max = arenas}) {}

  std::string Do(const std::string& verb, const std::string& name, int value) {
    const auto byte = static_cast<uint8_t>(value);
    if (verb == "put") return Put(name, byte);
    if (verb == "put_from_stream") return PutFromStream(name, byte, true);
    if (verb == "put_unordered") return PutFromStream(name, byte, false);
    if (verb == "publish_in_place") return PublishInPlace(name, byte);
    if (verb == "put_later") return PutLater(name, byte);
    if (verb == "get_in_order") return GetInOrder(name);
    if (verb == "get_in_order_leased") return ReadInOrder(arrays_.at(name));
    if (verb == "queries") return std::to_string(Count("cuEventQuery"));
    if (verb == "get") return Get(name);
    if (verb == "initialise") return cuda::Driver::Load(driver_path_).status().ToString();  // as a framework does
    if (verb == "lease") return Lease(name);
    if (verb == "why_not") return CopyToHeap(arrays_.at(name).views[0]).status().reason();
    if (verb == "look") return AllBytesOf(arrays_.at(name).views[0]);
    if (verb == "device") return std::to_string(arrays_.at(name).views[0].device.id);
    if (verb == "drop") return arrays_.erase(name), "ok";
    if (verb == "withdraw") return broker_.Withdraw({.name = name}).ToString();
    if (verb == "flush") return broker_.Flush().ToString();
    if (verb == "mapped") return std::to_string(broker_.client_stats().arenas_mapped);
    if (verb == "leases") return std::to_string(broker_.GetStats()->leases);
    if (verb == "pending") return std::to_string(broker_.GetStats()->pending_fences);
    if (verb == "lost") return std::to_string(broker_.GetStats()->lost_fences_total);
    if (verb == "close") return broker_ = Broker(broker_.options()), "ok";
    if (verb == "hasten") return Hasten();
    if (verb == "dying") return std::to_string(broker_.GetStats()->dying_arenas);
    if (verb == "arenas") return std::to_string(broker_.GetStats()->arenas + broker_.GetStats()->dying_arenas);
    return "no such command";
  }

 private:
  // For tests in which a call waits in vain.
  std::string Hasten() {
    Broker::Options hasty = broker_.options();
    hasty.timeout = std::chrono::seconds(3);
    broker_ = Broker(hasty);
    return "ok";
  }
  std::string Published(const Result<Placement>& placement, const std::string& name) {
    if (!placement.ok()) return placement.status().ToString();
    const auto share = broker_.Publish(*placement, {.name = name, .replace = true});
    return share.ok() ? "ok" : share.status().ToString();
  }
  std::string Put(const std::string& name, uint8_t byte) {
    std::vector<uint8_t> content(kBytes, byte);
    const auto view = Describe(content.data(), kSpec.type, kSpec.shape, {}, {}, true, nullptr);
    return Published(broker_.Place({&*view, 1}, false, kFirstGpu), name);
  }
  // Puts an array in this process's GPU memory whose bytes are written late. `says_so`: the view names its stream.
  std::string PutFromStream(const std::string& name, uint8_t byte, bool says_so) {
    const CudaDevices& devices = **CudaDevices::OfThisProcess(driver_path_);
    const auto inside = devices.Enter(0);
    if (!inside.ok()) return inside.status().ToString();
    cuda::CUstream stream = nullptr;
    cuda::CUdeviceptr memory = 0;
    devices.driver().StreamCreate(&stream, cuda::kStreamNonBlocking);
    devices.driver().MemAlloc(&memory, kBytes);
    devices.driver().MemsetD8Async(memory, byte, kBytes, stream);
    auto view =
        Describe(reinterpret_cast<void*>(memory), kSpec.type, kSpec.shape, {}, {kDeviceCuda, 0, {}}, false, nullptr);
    if (says_so) view->stream = reinterpret_cast<uintptr_t>(stream);
    std::string published = Published(broker_.Place({&*view, 1}), name);
    devices.driver().StreamSynchronize(stream);
    devices.driver().MemFree(memory);
    devices.driver().StreamDestroy(stream);
    return published;
  }
  // Work queued into the broker's memory is finished before the share is visible.
  std::string PublishInPlace(const std::string& name, uint8_t byte) {
    auto placement = broker_.Empty({&kSpec, 1}, false, kFirstGpu);
    if (!placement.ok()) return placement.status().ToString();
    const CudaDevices& devices = **CudaDevices::OfThisProcess(driver_path_);
    const auto inside = devices.Enter(0);
    cuda::CUstream stream = nullptr;
    devices.driver().StreamCreate(&stream, cuda::kStreamNonBlocking);
    View view = placement->views()[0];
    devices.driver().MemsetD8Async(reinterpret_cast<cuda::CUdeviceptr>(view.data), byte, kBytes, stream);
    view.stream = reinterpret_cast<uintptr_t>(stream);
    const auto placed = broker_.PlacementOf({&view, 1});
    std::string published = placed ? Published(*placed, name) : "not placed";
    devices.driver().StreamDestroy(stream);
    return published;
  }
  // Puts an array in this process's GPU memory whose bytes are written late on a stream of its own, without waiting.
  // The array is freed with its last owner, which the driver forbids while work on it is queued.
  std::string PutLater(const std::string& name, uint8_t byte) {
    const CudaDevices& devices = **CudaDevices::OfThisProcess(driver_path_);
    const auto inside = devices.Enter(0);
    if (!inside.ok()) return inside.status().ToString();
    const cuda::Driver& driver = devices.driver();
    if (stream_ == nullptr) driver.StreamCreate(&stream_, cuda::kStreamNonBlocking);
    cuda::CUdeviceptr memory = 0;
    driver.MemAlloc(&memory, kBytes);
    driver.MemsetD8Async(memory, byte, kBytes, stream_);
    const std::shared_ptr<const void> owner(nullptr, [&devices, memory](const void*) {
      const auto again = devices.Enter(0);
      devices.driver().MemFree(memory);
    });
    auto view =
        Describe(reinterpret_cast<void*>(memory), kSpec.type, kSpec.shape, {}, {kDeviceCuda, 0, {}}, false, owner);
    view->stream = reinterpret_cast<uintptr_t>(stream_);
    view->stream_is_producers = true;
    const int64_t before = Waits();
    std::string published = Published(broker_.Place({&*view, 1}), name);
    if (published != "ok") return published;
    return Waits() == before ? "later" : "waited";
  }
  // Returns the value of all bytes as read by a stream that is ordered after the producer, without waiting.
  std::string GetInOrder(const std::string& name) {
    auto acquired = broker_.Acquire({.name = name});
    return acquired.ok() ? ReadInOrder(*acquired) : acquired.status().ToString();
  }
  std::string ReadInOrder(const Acquired& acquired) {
    const CudaDevices& devices = **CudaDevices::OfThisProcess(driver_path_);
    const auto inside = devices.Enter(0);
    const cuda::Driver& driver = devices.driver();
    cuda::CUstream stream = nullptr;
    cuda::CUdeviceptr memory = 0;
    driver.StreamCreate(&stream, cuda::kStreamNonBlocking);
    driver.MemAlloc(&memory, kBytes);
    const int64_t before = Waits();
    const View& view = acquired.views[0];
    const Status ordered = OrderAfterProducer(view, reinterpret_cast<uintptr_t>(stream));
    if (!ordered.ok()) return Concat(ordered.ToString(), " ", ordered.reason());
    driver.MemcpyDtoDAsync(memory, reinterpret_cast<cuda::CUdeviceptr>(view.data), kBytes, stream);
    const bool waited = Waits() != before;
    driver.StreamSynchronize(stream);
    driver.StreamDestroy(stream);
    View copy = view;
    copy.data = reinterpret_cast<void*>(memory);
    copy.fence = nullptr;
    std::string bytes = AllBytesOf(copy);
    driver.MemFree(memory);
    return waited ? "waited" : bytes;
  }
  // The number of times that this process has waited for a device, without the waits of its reclaimer. The simulated
  // driver counts them.
  int64_t Waits() const { return Count("cuStreamSynchronize") + Count("cuEventSynchronize"); }
  int64_t Count(const char* symbol) const {
    using Counter = long (*)(const char*);
    void* const library = ::dlopen(driver_path_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    const auto count = reinterpret_cast<Counter>(::dlsym(library, "simulated_cuda_counter"));
    return count == nullptr ? 0 : count(symbol);
  }
  // Acquires a share without reading its bytes.
  std::string Lease(const std::string& name) {
    auto acquired = broker_.Acquire({.name = name});
    if (!acquired.ok()) return acquired.status().ToString();
    arrays_.insert_or_assign(name, *std::move(acquired));
    return "ok";
  }
  // Returns the value of all bytes. The array stays until it is dropped.
  std::string Get(const std::string& name) {
    auto acquired = broker_.Acquire({.name = name}, {.mode = MapMode::kPrivate});
    if (!acquired.ok()) return acquired.status().ToString();
    const View& view = acquired->views[0];
    if (!view.read_only) return "is not read-only";
    std::string answer = AllBytesOf(view);
    arrays_.insert_or_assign(name, *std::move(acquired));
    return answer;
  }

  // The value that all bytes have, if they have the same.
  static std::string AllBytesOf(const View& view) {
    const auto copy = CopyToHeap(view);
    if (!copy.ok()) return copy.status().ToString();
    const auto* const bytes = static_cast<const uint8_t*>(copy->data);
    return std::count(bytes, bytes + kBytes, bytes[0]) == kBytes ? std::to_string(bytes[0]) : "mixed";
  }

  const std::string driver_path_;
  Broker broker_;
  cuda::CUstream stream_ = nullptr;
  std::map<std::string, Acquired> arrays_;
};

int Main(const std::string& address, const std::string& driver, uint64_t arenas) {
  Client client(address, driver, arenas);
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb;
    std::string name;
    int value = 0;
    words >> verb >> name >> value;
    std::cout << client.Do(verb, name, value) << std::endl;
  }
  return 0;
}

}  // namespace
}  // namespace arraybridge

int main(int count, char** words) {
  constexpr uint64_t kArenas = 256;
  return count < 3 ? 64 : arraybridge::Main(words[1], words[2], count == 3 ? kArenas : std::stoull(words[3]));
}
