// SPDX-License-Identifier: Apache-2.0
// The fast path of arraybridge/conversion/shortcut.py. The Python module decides which arrays may use it and owns the
// tables; this file looks them up without a Python frame per step. If both sides support DLPack's versioned dialect,
// the producer's tensor is passed to the consumer unchanged, provided that it equals the one that a View would export.
#include <dlpack/dlpack.h>

#include <utility>

#include "python/bindings/core.h"
#include "python/bindings/exchange.h"
#include "python/bindings/ndarray.h"
#include "python/bindings/plan_note.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/share_info.h"
#include "python/bindings/shortcut.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

struct Delete {
  void operator()(DLManagedTensorVersioned* tensor) const { DeleteTensor(tensor); }
};
using Tensor = std::unique_ptr<DLManagedTensorVersioned, Delete>;

// (type(array), *wishes).
PyObject* KeyOf(PyObject* array, PyObject* const* wishes, Py_ssize_t count) {
  PyObject* key = PyTuple_New(count + 1);
  if (key == nullptr) return nullptr;
  PyTuple_SET_ITEM(key, 0, Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(array))));
  for (Py_ssize_t i = 0; i < count; ++i) PyTuple_SET_ITEM(key, i + 1, Py_NewRef(wishes[i]));
  return key;
}

// (plan, show, count); nullptr, possibly without an error: there is no plan.
Ref Decided(uint64_t traits, PyObject* plans) {
  const Ref number(PyLong_FromUnsignedLongLong(traits));
  return Entry(plans, number.get(), 3);
}

// The fields of shortcut.py's Route.
struct Route {
  explicit Route(PyObject* tuple)
      : read(PyTuple_GET_ITEM(tuple, 0)),
        caps_now(PyTuple_GET_ITEM(tuple, 1)),
        caps(PyTuple_GET_ITEM(tuple, 2)),
        plans(PyTuple_GET_ITEM(tuple, 3)) {}

  // True if the target's configuration has not changed since the plans were made: its caps are the same object.
  bool AsBefore() const {
    if (caps_now == Py_None) return true;
    const Ref now(PyObject_CallNoArgs(caps_now));
    return now.get() == caps;
  }

  PyObject* const read;
  PyObject* const caps_now;
  PyObject* const caps;
  PyObject* const plans;
};

bool Count(const Ref& decided) { return CountPlan(PyTuple_GET_ITEM(decided.get(), 2)); }

// Returns the result and its plan, and counts it.
PyObject* Answer(const Ref& decided, const Ref& found) {
  if (found == nullptr || !Count(decided)) return nullptr;
  return PyTuple_Pack(2, found.get(), PyTuple_GET_ITEM(decided.get(), 0));
}

PyObject* OfView(const Route& route, PyObject* array, PyObject* view) {
  if (view == nullptr || !IsView(view)) return nullptr;
  const auto traits = TraitsOf(*ViewOf(view));
  if (!traits.has_value()) return nullptr;
  const Ref decided(Decided(*traits, route.plans));
  if (decided == nullptr) return nullptr;
  PyObject* const show = PyTuple_GET_ITEM(decided.get(), 1);
  return Answer(decided, Ref(show == Py_None ? Py_NewRef(array) : PyObject_CallOneArg(show, view)));
}

// (result, key of its plan): the source's framework has made the result itself.
PyObject* OfPair(const Route& route, PyObject* pair) {
  if (PyTuple_GET_SIZE(pair) != 2) return nullptr;
  const Ref decided(Entry(route.plans, PyTuple_GET_ITEM(pair, 1), 3));
  return decided == nullptr ? nullptr : Answer(decided, Ref(Py_NewRef(PyTuple_GET_ITEM(pair, 0))));
}

PyObject* OfTensor(const Route& route, PyObject* array, Tensor tensor) {
  if (!IsPlain(*tensor)) {
    const Ref view(Adopt(tensor.get(), kLegacyStream));
    if (view != nullptr) static_cast<void>(tensor.release());  // the View owns it
    return OfView(route, array, view.get());
  }
  const DLTensor& plain = tensor->dl_tensor;
  const uint64_t traits = TraitsOf({plain.dtype.code, plain.dtype.bits, plain.dtype.lanes}, plain.data,
                                   (tensor->flags & kDlpackReadOnly) != 0, static_cast<size_t>(plain.ndim));
  const Ref decided(Decided(traits, route.plans));
  if (decided == nullptr) return nullptr;
  PyObject* const show = PyTuple_GET_ITEM(decided.get(), 1);
  // A consumer that fails after it has taken ownership may have deleted the tensor, so the tensor is leaked.
  if (PyTypeObject* const type = ExchangedType(show); type != nullptr)
    return Answer(decided, Ref(ExchangeTensor(type, tensor.release())));
  if (show == Py_None) return Answer(decided, Ref(Py_NewRef(array)));
  if (PyObject* const take = TakerOfCapsules(show); take != nullptr) {
    Result<View> read = ImportVersioned(tensor.get());
    if (!read.ok()) return nullptr;
    read->owner = OwnerOf(std::move(read->owner));
    static_cast<void>(tensor.release());
    return Answer(decided, Ref(TakeCapsule(take, *read)));
  }
  const Ref view(Adopt(tensor.get(), kLegacyStream));
  if (view == nullptr) return nullptr;
  static_cast<void>(tensor.release());
  return Answer(decided, Ref(PyObject_CallOneArg(show, view.get())));
}

