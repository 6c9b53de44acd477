// SPDX-License-Identifier: Apache-2.0
// Functions that make a setting's Value from the place of its value, its reader, and the text of its default.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "daemon/config/quantity.h"
#include "daemon/config/setting.h"

namespace arraybridge::daemon {

// The texts of defaults.
inline std::string TextOf(const std::string& text) { return text; }
inline std::string TextOf(uint64_t number) { return std::to_string(number); }
inline std::string TextOf(std::chrono::milliseconds time) { return WrittenDuration(time); }
inline std::string TextOf(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

// `place(draft, table)` is where the value goes.
template <class Place, class Read>
Value Into(Place place, Read read, std::string fallback) {
  Value value;
  value.read = [place, read](std::string_view text, const std::string& table, Draft& draft) {
    return Store(read(text), &place(draft, table));
  };
  value.fallback = std::move(fallback);
  return value;
}

// `field`: the value that a reload copies, as a member of Config or a function from Config to it.
template <class Field>
Value Adopting(Field field, Value value) {
  value.adopt = [field](const Config& from, Config& to) { std::invoke(field, to) = std::invoke(field, from); };
  value.reloads = kIsReloadable<std::remove_cvref_t<std::invoke_result_t<Field, Config&>>>;
  return value;
}

// A value that is stored in Config directly.
template <class Field, class Read>
Value In(Field field, Read read, std::string fallback) {
  const auto place = [field](Draft & draft, const std::string&) -> auto& { return std::invoke(field, draft.config); };
  return Adopting(field, Into(place, read, std::move(fallback)));
}
template <class Field, class Read>
Value In(Field field, Read read) {
  const Config defaults;
  return In(field, read, TextOf(std::invoke(field, defaults)));
}

// A value that resolve.cc converts into a value of Config.
template <class T, class Read>
Value InDraft(T Draft::*field, Read read, std::string fallback = "") {
  const auto place = [field](Draft & draft, const std::string&) -> auto& { return draft.*field; };
  return Into(place, read, std::move(fallback));
}

// Adds to `usual`, the value for all namespaces or GPUs, the value `own` of a namespace or GPU that has its own table.
template <class Table, class T, class Read>
Value WithTables(Value usual, std::map<std::string, Table> Draft::*tables, T Table::*own, Read read) {
  usual.read = [read_usual = usual.read, tables, own, read](auto text, const auto& table, Draft& draft) {
    if (table.empty()) return read_usual(text, table, draft);
    return Store(read(text), &((draft.*tables)[table].*own));
  };
  usual.has_tables = true;
  return usual;
}

}  // namespace arraybridge::daemon
