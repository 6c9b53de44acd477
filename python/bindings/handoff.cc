// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/handoff.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/channel_base.h"
#include "python/bindings/core.h"
#include "python/bindings/exchange.h"
#include "python/bindings/ndarray.h"
#include "python/bindings/plan_note.h"
#include "python/bindings/publishing.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/share_info.h"
#include "python/bindings/shortcut.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

constexpr Py_ssize_t kRankMax = 8;             // of arrays that every framework accepts
constexpr uint64_t kCopiedWithGil = 64 << 10;  // about 10 us, for which other threads of Python wait

// Names, set once under the import lock; they live as long as the process.
struct HandoffNames {
  PyObject* fast;
  PyObject* known_core;
  PyObject* error_of;
  PyObject* sender;
  PyObject* receiver;
};
HandoffNames g_names;

// The attribute `_fast` of a Broker.
enum BrokerField : uint8_t { kConnection, kForms, kNote, kGranted, kBrokerFields };

bool IsFast(PyObject* object) { return PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == kBrokerFields; }

// The Core that a Connection has already made.
Ref CoreOf(PyObject* connection) {
  Ref core(PyObject_GetAttr(connection, g_names.known_core));
  return core == nullptr || core.get() == Py_None ? nullptr : std::move(core);
}

// A new reference, because another thread may change the table.
Ref Item(PyObject* table, PyObject* key) {
  return PyDict_CheckExact(table) ? Ref(Py_XNewRef(PyDict_GetItemWithError(table, key))) : nullptr;
}

// `broker`: the `_fast` of one.
PyObject* ResultOf(const Delivered& delivered, PyObject* broker, PyObject* framework) {
  PyObject* const result = delivered.result.get();
  if (delivered.plan == nullptr)
    return PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(broker, kGranted), result, framework, nullptr);
  return NotePlan(PyTuple_GET_ITEM(broker, kNote), delivered.plan.get()) ? Py_NewRef(result) : nullptr;
}

// Raises what a Channel makes of a refusal.
PyObject* RaiseRefused(PyObject* channel, PyObject* role, const Ref& end, const Status& status, PyObject* timeout) {
  const Ref refused(StatusErrorOf(status));
  if (refused == nullptr) return nullptr;
  const Ref error(
      PyObject_CallMethodObjArgs(channel, g_names.error_of, role, end.get(), refused.get(), timeout, nullptr));
  if (error == nullptr) return nullptr;
  PyException_SetCause(error.get(), nullptr);  // raise ... from None
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.get())), error.get());
  return nullptr;
}

// Reads an array into a new `view` with its framework's function for ordinary arrays. False, possibly with an error: it
// is not ordinary.
bool ReadOrdinary(PyObject* maker, PyObject* array, View& view) {
  if (ReadNdarray(array, view)) return true;
  if (PyCFunction_CheckExact(maker) && PyCFunction_GET_FUNCTION(maker) == &Wrap) {
    DLManagedTensorVersioned* const tensor = TensorOf(array);
    if (tensor == nullptr) return false;
    auto read = ImportVersioned(tensor);
    if (!read.ok()) return DeleteTensor(tensor), false;
    view = *std::move(read);
  } else {
    const Ref made(PyObject_CallOneArg(maker, array));
    if (made == nullptr || !IsView(made.get())) return false;
    view = *ViewOf(made.get());
  }
  return TraitsOf(view).has_value();
}

// None: the array takes the careful way.
PyObject* NotOrdinary() { return MayGoOn() ? Py_NewRef(Py_None) : nullptr; }

// The sizes of a shape that is an int or a tuple of ints. False, without an error: it is another, has no elements, or
// more than every framework accepts.
bool SizesOf(PyObject* shape, std::vector<int64_t>& sizes) {
  const auto add = [&sizes](PyObject* number) {
    if (!PyLong_CheckExact(number)) return false;
    sizes.push_back(PyLong_AsLongLong(number));
    if (sizes.back() == -1 && PyErr_Occurred() != nullptr) PyErr_Clear();
    return sizes.back() > 0;
  };
  if (!PyTuple_CheckExact(shape)) return add(shape);
  if (PyTuple_GET_SIZE(shape) > kRankMax) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(shape); ++i) {
    if (!add(PyTuple_GET_ITEM(shape, i))) return false;
  }
  return true;
}

}  // namespace

int InternHandoffNames() {
  g_names = {PyUnicode_InternFromString("_fast"), PyUnicode_InternFromString("known_core"),
             PyUnicode_InternFromString("_error_of"), PyUnicode_InternFromString("sender"),
             PyUnicode_InternFromString("receiver")};
  return PyErr_Occurred() == nullptr ? 0 : -1;
}

std::optional<PyObject*> GetHeld(PyObject* broker, PyObject* name, PyObject* framework) {
  return Guarded(std::optional<PyObject*>(), [=]() -> std::optional<PyObject*> {
    const Ref fast(PyObject_GetAttr(broker, g_names.fast));
    if (fast == nullptr || !IsFast(fast.get())) return std::nullopt;
    const Ref form = Entry(PyTuple_GET_ITEM(fast.get(), kForms), framework, 2);
    const Ref core = form == nullptr ? nullptr : CoreOf(PyTuple_GET_ITEM(fast.get(), kConnection));
    if (core == nullptr) return std::nullopt;
    const Delivered held =
        AcquireAs(core.get(), name, PyTuple_GET_ITEM(form.get(), 0) == Py_True, PyTuple_GET_ITEM(form.get(), 1));
    if (held.result == nullptr) return std::nullopt;
    return ResultOf(held, fast.get(), framework);
  });
}

