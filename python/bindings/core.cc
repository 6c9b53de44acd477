// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/core.h"

#include <arraybridge/broker.h>
#include <pybind11/stl.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "proto/boundary/text.h"
#include "python/bindings/gil.h"
#include "python/bindings/share_info.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace py = pybind11;
using namespace py::literals;

namespace {

PyObject* g_status_error = nullptr;  // set once, under the import lock

constexpr char kRequest[] = "request";  // key in a Status's metadata

py::object ErrorOf(const Status& status) {
  const std::string& message = status.message();
  py::object error = py::reinterpret_borrow<py::object>(g_status_error)(message);
  error.attr("code") = static_cast<uint32_t>(status.code());
  error.attr("message") = message;
  error.attr("reason") = status.reason();
  error.attr(kRequest) = "";
  py::dict facts;
  for (const auto& [key, value] : status.metadata()) {
    if (key == kRequest) error.attr(kRequest) = value;
    facts[py::str(Printable(key))] = py::str(Printable(value));
  }
  error.attr("facts") = facts;
  return error;
}

[[noreturn]] void Raise(const Status& status) {
  RaiseStatus(status);
  throw py::error_already_set();
}

// Runs `call` without the GIL. Returns its value, or throws StatusError or the exception of a signal handler.
template <class Call>
auto Ask(Call call) {
  auto answer = WithoutGil(std::move(call));
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if constexpr (std::is_same_v<decltype(answer), Status>) {
    if (!answer.ok()) Raise(answer);
  } else {
    if (!answer.ok()) Raise(answer.status());
    return *std::move(answer);
  }
}

py::list ListOf(std::vector<View> views) {
  py::list list(views.size());
  for (size_t i = 0; i < views.size(); ++i) list[i] = Own(NewView(std::move(views[i])));
  return list;
}

// A timeout of more than a week is treated as no limit. NaN is rejected.
constexpr double kLongestWait = 7 * 24 * 3600.0;
constexpr double kLongestLife = 100 * 365 * 24 * 3600.0;

std::chrono::milliseconds Milliseconds(double seconds, const char* name, double longest = kLongestWait) {
  if (std::isnan(seconds) || seconds < 0) throw py::value_error(std::string(name) + " must be 0 or more seconds");
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(std::min(seconds, longest) * 1000)));
}

std::optional<std::chrono::milliseconds> Timeout(std::optional<double> seconds) {
  if (!seconds) return std::nullopt;
  return Milliseconds(*seconds, "timeout_s");
}

// The DLPack device type, and the ordinal of the device in this process.
using Where = std::pair<int32_t, int32_t>;

Device DeviceAt(const Where& where) { return {where.first, where.second, {}}; }

// Capacity, mode, drop_oldest, replay, run, fresh.
using ChannelTerms = std::tuple<uint64_t, std::string, std::optional<bool>, std::optional<uint64_t>, std::string, bool>;
// A share by name, or by id, generation and the broker's id.
using Wish = std::tuple<std::string, uint64_t, uint64_t, std::string>;
using Wanted = std::tuple<std::string, std::tuple<uint8_t, uint8_t, uint16_t>, std::vector<int64_t>>;

// `options`: null for the defaults.
Broker::PublishOptions Named(const PutOptions* options, std::string name) {
  Broker::PublishOptions named = options == nullptr ? Broker::PublishOptions{} : options->publish;
  named.name = std::move(name);
  return named;
}

std::optional<std::chrono::milliseconds> TimeoutIn(const PutOptions* options) {
  return options == nullptr ? std::nullopt : options->timeout;
}

py::object InfoOf(Share share, bool waited) {
  if (!waited) return py::none();
  return Own(NewShareInfo(std::make_shared<Share>(std::move(share))));
}

py::tuple GrantedOf(Acquired acquired) {
  py::object share = Own(NewShareInfo(std::move(acquired.share), std::move(acquired.sent)));
  return py::make_tuple(std::move(share), ListOf(std::move(acquired.views)));
}

