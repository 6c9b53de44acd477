// SPDX-License-Identifier: Apache-2.0
// The C API on top of the C++ API. It checks the arguments that C cannot check, and catches all exceptions.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <arraybridge/arraybridge.h>
#include <arraybridge/broker.h>
#include <arraybridge/bundle.h>
#include <arraybridge/token.h>

#include "client/c_api/boundary.h"

namespace {

using namespace arraybridge::c;
using arraybridge::InvalidArgument;
using arraybridge::Ok;
using arraybridge::Result;
using arraybridge::Status;
using arraybridge::View;

constexpr size_t kOptionsBytesMin = offsetof(ab_options, token);
constexpr size_t kInfoBytesMin = offsetof(ab_info, fingerprint);
constexpr size_t kEntryBytesMin = sizeof(ab_entry);
constexpr size_t kChannelOptionsBytesMin = sizeof(ab_channel_options);

Result<arraybridge::Broker::Options> OptionsOf(const ab_options* given) {
  arraybridge::Broker::Options options;
  AB_ASSIGN_OR_RETURN(const auto known,
                      given == nullptr ? Result<ab_options>(ab_options{}) : Known(given, kOptionsBytesMin, "options"));
  if (known.address != nullptr) options.address = known.address;
  if (known.ns != nullptr) options.ns = known.ns;
  if (known.client != nullptr) options.client = known.client;
  if (known.timeout_ms > 0) options.timeout = std::chrono::milliseconds(known.timeout_ms);
  AB_ASSIGN_OR_RETURN(options.token,
                      known.token != nullptr ? Result<std::string>(known.token) : arraybridge::FindToken());
  return options;
}

bool IsBorn(const ab_content& content) { return content.array != nullptr && content.array->placement; }

Result<arraybridge::Acquired> AcquireNamed(ab_broker& broker, const char* name, int64_t wait_ms) {
  AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
  arraybridge::ShareRef wanted;
  wanted.name = name;
  arraybridge::Broker::AcquireOptions options;
  options.wait = std::chrono::milliseconds(wait_ms);
  return broker.broker.Acquire(wanted, options);
}

Status CheckBundle(const ab_array* bundle) {
  if (bundle != nullptr && bundle->bundle) return Ok();
  return InvalidArgument("the array is no bundle: it must be of ab_open_bundle or ab_empty_bundle");
}

Result<const arraybridge::Bundle::Array*> EntryOf(const ab_array& of, uint64_t index) {
  const auto known = of.entries.find(index);
  if (known != of.entries.end()) return &known->second;
  AB_ASSIGN_OR_RETURN(auto entry, of.bundle->At(index));
  return &of.entries.emplace(index, std::move(entry)).first->second;
}

// Of C's struct.
Result<arraybridge::BundleArray> Wanted(const ab_entry* given) {
  AB_ASSIGN_OR_RETURN(const auto known, Known(given, kEntryBytesMin, "entry"));
  AB_RETURN_IF_ERROR(CheckGiven(known.name, "name"));
  AB_ASSIGN_OR_RETURN(const auto view, Known(known.view, kViewBytesMin, "entry.view"));
  AB_RETURN_IF_ERROR(CheckShape(view));
  if (known.kind < AB_PARAMETER || known.kind > AB_OTHER) {
    return InvalidArgument("kind ", known.kind, " is none: there are AB_PARAMETER (0) to AB_OTHER (2)");
  }
  return arraybridge::BundleArray{known.name,
                                  {view.type_code, view.type_bits, view.type_lanes},
                                  Numbers(view.shape, view.rank),
                                  static_cast<arraybridge::ArrayKind>(known.kind),
                                  known.tied_to == nullptr ? "" : known.tied_to};
}

}  // namespace

const char* ab_message() { return Message().c_str(); }
const char* ab_reason() { return Reason().c_str(); }

ab_code ab_connect(const ab_options* options, ab_broker** broker) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(broker, "broker"));
    AB_ASSIGN_OR_RETURN(auto read, OptionsOf(options));
    *broker = std::unique_ptr<ab_broker>(new ab_broker{arraybridge::Broker(std::move(read))}).release();
    return Ok();
  });
}