// Small arrays are copied with the GIL, which takes less time than to release and take it.
std::optional<PyObject*> SendOrdinary(PyObject* channel, PyObject* array, PyObject* timeout) {
  const ChannelBase* const base = ChannelBaseOf(channel);
  const Ref end = base == nullptr ? nullptr : Item(base->ends, g_names.sender);
  const Ref maker = end == nullptr ? nullptr : Item(base->makers, reinterpret_cast<PyObject*>(Py_TYPE(array)));
  if (maker == nullptr) return std::nullopt;
  Ref core;
  Broker* native = nullptr;
  Channel* sender = nullptr;
  View view;
  Channel::SendOptions options;
  bool sent = false;
  const bool prepared = Guarded(false, [&] {
    sender = &ChannelOf(end.get());
    if (timeout != Py_None) options.timeout = TimeoutOf(timeout);
    if (base->waits) options.on_peer_death = PeerDeath::kWait;
    if (!ReadOrdinary(maker.get(), array, view)) return false;
    sent = view.nbytes() <= kCopiedWithGil && sender->TrySend({&view, 1}, options);
    if (sent || !IsFast(base->broker)) return sent;
    core = CoreOf(PyTuple_GET_ITEM(base->broker, kConnection));
    if (core != nullptr) native = &BrokerOf(core.get());
    return core != nullptr;
  });
  if (!prepared) return std::nullopt;
  if (sent) return Py_NewRef(Py_None);
  const auto passed = WithoutGil([&] { return native->Send(*sender, {&view, 1}, std::move(options), true); });
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!passed.ok()) return RaiseRefused(channel, g_names.sender, end, passed.status(), timeout);
  return *passed == Broker::Passed::kInPlace ? PyObject_CallOneArg(base->freeze, array) : Py_NewRef(Py_None);
}

std::optional<PyObject*> ReceiveOrdinary(PyObject* channel, PyObject* framework, PyObject* timeout) {
  ChannelBase* const base = ChannelBaseOf(channel);
  const Ref end = base == nullptr ? nullptr : Item(base->ends, g_names.receiver);
  if (end == nullptr || !IsFast(base->broker) || PySequence_Size(base->unclaimed) != 0) return std::nullopt;
  LatestDelivery& latest = base->latest;
  const Ref form = latest.framework == framework ? Ref(Py_NewRef(latest.form))
                                                 : Entry(PyTuple_GET_ITEM(base->broker, kForms), framework, 2);
  if (form == nullptr) return std::nullopt;
  Channel* receiver = nullptr;
  Channel::ReceiveOptions options;
  const bool prepared = Guarded(false, [&] {
    receiver = &ChannelOf(end.get());
    options = ReceiveOptionsOf(PyTuple_GET_ITEM(form.get(), 0), timeout, base->waits);
    return true;
  });
  if (!prepared) return std::nullopt;
  auto acquired = Received(*receiver, options);
  if (PyErr_Occurred() != nullptr) return nullptr;
  if (!acquired.ok()) return RaiseRefused(channel, g_names.receiver, end, acquired.status(), timeout);
  const Delivered delivered = DeliverAs(*acquired, framework, form.get(), latest);
  return delivered.result == nullptr ? nullptr : ResultOf(delivered, base->broker, framework);
}

PyObject* PutOrdinary(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 5) return PyErr_Format(PyExc_TypeError, "put takes a Core, a maker, a name, an array, and PutOptions");
    Broker& broker = BrokerOf(arguments[0]);
    const PutOptions& options = OptionsOf(arguments[4]);
    Py_ssize_t length = 0;
    const char* const name = arguments[2] == Py_None ? "" : PyUnicode_AsUTF8AndSize(arguments[2], &length);
    if (name == nullptr || (length == 0 && arguments[2] != Py_None)) return NotOrdinary();
    View view;
    if (!ReadOrdinary(arguments[1], arguments[3], view)) return NotOrdinary();
    const auto put = WithoutGil([&] {
      return PublishArrays(broker, {&view, 1}, std::string(name, static_cast<size_t>(length)), options);
    });
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (!put.ok()) return RaiseStatus(put.status());
    const Ref info(options.publish.wait ? NewShareInfo(std::make_shared<Share>(put->share)) : Py_NewRef(Py_None));
    return info == nullptr ? nullptr : PyTuple_Pack(2, info.get(), put->in_place ? Py_True : Py_False);
  });
}

PyObject* EmptyArray(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 4) return PyErr_Format(PyExc_TypeError, "empty_array takes a Core, a shape, a dtype and show");
    Broker& broker = BrokerOf(arguments[0]);
    ArraySpec spec;
    const char* dtype = nullptr;
    if (!PyArg_ParseTuple(arguments[2], "s(bbH)", &dtype, &spec.type.code, &spec.type.bits, &spec.type.lanes))
      return nullptr;
    spec.dtype = dtype;
    if (!SizesOf(arguments[1], spec.shape) || !spec.compact_bytes().ok()) Py_RETURN_NONE;
    const auto placement = WithoutGil([&] { return broker.Empty({&spec, 1}); });
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (!placement.ok()) return RaiseStatus(placement.status());
    const Ref view(NewView(View(placement->views().front())));
    return view == nullptr ? nullptr : PyObject_CallOneArg(arguments[3], view.get());
  });
}

}  // namespace arraybridge::python