// Set once, under the import lock.
PyTypeObject* g_core_type = nullptr;
PyTypeObject* g_channel_end_type = nullptr;

// The C++ object of a Python object. An object of the class itself needs no search for the class, which takes as long
// as the rest of a lookup. Throws if it is of another class, or was made without __init__.
template <class Class>
Class& Native(PyObject* object, PyTypeObject* type) {
  if (Py_TYPE(object) != type) return py::cast<Class&>(py::handle(object));
  auto* const its =
      static_cast<Class*>(reinterpret_cast<py::detail::instance*>(object)->get_value_and_holder().value_ptr());
  if (its == nullptr) throw py::value_error("the object was made without __init__");
  return *its;
}

class Core {
 public:
  Core(std::string address, std::string ns, double timeout_s, std::string client, bool catalogue, std::string token,
       bool direct_channels)
      : broker_({.address = std::move(address),
                 .ns = std::move(ns),
                 .timeout = Milliseconds(timeout_s, "timeout_s"),
                 .client = std::move(client),
                 .interrupted = Interrupted,
                 .cuda_driver = {},
                 .catalogue = catalogue,
                 .direct_channels = direct_channels,
                 .token = std::move(token)}) {}
  explicit Core(Broker::Options options) : broker_(std::move(options)) {}

  // `name` and `options` are those of the publish that follows. The same holds for Place.
  Placement Empty(const std::vector<Wanted>& arrays, std::string name, const PutOptions* options, const Where& device,
                  bool pinned) {
    const Broker::PublishOptions publish = Named(options, std::move(name));
    std::vector<ArraySpec> specs;
    specs.reserve(arrays.size());
    for (const auto& [dtype, code, shape] : arrays)
      specs.push_back({{std::get<0>(code), std::get<1>(code), std::get<2>(code)}, dtype, shape, {}, 0});
    return Ask([&] {
      return broker_.Empty(specs, {.own = publish.sealed,
                                   .device = DeviceAt(device),
                                   .publish = publish,
                                   .timeout = TimeoutIn(options),
                                   .pinned = pinned});
    });
  }

  Placement Place(const py::sequence& arrays, std::string name, const PutOptions* options,
                  const std::optional<Where>& device) {
    const Broker::PublishOptions publish = Named(options, std::move(name));
    const std::vector<View> views = ViewsOf(arrays);
    Broker::PlaceOptions place{.own = publish.sealed, .device = {}, .publish = publish, .timeout = TimeoutIn(options)};
    if (device.has_value()) place.device = DeviceAt(*device);
    return Ask([&] { return broker_.Place(views, place); });
  }

  std::optional<Placement> PlacementOf(const py::sequence& arrays) {
    const std::vector<View> views = ViewsOf(arrays);
    return WithoutGil([&] { return broker_.PlacementOf(views); });
  }

  // Returns None if the options say that the publish is not waited for.
  py::object Publish(const Placement& placement, std::string name, const PutOptions* options) {
    const Broker::PublishOptions named = Named(options, std::move(name));
    return InfoOf(Ask([&] { return broker_.Publish(placement, named); }), named.wait);
  }

  // Returns the result of Publish, and true if the arrays already lay in one placement of this connection and were
  // published without a copy. Arrays that lie in one share are not copied either; others are.
  py::tuple Put(std::string name, const py::sequence& arrays, const PutOptions& options) {
    const std::vector<View> views = ViewsOf(arrays);
    PutArrays put = Ask([&] { return PublishArrays(broker_, views, std::move(name), options); });
    return py::make_tuple(InfoOf(std::move(put.share), options.publish.wait), put.in_place);
  }

  py::tuple Acquire(std::string name, uint64_t id, uint64_t generation, bool map_private, double wait_s,
                    std::string broker_id, std::string note, uint64_t newer_than) {
    const ShareRef ref{std::move(name), id, generation, std::move(broker_id), newer_than};
    const Broker::AcquireOptions options{map_private ? MapMode::kPrivate : MapMode::kShared,
                                         Milliseconds(wait_s, "wait_s"), std::move(note)};
    return GrantedOf(Ask([&] { return broker_.Acquire(ref, options); }));
  }