void ab_disconnect(ab_broker* broker) { std::unique_ptr<ab_broker>(broker).reset(); }

ab_code ab_put(ab_broker* broker, const char* name, const ab_view* source, int replace) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
    AB_ASSIGN_OR_RETURN(const auto view, ViewOf(source));
    return broker->broker.Put({&view, 1}, {.name = name, .replace = replace != 0}).status();
  });
}

ab_code ab_empty(ab_broker* broker, const ab_view* given, ab_array** array) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(array, "array"));
    AB_ASSIGN_OR_RETURN(const auto known, Known(given, kViewBytesMin, "view"));
    const ab_view* const wanted = &known;
    AB_RETURN_IF_ERROR(CheckShape(*wanted));
    arraybridge::ArraySpec spec;
    spec.type = {wanted->type_code, wanted->type_bits, wanted->type_lanes};
    spec.dtype = arraybridge::NameOf(spec.type);
    spec.shape = Numbers(wanted->shape, wanted->rank);
    AB_ASSIGN_OR_RETURN(auto placed, broker->broker.Empty({&spec, 1}));
    auto made = std::make_unique<ab_array>();
    made->views = placed.views();
    made->placement = std::move(placed);
    *array = made.release();
    return Ok();
  });
}

ab_code ab_publish(ab_broker* broker, const ab_array* array, const char* name, int replace) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(array, "array"));
    AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
    if (!array->placement) return InvalidArgument("the array belongs to a share already: ab_put_content takes it");
    arraybridge::Broker::PublishOptions options{.name = name, .replace = replace != 0};
    if (array->bundle) options.structure = arraybridge::Bundle::kStructure;
    return broker->broker.Publish(*array->placement, options).status();
  });
}

ab_code ab_get(ab_broker* broker, const char* name, int64_t wait_ms, ab_array** array) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(array, "array"));
    AB_ASSIGN_OR_RETURN(auto acquired, AcquireNamed(*broker, name, wait_ms));
    *array = ArrayOf(std::move(acquired));
    return Ok();
  });
}

ab_code ab_put_content(ab_broker* broker, const char* name, const ab_content* content, int replace) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
    AB_ASSIGN_OR_RETURN(const auto known, Known(content, kContentBytesMin, "content"));
    AB_ASSIGN_OR_RETURN(auto description, DescriptionOf(known));
    const arraybridge::Broker::PublishOptions options{.name = name,
                                                      .replace = replace != 0,
                                                      .structure = std::move(description.structure),
                                                      .metadata = std::move(description.metadata)};
    if (IsBorn(known)) return broker->broker.Publish(*known.array->placement, options).status();
    const auto views = ViewsOf(known);
    return views.ok() ? broker->broker.Put(*views, options).status() : views.status();
  });
}

ab_code ab_info_of(const ab_array* array, ab_info* info) {
  return With(array, "array", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(info, "info"));
    const size_t size = info->size;
    AB_RETURN_IF_ERROR(CheckSize(size, kInfoBytesMin, "info"));
    if (array->share == nullptr) return InvalidArgument("the array is of ab_empty: nothing is known of it yet");
    const arraybridge::Share& share = *array->share;
    const arraybridge::Sent& sent = array->sent;
    std::memset(info, 0, size);  // clears fields of a newer header, which are unknown here
    const ab_info found = {size,
                           share.name.c_str(),
                           sent.sender ? 0 : share.generation,
                           share.structure.data(),
                           share.structure.size(),
                           share.metadata.data(),
                           share.metadata.size(),
                           sent.sequence,
                           sent.stream,
                           sent.time_ns,
                           sent.sender ? sent.sender->process_id : 0,
                           sent.sender ? sent.sender->client.c_str() : "",
                           array->bundle ? array->fingerprint.data() : nullptr,
                           array->bundle ? array->fingerprint.size() : 0};
    std::memcpy(info, &found, std::min(size, sizeof found));
    return Ok();
  });
}

