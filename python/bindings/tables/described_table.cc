// SPDX-License-Identifier: Apache-2.0
#include "python/bindings/tables/described_table.h"

#include <string>
#include <utility>

#include "python/bindings/core.h"
#include "python/bindings/tables/arrow_export.h"
#include "python/bindings/view.h"

namespace arraybridge::python {

namespace py = pybind11;

namespace {

using tables::Node;
using tables::Parts;

// A table, or one column of it, which keeps all of the table.
struct DescribedTable {
  std::shared_ptr<const Parts> parts;
  const Node& node;
};

void Throw(const Status& status) {
  if (status.ok()) return;
  RaiseStatus(status);
  throw py::error_already_set();
}

// Adds the facts of a View that the check and the structures need; the View itself is large.
void Add(const View& view, Parts& parts) {
  const bool named = view.dtype.empty() || IsNameOf(view.dtype, view.type);
  const bool plain = named && view.shape.size() == 1 && view.compact() && view.device.type == kDeviceCpu;
  parts.buffers.push_back({view.data, view.elements(), view.type, plain});
  parts.owners.push_back(view.owner);
  parts.nbytes += view.nbytes();
}

// The part [kind, node, first, count] of a structure, and all arrays of the share.
DescribedTable Read(const py::bytes& text, const py::list& views) {
  auto description = tables::ReadDescription(static_cast<std::string_view>(text));
  if (!description.ok()) Throw(description.status());
  const auto there = static_cast<int64_t>(views.size());
  const int64_t first = description->first, count = description->count;
  if (first > there || count > there - first)
    Throw(InvalidArgument("the share's structure contains a table of the arrays ", first, " to ", first + count, " of ",
                          there));
  auto parts = std::make_shared<Parts>();
  parts->description = *std::move(description);
  for (int64_t index = first; index < first + count; ++index) {
    const View* const view = ViewOf(PyList_GET_ITEM(views.ptr(), index));
    if (view == nullptr) throw py::error_already_set();
    Add(*view, *parts);
  }
  const Node& node = parts->description.node;
  Throw(tables::Check(node, parts->buffers));
  return {std::move(parts), node};
}

py::tuple Described(const Node& node) {
  py::tuple buffers(node.buffers.size()), children(node.children.size());
  for (size_t index = 0; index < node.buffers.size(); ++index)
    buffers[index] = node.buffers[index] == tables::kNone ? py::object(py::none()) : py::int_(node.buffers[index]);
  for (size_t index = 0; index < node.children.size(); ++index) children[index] = Described(node.children[index]);
  const py::object dictionary = node.dictionary == nullptr ? py::object(py::none()) : Described(*node.dictionary);
  return py::make_tuple(py::bytes(node.format), py::bytes(node.name), py::bytes(node.metadata), node.flags, node.length,
                        node.nulls, buffers, children, dictionary);
}

py::object ArrowSchemaOf(const DescribedTable& table) {
  Held<ArrowSchema> schema(new ArrowSchema{});
  tables::Export(table.node, table.parts, schema.get());
  return Own(CapsuleOf(std::move(schema), "arrow_schema").release());
}

py::tuple ArrowArrayOf(const DescribedTable& table) {
  Held<ArrowArray> array(new ArrowArray{});
  tables::Export(table.node, table.parts, array.get());
  return py::make_tuple(ArrowSchemaOf(table), Own(CapsuleOf(std::move(array), "arrow_array").release()));
}

py::object ArrowStreamOf(const DescribedTable& table) {
  Held<ArrowArrayStream> stream(new ArrowArrayStream{});
  tables::Export(table.node, table.parts, stream.get());
  return Own(CapsuleOf(std::move(stream), "arrow_array_stream").release());
}

DescribedTable ColumnOf(const DescribedTable& table, size_t index) {
  if (index >= table.node.children.size()) throw py::index_error();
  return {table.parts, table.node.children[index]};
}

}  // namespace

void AddDescribedTable(py::module_& module) {
  using py::arg;
  py::class_<DescribedTable>(module, "DescribedTable", py::is_final())
      .def(py::init(&Read), arg("text"), arg("views"))
      .def_property_readonly("kind", [](const DescribedTable& table) { return table.parts->description.kind; })
      .def_property_readonly("first", [](const DescribedTable& table) { return table.parts->description.first; })
      .def_property_readonly("count", [](const DescribedTable& table) { return table.parts->description.count; })
      .def_property_readonly("nbytes", [](const DescribedTable& table) { return table.parts->nbytes; })
      .def("__len__", [](const DescribedTable& table) { return table.node.length; })
      // Checks sizes and offsets again.
      .def("check", [](const DescribedTable& table) { Throw(tables::Check(table.node, table.parts->buffers)); })
      .def("column", &ColumnOf, arg("index"))
      .def("described", [](const DescribedTable& table) { return Described(table.node); })
      .def("arrow_schema", &ArrowSchemaOf)
      .def("arrow_array", &ArrowArrayOf)
      .def("arrow_stream", &ArrowStreamOf);
}

}  // namespace arraybridge::python