  std::optional<Acquired> TryAcquire(std::string_view name, bool map_private) {
    const ShareRef ref{std::string(name), 0, 0, {}, 0};
    return broker_.TryAcquire(ref, map_private ? MapMode::kPrivate : MapMode::kShared);
  }

  py::list AcquireMany(const std::vector<Wish>& wishes, bool map_private, double wait_s, std::string note) {
    std::vector<ShareRef> refs;
    refs.reserve(wishes.size());
    for (const auto& [name, id, generation, broker_id] : wishes) refs.push_back({name, id, generation, broker_id, 0});
    const Broker::AcquireOptions options{map_private ? MapMode::kPrivate : MapMode::kShared,
                                         Milliseconds(wait_s, "wait_s"), std::move(note)};
    std::vector<Acquired> acquired = Ask([&] { return broker_.AcquireMany(refs, options); });
    py::list out(acquired.size());
    for (size_t i = 0; i < acquired.size(); ++i) out[i] = GrantedOf(std::move(acquired[i]));
    return out;
  }

  // Replaces the note of an acquire.
  void Note(const py::object& info, const std::string& note) {
    const Share* const share = ShareOf(info.ptr());
    if (share == nullptr) throw py::error_already_set();
    WithoutGil([&, share = *share] { return broker_.Note(share, note), true; });
  }

  // For a failed call: the share that it published after all and no error, or no share and the error.
  py::tuple OutcomeOf(uint32_t code, std::string message, std::string reason, std::string request, double timeout_s) {
    Status failed(Code{code}, std::move(message), std::move(reason));
    if (!request.empty()) failed = std::move(failed).With(kRequest, std::move(request));
    if (failed.ok()) throw py::value_error("code 0 is no failure");
    const auto timeout = Milliseconds(timeout_s, "timeout_s");
    const Outcome outcome = Ask([&] { return broker_.OutcomeOf(failed, timeout); });
    py::object share = py::none();
    if (outcome.share) share = Own(NewShareInfo(std::make_shared<Share>(*outcome.share)));
    return py::make_tuple(std::move(share), outcome.status.ok() ? py::object(py::none()) : ErrorOf(outcome.status));
  }

  Broker& broker() { return broker_; }

  auto OpenChannel(const std::string& name, bool sends, const ChannelTerms& terms);
  auto WithClient(std::string client) const;
  auto OpenWatch(const std::vector<std::string>& kinds, std::string name_prefix);

  uint64_t DrainChannel(const std::string& name, bool remove) {
    return Ask([&] { return broker_.DrainChannel(name, remove); });
  }

  uint64_t Claim(const std::string& name, uint64_t newer_than, double wait_s, double lifetime_s, uint64_t held) {
    const auto wait = Milliseconds(wait_s, "wait_s");
    const auto lifetime = Milliseconds(lifetime_s, "lifetime_s");
    return Ask([&] { return broker_.Claim(name, newer_than, wait, lifetime, held); });
  }
  void ReleaseClaim(uint64_t claim) {
    Ask([&] { return broker_.ReleaseClaim(claim); });
  }

  void Withdraw(std::string name, uint64_t id, uint64_t generation, std::string broker_id) {
    const ShareRef ref{std::move(name), id, generation, std::move(broker_id), 0};
    Ask([&] { return broker_.Withdraw(ref); });
  }

  py::list List(const std::string& prefix) {
    py::list out;
    for (ListedShare& listed : Ask([&] { return broker_.List(prefix); })) {
      py::object share = Own(NewShareInfo(std::make_shared<Share>(std::move(listed.share))));
      out.append(py::dict("share"_a = std::move(share), "maker"_a = listed.maker,
                          "maker_process_id"_a = listed.maker_process_id, "leases"_a = listed.leases,
                          "age_ms"_a = listed.age_ms));
    }
    return out;
  }