ab_code ab_empty_bundle(ab_broker* broker, const ab_entry* entries, size_t count, const void* fingerprint,
                        size_t fingerprint_bytes, ab_array** bundle) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(bundle, "bundle"));
    std::vector<arraybridge::BundleArray> wanted;
    AB_RETURN_IF_ERROR(ForEach(entries, count, "entries", [&](const ab_entry* given) -> Status {
      AB_ASSIGN_OR_RETURN(auto one, Wanted(given));
      wanted.push_back(std::move(one));
      return Ok();
    }));
    auto made = std::make_unique<ab_array>();
    AB_ASSIGN_OR_RETURN(auto given,
                        BytesOf(fingerprint, fingerprint_bytes, std::numeric_limits<uint32_t>::max(), "fingerprint"));
    made->fingerprint = std::move(given);
    AB_ASSIGN_OR_RETURN(const auto plan, arraybridge::BundlePlan::For(wanted, made->fingerprint));
    AB_ASSIGN_OR_RETURN(auto placed, broker->broker.Empty(plan.specs()));
    AB_ASSIGN_OR_RETURN(made->bundle, plan.WriteTo(placed));
    made->placement = std::move(placed);
    *bundle = made.release();
    return Ok();
  });
}

ab_code ab_open_bundle(ab_broker* broker, const char* name, int64_t wait_ms, ab_array** bundle) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(bundle, "bundle"));
    AB_ASSIGN_OR_RETURN(auto acquired, AcquireNamed(*broker, name, wait_ms));
    AB_ASSIGN_OR_RETURN(auto read, arraybridge::Bundle::Of(acquired.views));
    std::unique_ptr<ab_array> made(ArrayOf(std::move(acquired)));
    made->fingerprint = read.fingerprint();
    made->bundle = std::move(read);
    *bundle = made.release();
    return Ok();
  });
}

ab_code ab_index_of(const ab_array* bundle, const char* name, size_t* index) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckBundle(bundle));
    AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
    AB_RETURN_IF_ERROR(CheckGiven(index, "index"));
    const auto found = bundle->bundle->Find(name);
    if (found.ok()) *index = *found;
    return found.status();
  });
}

ab_code ab_entry_of(const ab_array* bundle, size_t index, ab_entry* entry) {
  return Guarded([&]() -> Status {
    AB_RETURN_IF_ERROR(CheckBundle(bundle));
    AB_RETURN_IF_ERROR(CheckGiven(entry, "entry"));
    const size_t size = entry->size;
    AB_RETURN_IF_ERROR(CheckSize(size, kEntryBytesMin, "entry"));
    AB_ASSIGN_OR_RETURN(const auto found, EntryOf(*bundle, index));
    const char* tied_to = nullptr;
    if (found->tie != index) {
      AB_ASSIGN_OR_RETURN(const auto owner, EntryOf(*bundle, found->tie));
      tied_to = owner->name.c_str();
    }
    std::memset(entry, 0, size);  // clears fields of a newer header, which are unknown here
    *entry = {size, found->name.c_str(), static_cast<int32_t>(found->kind), tied_to, nullptr};
    return Ok();
  });
}

ab_code ab_open_channel(ab_broker* broker, const char* name, int32_t role, const ab_channel_options* options,
                        ab_channel** channel) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
    AB_RETURN_IF_ERROR(CheckGiven(channel, "channel"));
    if (role != AB_SENDER && role != AB_RECEIVER) {
      return InvalidArgument("role ", role, " is neither AB_SENDER (1) nor AB_RECEIVER (2)");
    }
    AB_ASSIGN_OR_RETURN(const auto known, options == nullptr ? Result<ab_channel_options>(ab_channel_options{})
                                                             : Known(options, kChannelOptionsBytesMin, "options"));
    if (known.mode < AB_AS_IS || known.mode > AB_LATEST) {
      return InvalidArgument("mode ", known.mode, " is none: there are AB_AS_IS (0) to AB_LATEST (3)");
    }
    using arraybridge::OnSlow;
    arraybridge::ChannelOptions opening{known.capacity, static_cast<arraybridge::ChannelMode>(known.mode)};
    if (known.drop_oldest != 0) opening.on_slow = known.drop_oldest > 0 ? OnSlow::kDropOldest : OnSlow::kBlock;
    if (known.replay != 0) opening.replay = known.replay;
    const auto end = static_cast<arraybridge::Channel::Role>(role);
    AB_ASSIGN_OR_RETURN(auto opened, broker->broker.OpenChannel(name, end, opening));
    const auto death = known.wait_for_lost != 0 ? arraybridge::PeerDeath::kWait : arraybridge::PeerDeath::kTell;
    *channel = std::unique_ptr<ab_channel>(new ab_channel{broker->broker, std::move(opened), death, end}).release();
    return Ok();
  });
}

