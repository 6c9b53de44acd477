#include "python/bindings/handoff.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "python/bindings/core.h"
#include "python/bindings/exchange.h"
#include "python/bindings/publishing.h"
#include "python/bindings/python_owner.h"
#include "python/bindings/share_info.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

constexpr Py_ssize_t kRankMax = 8;  // of arrays that every framework accepts

// Reads an array with its framework's function for ordinary arrays. Nothing, possibly with an error: it is not
// ordinary.
std::optional<View> OrdinaryOf(PyObject* maker, PyObject* array) {
  std::optional<View> view;
  if (PyCFunction_CheckExact(maker) && PyCFunction_GET_FUNCTION(maker) == &Wrap) {
    DLManagedTensorVersioned* const tensor = TensorOf(array);
    if (tensor == nullptr) return std::nullopt;
    auto read = ImportVersioned(tensor);
    if (!read.ok()) return DeleteTensor(tensor), std::nullopt;
    view = *std::move(read);
  } else {
    const Ref made(PyObject_CallOneArg(maker, array));
    if (made == nullptr || !IsView(made.get())) return std::nullopt;
    view = *ViewOf(made.get());
  }
  return TraitsOf(*view).has_value() ? std::move(view) : std::nullopt;
}

// None: the array takes the careful way, which reports its errors. KeyboardInterrupt and SystemExit are passed on.
PyObject* NotOrdinary() {
  if (PyErr_Occurred() != nullptr && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
  PyErr_Clear();
  Py_RETURN_NONE;
}

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

PyObject* PutOrdinary(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 5) return PyErr_Format(PyExc_TypeError, "put takes a Core, a maker, a name, an array, and PutOptions");
    Broker& broker = BrokerOf(arguments[0]);
    const PutOptions& options = OptionsOf(arguments[4]);
    Py_ssize_t length = 0;
    const char* const name = arguments[2] == Py_None ? "" : PyUnicode_AsUTF8AndSize(arguments[2], &length);
    if (name == nullptr || (length == 0 && arguments[2] != Py_None)) return NotOrdinary();
    const std::optional<View> view = OrdinaryOf(arguments[1], arguments[3]);
    if (!view) return NotOrdinary();
    const auto put = WithoutGil([&] {
      return PublishArrays(broker, {&*view, 1}, std::string(name, static_cast<size_t>(length)), options);
    });
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (!put.ok()) return RaiseStatus(put.status());
    const Ref info(options.said.wait ? NewShareInfo(std::make_shared<Share>(put->share)) : Py_NewRef(Py_None));
    return info == nullptr ? nullptr : PyTuple_Pack(2, info.get(), put->in_place ? Py_True : Py_False);
  });
}

PyObject* SendOrdinary(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 6)
      return PyErr_Format(PyExc_TypeError, "send takes a ChannelEnd, a Core, a maker, an array, a timeout, and waits");
    Channel& channel = ChannelOf(arguments[0]);
    Broker& broker = BrokerOf(arguments[1]);
    Channel::SendOptions options;
    options.timeout = TimeoutOf(arguments[4]);
    if (arguments[5] == Py_True) options.on_peer_death = PeerDeath::kWait;
    const std::optional<View> view = OrdinaryOf(arguments[2], arguments[3]);
    if (!view) return NotOrdinary();
    const auto in_place = WithoutGil([&] { return SendArrays(broker, channel, {&*view, 1}, std::move(options)); });
    if (PyErr_Occurred() != nullptr) return nullptr;
    if (!in_place.ok()) return RaiseStatus(in_place.status());
    return PyBool_FromLong(*in_place);
  });
}

PyObject* RoomFor(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  return Guarded(static_cast<PyObject*>(nullptr), [=]() -> PyObject* {
    if (count != 4) return PyErr_Format(PyExc_TypeError, "room takes a Core, a shape, a dtype with its code, and show");
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
    const Ref view(NewView(placement->views().front()));
    return view == nullptr ? nullptr : PyObject_CallOneArg(arguments[3], view.get());
  });
}

}  // namespace arraybridge::python