  py::dict GetStats() {
    const Stats stats = Ask([&] { return broker_.GetStats(); });
    return py::dict("sessions"_a = stats.sessions, "leases"_a = stats.leases, "shares"_a = stats.shares,
                    "withdrawn_shares"_a = stats.withdrawn_shares, "arenas"_a = stats.arenas,
                    "charged_bytes"_a = stats.charged_bytes, "tickets"_a = stats.tickets, "waiting"_a = stats.waiting,
                    "dying_arenas"_a = stats.dying_arenas, "sessions_total"_a = stats.sessions_total,
                    "publishes_total"_a = stats.publishes_total, "forwards_total"_a = stats.forwards_total,
                    "acquires_total"_a = stats.acquires_total, "refusals_total"_a = stats.refusals_total,
                    "sessions_cut_total"_a = stats.sessions_cut_total, "hazard_slots"_a = stats.hazard_slots,
                    "pinned_bytes"_a = stats.pinned_bytes, "channels"_a = stats.channels,
                    "queued_shares"_a = stats.queued_shares, "channel_sent_total"_a = stats.channel_sent_total,
                    "channel_received_total"_a = stats.channel_received_total,
                    "channel_dropped_total"_a = stats.channel_dropped_total, "watchers"_a = stats.watchers,
                    "events_dropped_total"_a = stats.events_dropped_total, "pending_fences"_a = stats.pending_fences,
                    "lost_fences_total"_a = stats.lost_fences_total, "capacity_bytes"_a = stats.capacity_bytes,
                    "allocated_bytes"_a = stats.allocated_bytes, "cached_bytes"_a = stats.cached_bytes,
                    "quarantined_bytes"_a = stats.quarantined_bytes);
  }

  py::dict GetClientStats() {
    const ClientStats stats = WithoutGil([this] { return broker_.client_stats(); });
    return py::dict("arenas_written"_a = stats.arenas_written, "arena_bytes"_a = stats.arena_bytes,
                    "arenas_mapped"_a = stats.arenas_mapped, "live_leases"_a = stats.live_leases,
                    "pending_releases"_a = stats.pending_releases, "catalogue_acquires"_a = stats.catalogue_acquires,
                    "unwaited_publishes"_a = stats.unwaited_publishes, "direct_shares"_a = stats.direct_shares,
                    "writable_gpu_maps"_a = stats.writable_gpu_maps);
  }

  py::dict GetServerInfo() {
    const ServerInfo info = Ask([&] { return broker_.GetServerInfo(); });
    return py::dict("version"_a = info.version, "broker_id"_a = py::bytes(info.broker_id),
                    "protocol_min"_a = info.protocol_min, "protocol_max"_a = info.protocol_max,
                    "uptime_ms"_a = info.uptime_ms);
  }

  void Flush() {
    Ask([&] { return broker_.Flush(); });
  }

  void Confirm() {
    Ask([&] { return broker_.Confirm(); });
  }

  void Settle() {
    Ask([&] { return broker_.Settle(); });
  }

 private:
  Broker broker_;
};

// One end of a channel.
class ChannelEnd {
 public:
  explicit ChannelEnd(Channel channel) : channel_(std::move(channel)) {}