// nullptr, possibly without an error: this array takes the full path.
PyObject* Taken(PyObject* routes, PyObject* array, PyObject* const* wishes, Py_ssize_t count) {
  const Ref key(KeyOf(array, wishes, count));
  const Ref found(Entry(routes, key.get(), 4));
  if (found == nullptr) return nullptr;
  const Route route(found.get());
  if (!route.AsBefore()) return nullptr;
  if (PyCFunction_CheckExact(route.read) && PyCFunction_GET_FUNCTION(route.read) == &Wrap) {
    Tensor tensor(TensorOf(array));
    return tensor == nullptr ? nullptr : OfTensor(route, array, std::move(tensor));
  }
  const Ref read(PyObject_CallOneArg(route.read, array));
  if (read != nullptr && PyTuple_CheckExact(read.get())) return OfPair(route, read.get());
  return OfView(route, array, read.get());
}

// Of the one array of a share; nothing: it has others, or needs more than a plan.
std::optional<uint64_t> TraitsOfOne(const Acquired& acquired) {
  if (acquired.views.size() != 1 || !acquired.share->structure.empty()) return std::nullopt;
  return TraitsOf(acquired.views[0]);
}

// REQUIRES: the View has traits.
PyObject* Show(PyObject* show, PyObject* view) {
  const bool is_ndarray = PyCFunction_CheckExact(show) && PyCFunction_GET_FUNCTION(show) == &Ndarray;
  return is_ndarray ? NdarrayOfOrdinary(view) : PyObject_CallOneArg(show, view);
}

// The View in the form that was decided, counted. No result: with an error.
Delivered DeliverView(const Ref& decided, PyObject* view) {
  Ref shown(Show(PyTuple_GET_ITEM(decided.get(), 1), view));
  if (shown == nullptr || !Count(decided)) return {};
  return {std::move(shown), Ref(Py_NewRef(PyTuple_GET_ITEM(decided.get(), 0)))};
}

// The bytes of a name that the fast path looks up; nothing for other objects.
std::optional<std::string_view> NameOf(PyObject* name) {
  if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_COMPACT_ASCII(name)) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(PyUnicode_1BYTE_DATA(name)),
                          static_cast<size_t>(PyUnicode_GET_LENGTH(name)));
}

// (ShareInfo, [View, ...]), as returned by Core.acquire.
PyObject* FoundOf(Acquired acquired) {
  const Ref views(PyList_New(static_cast<Py_ssize_t>(acquired.views.size())));
  if (views == nullptr) return nullptr;
  for (size_t i = 0; i < acquired.views.size(); ++i) {
    PyObject* const view = NewView(std::move(acquired.views[i]));
    if (view == nullptr) return nullptr;
    PyList_SET_ITEM(views.get(), static_cast<Py_ssize_t>(i), view);
  }
  const Ref share(NewShareInfo(std::move(acquired.share), std::move(acquired.sent)));
  if (share == nullptr) return nullptr;
  return PyTuple_Pack(2, share.get(), views.get());
}

}  // namespace

Ref Entry(PyObject* table, PyObject* key, Py_ssize_t size) {
  if (!PyDict_CheckExact(table) || key == nullptr) return nullptr;
  PyObject* entry = PyDict_GetItemWithError(table, key);
  if (entry == nullptr || !PyTuple_CheckExact(entry) || PyTuple_GET_SIZE(entry) != size) return nullptr;
  return Ref(Py_NewRef(entry));
}

bool MayGoOn() {
  if (PyErr_Occurred() != nullptr && !PyErr_ExceptionMatches(PyExc_Exception)) return false;
  PyErr_Clear();
  return true;
}

