// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/share_info.h"

#include <new>
#include <string>
#include <utility>

#include "python/bindings/python_owner.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace {

struct ShareInfoObject {
  PyObject_HEAD std::shared_ptr<const Share> share;
  Sent sent;
};

PyTypeObject* g_share_info_type = nullptr;  // set once, under the import lock

const Share& Self(PyObject* self) { return *reinterpret_cast<ShareInfoObject*>(self)->share; }

void Dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  reinterpret_cast<ShareInfoObject*>(self)->share.~shared_ptr();
  reinterpret_cast<ShareInfoObject*>(self)->sent.~Sent();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* Bytes(const std::string& value) {
  return PyBytes_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
}
// The broker checks UTF-8; a faulty broker must not make an attribute unreadable.
PyObject* Text(std::string_view value) {
  return PyUnicode_DecodeUTF8(value.data(), static_cast<Py_ssize_t>(value.size()), "replace");
}

PyObject* ArrayOf(const ArraySpec& spec) {
  Ref shape(TupleOf(spec.shape));
  Ref strides(TupleOf(spec.strides.empty() ? CompactStrides(spec.shape) : spec.strides));
  if (shape == nullptr || strides == nullptr) return nullptr;
  return Py_BuildValue("(N(iii)NNK)", Text(spec.dtype), int{spec.type.code}, int{spec.type.bits}, int{spec.type.lanes},
                       shape.release(), strides.release(), static_cast<unsigned long long>(spec.offset));
}

PyObject* Arrays(PyObject* self, void*) {
  return Guarded<>(static_cast<PyObject*>(nullptr), [self]() -> PyObject* {
    const Share& share = Self(self);
    Ref list(PyList_New(static_cast<Py_ssize_t>(share.arrays.size())));
    if (list == nullptr) return nullptr;
    for (size_t i = 0; i < share.arrays.size(); ++i) {
      PyObject* array = ArrayOf(share.arrays[i]);
      if (array == nullptr) return nullptr;
      PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), array);
    }
    return list.release();
  });
}

PyObject* Id(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(Self(self).id); }
PyObject* BrokerId(PyObject* self, void*) { return Bytes(Self(self).broker_id); }
PyObject* Namespace(PyObject* self, void*) { return Text(Self(self).ns); }
PyObject* Name(PyObject* self, void*) { return Text(Self(self).name); }
PyObject* Generation(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(Self(self).generation); }
PyObject* Size(PyObject* self, void*) { return PyLong_FromUnsignedLongLong(Self(self).size); }
PyObject* DeviceOf(PyObject* self, void*) {
  return Py_BuildValue("(ii)", static_cast<int>(Self(self).device.type), static_cast<int>(Self(self).device.id));
}
PyObject* Kind(PyObject* self, void*) { return Text(NameOf(Self(self).kind)); }
PyObject* Enforced(PyObject* self, void*) {
  return PyBool_FromLong(Self(self).immutability == Immutability::kEnforced);
}
PyObject* Structure(PyObject* self, void*) { return Bytes(Self(self).structure); }
PyObject* Metadata(PyObject* self, void*) { return Bytes(Self(self).metadata); }
PyObject* Unnamed(PyObject* self, void*) { return PyBool_FromLong(Self(self).unnamed); }
PyObject* SentOf(PyObject* self, void*) {
  const Sent& sent = reinterpret_cast<ShareInfoObject*>(self)->sent;
  if (sent.sender == nullptr) Py_RETURN_NONE;
  return Py_BuildValue("(KKKKN)", static_cast<unsigned long long>(sent.sequence),
                       static_cast<unsigned long long>(sent.stream), static_cast<unsigned long long>(sent.time_ns),
                       static_cast<unsigned long long>(sent.sender->process_id), Text(sent.sender->client));
}

PyGetSetDef g_attributes[] = {
    {"id", Id, nullptr, "within one life of the broker", nullptr},
    {"broker_id", BrokerId, nullptr, "16 bytes: which life", nullptr},
    {"namespace", Namespace, nullptr, nullptr, nullptr},
    {"name", Name, nullptr, nullptr, nullptr},
    {"generation", Generation, nullptr, nullptr, nullptr},
    {"arrays", Arrays, nullptr, "(dtype name, code, shape, strides in elements, offset in bytes)", nullptr},
    {"size", Size, nullptr, "bytes", nullptr},
    {"device", DeviceOf, nullptr, "DLPack type and id", nullptr},
    {"kind", Kind, nullptr, "how its memory comes to this process", nullptr},
    {"enforced", Enforced, nullptr, "nobody can write the bytes any more", nullptr},
    {"structure", Structure, nullptr, nullptr, nullptr},
    {"metadata", Metadata, nullptr, nullptr, nullptr},
    {"unnamed", Unnamed, nullptr, nullptr, nullptr},
    {"sent", SentOf, nullptr, "(sequence, stream, time_ns, process_id, client) of a share from a channel, or None",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

}  // namespace

int AddShareInfoType(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
      {Py_tp_getset, g_attributes},
      {Py_tp_doc, const_cast<char*>("What is known about a published share. Immutable.")},
      {0, nullptr},
  };
  PyType_Spec spec{"arraybridge._core.ShareInfo", sizeof(ShareInfoObject), 0,
                   Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE, slots};
  g_share_info_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (g_share_info_type == nullptr) return -1;
  return PyModule_AddObjectRef(module, "ShareInfo", reinterpret_cast<PyObject*>(g_share_info_type));
}

const Share* ShareOf(PyObject* object) {
  if (Py_TYPE(object) == g_share_info_type) return &Self(object);
  PyErr_Format(PyExc_TypeError, "a ShareInfo is needed, not %s", Py_TYPE(object)->tp_name);
  return nullptr;
}

PyObject* NewShareInfo(std::shared_ptr<const Share> share, Sent sent) {
  PyObject* self = g_share_info_type->tp_alloc(g_share_info_type, 0);
  if (self == nullptr) return nullptr;
  new (&reinterpret_cast<ShareInfoObject*>(self)->share) std::shared_ptr<const Share>(std::move(share));
  new (&reinterpret_cast<ShareInfoObject*>(self)->sent) Sent(std::move(sent));
  return self;
}

}  // namespace arraybridge::python