  void Send(const Placement& placement, const std::string& structure, const std::string& metadata,
            std::optional<double> timeout_s, bool waits, std::optional<uint64_t> seen) {
    const Channel::SendOptions options{structure, metadata, Timeout(timeout_s), OnDeath(waits), seen};
    Ask([&] { return channel_.Send(placement, options); });
  }
  // Returns true if the arrays already lay in one placement, and were sent without a copy.
  bool Put(Core& core, const py::sequence& arrays, const std::string& structure, const std::string& metadata,
           std::optional<double> timeout_s, bool waits) {
    const std::vector<View> views = ViewsOf(arrays);
    Channel::SendOptions options{structure, metadata, Timeout(timeout_s), OnDeath(waits)};
    const auto passed = Ask([&] { return core.broker().Send(channel_, views, std::move(options), true); });
    return passed == Broker::Passed::kInPlace;
  }
  uint64_t Check(bool waits, uint64_t seen) {
    Ask([&] { return channel_.Check(OnDeath(waits), &seen); });
    return seen;
  }
  uint64_t seen_notice() const { return channel_.seen_notice(); }
  py::tuple Receive(bool map_private, std::optional<double> timeout_s, bool waits) {
    const Channel::ReceiveOptions options{map_private ? MapMode::kPrivate : MapMode::kShared, Timeout(timeout_s),
                                          OnDeath(waits)};
    return GrantedOf(Ask([&] { return channel_.Receive(options); }));
  }
  void Close(bool complete) {
    Ask([&] { return complete ? channel_.Close() : channel_.Abandon(); });
  }
  uint64_t capacity() const { return channel_.capacity(); }
  Channel& channel() { return channel_; }

 private:
  static PeerDeath OnDeath(bool waits) { return waits ? PeerDeath::kWait : PeerDeath::kTell; }

  Channel channel_;
};

EventKind KindNamed(const std::string& name) {
  for (uint8_t number = 1; number <= static_cast<uint8_t>(EventKind::kQuota); ++number) {
    if (NameOf(EventKind{number}) == name) return EventKind{number};
  }
  throw py::value_error("there are no events of kind '" + name + "'");
}

std::string NameOfDevice(const Device& device) {
  if (device.type == 0) return {};
  if (device.type == kDeviceCpu) return "cpu";
  return "cuda:" + (device.uuid.empty() ? std::to_string(device.id) : device.uuid);
}

// A watch of the broker's events.
class WatchEnd {
 public:
  explicit WatchEnd(Watch watch) : watch_(std::move(watch)) {}

  // The fields in the order of arraybridge.broker.watch.Event.
  py::tuple Next(std::optional<double> timeout_s) {
    const auto timeout = Timeout(timeout_s);
    const Event event = Ask([&] { return watch_.Next(timeout); });
    return py::make_tuple(NameOf(event.kind), event.time_ns, event.ns, event.name, event.share, event.generation,
                          event.session, event.process_id, event.uid, event.bytes, NameOfDevice(event.device),
                          static_cast<uint32_t>(event.code), event.reason, event.verb, event.note);
  }
  void Close() {
    Ask([&] { return watch_.Close(); });
  }

 private:
  Watch watch_;
};

// The last reference may call the daemon, so it is dropped without the GIL.
struct DeleteWithoutGil {
  template <class Object>
  void operator()(Object* object) const {
    WithoutGil([object] { return delete object, true; });
  }
};

ChannelMode ModeNamed(const std::string& name) {
  if (name.empty()) return ChannelMode::kAsIs;
  if (name == "queue") return ChannelMode::kQueue;
  if (name == "broadcast") return ChannelMode::kBroadcast;
  if (name == "latest") return ChannelMode::kLatest;
  throw py::value_error("there is no channel mode '" + name + "'");
}

// Defined here, because its return type is declared after Core.
auto Core::OpenChannel(const std::string& name, bool sends, const ChannelTerms& terms) {
  const auto& [capacity, mode, drop_oldest, replay, run, fresh] = terms;
  const auto role = sends ? Channel::Role::kSender : Channel::Role::kReceiver;
  ChannelOptions options{.capacity = capacity, .mode = ModeNamed(mode), .replay = replay, .run = run, .fresh = fresh};
  if (drop_oldest) options.on_slow = *drop_oldest ? OnSlow::kDropOldest : OnSlow::kBlock;
  Channel channel = Ask([&] { return broker_.OpenChannel(name, role, options); });
  return std::unique_ptr<ChannelEnd, DeleteWithoutGil>(new ChannelEnd(std::move(channel)));
}