Delivered AcquireAs(PyObject* core, PyObject* name, bool map_private, PyObject* plans) {
  const auto text = NameOf(name);
  auto acquired = text.has_value() ? TryAcquire(core, *text, map_private) : std::nullopt;
  if (!acquired.has_value()) return {};
  const auto traits = TraitsOfOne(*acquired);
  const Ref decided = traits ? Decided(*traits, plans) : nullptr;
  if (decided == nullptr && PyErr_Occurred() != nullptr) return {};
  if (decided == nullptr) return {Ref(FoundOf(*std::move(acquired))), nullptr};
  const Ref view(NewView(std::move(acquired->views[0])));
  return view == nullptr ? Delivered() : DeliverView(decided, view.get());
}

PyObject* TryAcquireAs(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 4) return PyErr_Format(PyExc_TypeError, "try_acquire takes a Core, a name, private, and plans");
    const Delivered held = AcquireAs(arguments[0], arguments[1], arguments[2] == Py_True, arguments[3]);
    if (held.result != nullptr)
      return PyTuple_Pack(2, held.result.get(), held.plan == nullptr ? Py_None : held.plan.get());
    if (!MayGoOn()) return nullptr;
    Py_RETURN_NONE;
  });
}

namespace {

Delivered DeliverOne(Acquired& acquired, const Ref& decided) {
  if (decided != nullptr) {
    const Ref view(NewView(std::move(acquired.views[0])));
    if (view == nullptr) return {};
    Delivered delivered = DeliverView(decided, view.get());
    if (delivered.result != nullptr) return delivered;
    acquired.views[0] = *ViewOf(view.get());
  }
  if (!MayGoOn()) return {};
  return {Ref(FoundOf(std::move(acquired))), nullptr};
}

}  // namespace

Delivered DeliverAs(Acquired& acquired, PyObject* plans) {
  const auto traits = TraitsOfOne(acquired);
  return DeliverOne(acquired, traits ? Decided(*traits, plans) : nullptr);
}

// The old references are dropped once all fields are set, because their destruction may run any code.
Delivered DeliverAs(Acquired& acquired, PyObject* framework, PyObject* form, LatestDelivery& latest) {
  const bool as_before = latest.share == acquired.share && latest.form == form && acquired.views.size() == 1 &&
                         latest.alignment == AlignmentOf(acquired.views[0].data);
  if (as_before) return DeliverOne(acquired, Ref(Py_NewRef(latest.decided)));
  const auto traits = TraitsOfOne(acquired);
  const Ref decided = traits ? Decided(*traits, PyTuple_GET_ITEM(form, 1)) : nullptr;
  if (decided == nullptr) {
    const Ref outdated(std::exchange(latest.framework, nullptr));  // the Broker may have made the form anew
    return DeliverOne(acquired, nullptr);
  }
  const Ref before[] = {Ref(std::exchange(latest.framework, Py_NewRef(framework))),
                        Ref(std::exchange(latest.form, Py_NewRef(form))),
                        Ref(std::exchange(latest.decided, Py_NewRef(decided.get())))};
  latest.share = acquired.share;
  latest.alignment = AlignmentOf(acquired.views[0].data);
  return DeliverOne(acquired, decided);
}

Channel::ReceiveOptions ReceiveOptionsOf(PyObject* map_private, PyObject* timeout, bool waits) {
  return {.mode = map_private == Py_True ? MapMode::kPrivate : MapMode::kShared,
          .timeout = TimeoutOf(timeout),
          .on_peer_death = waits ? PeerDeath::kWait : PeerDeath::kTell};
}

Result<Acquired> Received(Channel& receiver, const Channel::ReceiveOptions& options) {
  if (auto taken = receiver.TryReceive(options.mode)) return *std::move(taken);
  return WithoutGil([&] { return receiver.Receive(options); });
}

PyObject* ReceiveAs(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 5)
      return PyErr_Format(PyExc_TypeError, "receive takes a ChannelEnd, private, a timeout, waits, plans");
    Channel& channel = ChannelOf(arguments[0]);
    auto acquired = Received(channel, ReceiveOptionsOf(arguments[1], arguments[2], arguments[3] == Py_True));
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (!acquired.ok()) return RaiseStatus(acquired.status());
    const Delivered delivered = DeliverAs(*acquired, arguments[4]);
    if (delivered.result == nullptr) return nullptr;
    return PyTuple_Pack(2, delivered.result.get(), delivered.plan == nullptr ? Py_None : delivered.plan.get());
  });
}

PyObject* Shortcut(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count < 2) return PyErr_Format(PyExc_TypeError, "shortcut takes tables, an array, and wishes");
    PyObject* const taken = Taken(arguments[0], arguments[1], arguments + 2, count - 2);
    if (taken != nullptr || !MayGoOn()) return taken;
    Py_RETURN_NONE;
  });
}

}  // namespace arraybridge::python
