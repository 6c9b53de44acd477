// The C API over the C++ one: checks what C cannot, and lets no exception out.
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <arraybridge/arraybridge.h>
#include <arraybridge/broker.h>

struct ab_broker {
  arraybridge::Broker broker;
};

struct ab_array {
  std::vector<arraybridge::View> views;
  std::optional<arraybridge::Placement> placement;  // of ab_empty
};

namespace {

using arraybridge::InvalidArgument;
using arraybridge::Ok;
using arraybridge::Result;
using arraybridge::Status;
using arraybridge::View;

constexpr int32_t kRankMax = 64;
constexpr char kDefaultAddress[] = "/run/arraybridge";

std::string& Message() {
  thread_local std::string message;
  return message;
}

ab_code Told(const Status& status) {
  Message() = status.ok() ? std::string() : status.message();
  return static_cast<ab_code>(status.code());
}

// What `work` returns; C++ ends here.
template <class Work>
ab_code Guarded(Work work) noexcept {
  try {
    return Told(work());
  } catch (const std::bad_alloc&) {
    return AB_RESOURCE_EXHAUSTED;
  } catch (const std::exception& error) {
    return Told(Status(arraybridge::Code::kInternal, error.what()));
  }
}

// A struct of an older header is shorter; a newer one's ends with what is not known here.
template <class Struct>
Status CheckSize(const Struct* given, const char* what) {
  if (given == nullptr) return InvalidArgument(what, " is NULL");
  if (given->size != sizeof(Struct)) {
    return InvalidArgument(what, ".size is ", given->size, "; it is ", sizeof(Struct), " in this library");
  }
  return Ok();
}

Status CheckShape(const ab_view& view) {
  if (view.rank < 0 || view.rank > kRankMax) return InvalidArgument("rank ", view.rank, " is not 0 to ", kRankMax);
  if (view.rank > 0 && view.shape == nullptr) return InvalidArgument("shape is NULL at rank ", view.rank);
  return Ok();
}

std::vector<int64_t> Numbers(const int64_t* numbers, int32_t count) {
  return numbers == nullptr ? std::vector<int64_t>() : std::vector<int64_t>(numbers, numbers + count);
}

Result<View> ViewOf(const ab_view* source) {
  AB_RETURN_IF_ERROR(CheckSize(source, "view"));
  AB_RETURN_IF_ERROR(CheckShape(*source));
  if (source->device_type != arraybridge::kDeviceCpu) {
    return InvalidArgument("device type ", source->device_type, ": the C API puts host memory (",
                           arraybridge::kDeviceCpu, ")");
  }
  return arraybridge::Describe(source->data, {source->type_code, source->type_bits, source->type_lanes},
                               Numbers(source->shape, source->rank), Numbers(source->strides, source->rank), {}, true,
                               nullptr);
}

Status CheckName(const char* name) { return name == nullptr ? InvalidArgument("name is NULL") : Ok(); }

arraybridge::Broker::Options OptionsOf(const ab_options* given) {
  arraybridge::Broker::Options options;
  const char* const named = std::getenv("ARRAYBRIDGE_ADDRESS");
  options.address = named == nullptr || *named == '\0' ? kDefaultAddress : named;
  if (given == nullptr) return options;
  if (given->address != nullptr) options.address = given->address;
  if (given->ns != nullptr) options.ns = given->ns;
  if (given->client != nullptr) options.client = given->client;
  if (given->timeout_ms > 0) options.timeout = std::chrono::milliseconds(given->timeout_ms);
  return options;
}

Status Publish(arraybridge::Broker& broker, const arraybridge::Placement& placement, const char* name, int replace) {
  arraybridge::Broker::PublishOptions options;
  options.name = name;
  options.replace = replace != 0;
  return broker.Publish(placement, options).status();
}

}  // namespace

const char* ab_message() { return Message().c_str(); }

ab_code ab_connect(const ab_options* options, ab_broker** broker) {
  return Guarded([&]() -> Status {
    if (broker == nullptr) return InvalidArgument("broker is NULL");
    if (options != nullptr) AB_RETURN_IF_ERROR(CheckSize(options, "options"));
    *broker = std::unique_ptr<ab_broker>(new ab_broker{arraybridge::Broker(OptionsOf(options))}).release();
    return Ok();
  });
}

void ab_disconnect(ab_broker* broker) { std::unique_ptr<ab_broker>(broker).reset(); }

ab_code ab_put(ab_broker* broker, const char* name, const ab_view* source, int replace) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckName(name));
    const auto view = ViewOf(source);
    if (!view.ok()) return view.status();
    const auto placed = broker->broker.Place({&*view, 1});
    return placed.ok() ? Publish(broker->broker, *placed, name, replace) : placed.status();
  });
}

ab_code ab_empty(ab_broker* broker, const ab_view* wanted, ab_array** array) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckSize(wanted, "view"));
    AB_RETURN_IF_ERROR(CheckShape(*wanted));
    arraybridge::ArraySpec spec;
    spec.type = {wanted->type_code, wanted->type_bits, wanted->type_lanes};
    spec.dtype = arraybridge::NameOf(spec.type);
    spec.shape = Numbers(wanted->shape, wanted->rank);
    auto placed = broker->broker.Empty({&spec, 1});
    if (!placed.ok()) return placed.status();
    auto made = std::make_unique<ab_array>();
    made->views = placed->views();
    made->placement = *std::move(placed);
    *array = made.release();
    return Ok();
  });
}

ab_code ab_publish(ab_broker* broker, const ab_array* array, const char* name, int replace) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckName(name));
    if (!array->placement) return InvalidArgument("the array is a share's already");
    return Publish(broker->broker, *array->placement, name, replace);
  });
}

ab_code ab_get(ab_broker* broker, const char* name, int64_t wait_ms, ab_array** array) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckName(name));
    arraybridge::ShareRef wanted;
    wanted.name = name;
    arraybridge::Broker::AcquireOptions options;
    options.wait = std::chrono::milliseconds(wait_ms);
    auto acquired = broker->broker.Acquire(wanted, options);
    if (!acquired.ok()) return acquired.status();
    auto made = std::make_unique<ab_array>();
    made->views = std::move(acquired->views);
    *array = made.release();
    return Ok();
  });
}

size_t ab_count(const ab_array* array) { return array->views.size(); }

ab_code ab_view_of(const ab_array* array, size_t index, ab_view* view) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckSize(view, "view"));
    if (index >= array->views.size()) {
      return InvalidArgument("index ", index, ": there are ", array->views.size(), " arrays");
    }
    const View& of = array->views[index];
    *view = {sizeof *view,        of.data,
             of.type.code,        of.type.bits,
             of.type.lanes,       static_cast<int32_t>(of.shape.size()),
             of.shape.data(),     of.strides.data(),
             of.device.type,      of.device.id,
             of.read_only ? 1 : 0};
    return Ok();
  });
}

void ab_drop(ab_array* array) { std::unique_ptr<ab_array>(array).reset(); }

ab_code ab_withdraw(ab_broker* broker, const char* name) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckName(name));
    arraybridge::ShareRef wanted;
    wanted.name = name;
    return broker->broker.Withdraw(wanted);
  });
}