// For a forked child, which connects anew in any case: the same options, and its own name.
auto Core::WithClient(std::string client) const {
  Broker::Options options = broker_.options();
  options.client = std::move(client);
  return std::unique_ptr<Core, DeleteWithoutGil>(new Core(std::move(options)));
}

auto Core::OpenWatch(const std::vector<std::string>& kinds, std::string name_prefix) {
  Broker::WatchOptions options;
  for (const std::string& kind : kinds) options.kinds.push_back(KindNamed(kind));
  options.name_prefix = std::move(name_prefix);
  Watch watch = Ask([&] { return broker_.OpenWatch(options); });
  return std::unique_ptr<WatchEnd, DeleteWithoutGil>(new WatchEnd(std::move(watch)));
}

}  // namespace

void AddCore(py::module_& module) {
  g_status_error = PyErr_NewException("arraybridge._core.StatusError", nullptr, nullptr);
  if (g_status_error == nullptr) throw py::error_already_set();
  module.add_object("StatusError", py::reinterpret_borrow<py::object>(g_status_error));

  py::class_<Placement>(module, "Placement", py::is_final())
      .def_property_readonly("forwards", [](const Placement& placement) { return placement.forward() != nullptr; })
      .def_property_readonly("views", [](const Placement& placement) { return ListOf(placement.views()); });

  using py::arg;
  auto options = [](bool replace, bool sealed, std::string structure, std::string metadata, double lifetime_s,
                    std::string note, std::string note_in_place, std::string note_forward, bool wait,
                    std::optional<double> timeout_s, bool keep_writing) {
    Broker::PublishOptions base{{}, replace, sealed, std::move(structure), std::move(metadata), std::move(note), wait};
    base.lifetime = Milliseconds(lifetime_s, "lifetime", kLongestLife);
    PutOptions made{std::move(base), std::move(note_in_place), std::move(note_forward), keep_writing, {}};
    if (timeout_s) made.timeout = Milliseconds(*timeout_s, "timeout_s");
    return made;
  };
  py::class_<PutOptions>(module, "PutOptions", py::is_final())
      .def(py::init(std::move(options)), arg("replace") = false, arg("sealed") = false, arg("structure") = py::bytes(),
           arg("metadata") = py::bytes(), arg("lifetime_s") = 0.0, arg("note") = "", arg("note_in_place") = "",
           arg("note_forward") = "", arg("wait") = true, arg("timeout_s") = py::none(), arg("keep_writing") = false);
  // Before ChannelEnd, whose signatures name it; its own name ChannelEnd.
  py::class_<Core, std::unique_ptr<Core, DeleteWithoutGil>> core(module, "Core");
  g_core_type = reinterpret_cast<PyTypeObject*>(core.ptr());
  py::class_<ChannelEnd, std::unique_ptr<ChannelEnd, DeleteWithoutGil>> end(module, "ChannelEnd", py::is_final());
  g_channel_end_type = reinterpret_cast<PyTypeObject*>(end.ptr());
  end.def_property_readonly("capacity", &ChannelEnd::capacity)
      .def("send", &ChannelEnd::Send, arg("placement"), arg("structure") = py::bytes(), arg("metadata") = py::bytes(),
           arg("timeout_s") = py::none(), arg("waits") = false, arg("seen") = py::none())
      .def("put", &ChannelEnd::Put, arg("core"), arg("views"), arg("structure") = py::bytes(),
           arg("metadata") = py::bytes(), arg("timeout_s") = py::none(), arg("waits") = false)
      .def("check", &ChannelEnd::Check, arg("waits"), arg("seen"))
      .def_property_readonly("seen_notice", &ChannelEnd::seen_notice)
      .def("receive", &ChannelEnd::Receive, arg("private") = false, arg("timeout_s") = py::none(), arg("waits") = false)
      .def("close", &ChannelEnd::Close, arg("complete") = true);
  py::class_<WatchEnd, std::unique_ptr<WatchEnd, DeleteWithoutGil>>(module, "WatchEnd", py::is_final())
      .def("next", &WatchEnd::Next, arg("timeout_s") = py::none())
      .def("close", &WatchEnd::Close);
  core.def(py::init<std::string, std::string, double, std::string, bool, std::string, bool>(), arg("address"),
           arg("namespace"), arg("timeout_s"), arg("client"), arg("catalogue") = true, arg("token") = "",
           arg("direct_channels") = true)
      .def("with_client", &Core::WithClient, arg("client"))
      .def("empty", &Core::Empty, arg("arrays"), arg("name") = "", arg("options") = py::none(),
           arg("device") = Where{kDeviceCpu, 0}, arg("pinned") = false)
      .def("place", &Core::Place, arg("views"), arg("name") = "", arg("options") = py::none(),
           arg("device") = py::none())
      .def("placement_of", &Core::PlacementOf, arg("views"))
      .def("publish", &Core::Publish, arg("placement"), arg("name") = "", arg("options") = py::none())
      .def("put", &Core::Put, arg("name"), arg("views"), arg("options"))
      .def("acquire", &Core::Acquire, arg("name"), arg("id") = 0, arg("generation") = 0, arg("private") = false,
           arg("wait_s") = 0.0, arg("broker_id") = py::bytes(), arg("note") = "", arg("newer_than") = 0)
      .def("acquire_many", &Core::AcquireMany, arg("wishes"), arg("private") = false, arg("wait_s") = 0.0,
           arg("note") = "")
      .def("note", &Core::Note, arg("info"), arg("note"))
      .def("withdraw", &Core::Withdraw, arg("name"), arg("id") = 0, arg("generation") = 0,
           arg("broker_id") = py::bytes())
      .def("claim", &Core::Claim, arg("name"), arg("newer_than"), arg("wait_s"), arg("lifetime_s"), arg("held") = 0)
      .def("release_claim", &Core::ReleaseClaim, arg("claim"))
      .def("outcome", &Core::OutcomeOf, arg("code"), arg("message"), arg("reason"), arg("request"), arg("timeout_s"))
      .def("open_channel", &Core::OpenChannel, arg("name"), arg("sends"), arg("terms"))
      .def("drain_channel", &Core::DrainChannel, arg("name"), arg("remove") = false)
      .def("open_watch", &Core::OpenWatch, arg("kinds"), arg("prefix") = "")
      .def("list", &Core::List, arg("prefix") = "")
      .def("stats", &Core::GetStats)
      .def("client_stats", &Core::GetClientStats)
      .def("server_info", &Core::GetServerInfo)
      .def("flush", &Core::Flush)
      .def("confirm", &Core::Confirm)
      .def("settle", &Core::Settle);
}