ab_code ab_send(ab_channel* channel, const ab_content* content, int64_t timeout_ms) {
  return With(channel, "channel", [&]() -> Status {
    AB_ASSIGN_OR_RETURN(const auto known, Known(content, kContentBytesMin, "content"));
    AB_ASSIGN_OR_RETURN(auto description, DescriptionOf(known));
    arraybridge::Channel::SendOptions options{.structure = std::move(description.structure),
                                              .metadata = std::move(description.metadata),
                                              .timeout = TimeoutOf(timeout_ms),
                                              .on_peer_death = channel->on_peer_death};
    if (IsBorn(known)) return channel->channel.Send(*known.array->placement, options);
    AB_ASSIGN_OR_RETURN(const auto views, ViewsOf(known));
    return channel->broker.Send(channel->channel, views, std::move(options)).status();
  });
}

ab_code ab_receive(ab_channel* channel, int64_t timeout_ms, ab_array** array) {
  return With(channel, "channel", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(array, "array"));
    auto received =
        channel->channel.Receive({.timeout = TimeoutOf(timeout_ms), .on_peer_death = channel->on_peer_death});
    if (!received.ok()) return received.status();
    *array = ArrayOf(*std::move(received));
    return Ok();
  });
}

ab_code ab_close_channel(ab_channel* channel) {
  return With(channel, "channel", [&] { return channel->channel.Close(); });
}

void ab_drop_channel(ab_channel* channel) { std::unique_ptr<ab_channel>(channel).reset(); }

size_t ab_count(const ab_array* array) {
  if (array == nullptr) return 0;
  return array->bundle ? array->bundle->size() : array->views.size();
}

ab_code ab_view_of(const ab_array* array, size_t index, ab_view* view) {
  return With(array, "array", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(view, "view"));
    const size_t size = view->size;
    AB_RETURN_IF_ERROR(CheckSize(size, kViewBytesMin, "view"));
    if (index >= ab_count(array)) {
      return InvalidArgument("index ", index, ": there are ", ab_count(array), " arrays");
    }
    AB_ASSIGN_OR_RETURN(const auto entry,
                        array->bundle ? EntryOf(*array, index) : Result<const arraybridge::Bundle::Array*>(nullptr));
    const View& of = array->bundle ? entry->view : array->views[index];
    std::memset(view, 0, size);  // clears fields of a newer header, which are unknown here
    *view = {size,
             of.data,
             of.type.code,
             of.type.bits,
             of.type.lanes,
             static_cast<int32_t>(of.shape.size()),
             of.shape.data(),
             of.strides.data(),
             of.device.type,
             of.device.id,
             of.read_only ? 1 : 0};
    return Ok();
  });
}

void ab_drop(ab_array* array) { std::unique_ptr<ab_array>(array).reset(); }

ab_code ab_withdraw(ab_broker* broker, const char* name) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(name, "name"));
    arraybridge::ShareRef wanted;
    wanted.name = name;
    return broker->broker.Withdraw(wanted);
  });
}

ab_code ab_outcome(ab_broker* broker, int64_t timeout_ms, int32_t* done) {
  return With(broker, "broker", [&]() -> Status {
    AB_RETURN_IF_ERROR(CheckGiven(done, "done"));
    const Status failed = TimedOut();
    if (failed.ok()) return InvalidArgument("no call of this thread has timed out");
    AB_ASSIGN_OR_RETURN(const auto outcome,
                        broker->broker.OutcomeOf(failed, std::chrono::milliseconds(std::max<int64_t>(timeout_ms, 0))));
    *done = outcome.status.ok() ? 1 : 0;
    return Ok();
  });
}