py::object Own(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

std::vector<View> ViewsOf(const py::sequence& objects) {
  std::vector<View> views;
  views.reserve(objects.size());
  for (const py::handle object : objects) {
    const View* view = ViewOf(object.ptr());
    if (view == nullptr) throw py::error_already_set();
    views.push_back(*view);
  }
  return views;
}

Broker& BrokerOf(PyObject* core) { return Native<Core>(core, g_core_type).broker(); }

Channel& ChannelOf(PyObject* end) { return Native<ChannelEnd>(end, g_channel_end_type).channel(); }

const PutOptions& OptionsOf(PyObject* options) { return py::cast<const PutOptions&>(py::handle(options)); }

std::optional<std::chrono::milliseconds> TimeoutOf(PyObject* seconds) {
  if (seconds == Py_None) return std::nullopt;
  return Milliseconds(py::cast<double>(py::handle(seconds)), "timeout_s");
}

PyObject* StatusErrorOf(const Status& status) { return ErrorOf(status).release().ptr(); }

PyObject* RaiseStatus(const Status& status) {
  PyErr_SetObject(g_status_error, ErrorOf(status).ptr());
  return nullptr;
}

std::optional<Acquired> TryAcquire(PyObject* core, std::string_view name, bool map_private) {
  return Native<Core>(core, g_core_type).TryAcquire(name, map_private);
}

}  // namespace arraybridge::python
