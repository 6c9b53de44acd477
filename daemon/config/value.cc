#include "daemon/config/value.h"

#include <algorithm>

#include "daemon/config/access_list.h"
#include "daemon/config/quantity.h"

namespace arraybridge {

Status StoreText(std::string_view text, std::string* place) {
  *place = std::string(text);
  return Ok();
}

// A bare name is found as the system's own is. Another relative one would be another file for whoever stands elsewhere.
Status StoreCudaDriver(std::string_view text, std::string* place) {
  constexpr std::string_view kNameLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
  const bool is_name =
      text.find(".so") != std::string_view::npos && text.find_first_not_of(kNameLetters) == std::string_view::npos;
  if (text == "auto" || text == "none" || text.starts_with('/') || is_name) return StoreText(text, place);
  return InvalidArgument("'", text,
                         "' is neither auto nor none nor a library's absolute path or name, such as libcuda.so.1");
}

// A spin that is longer than a sleep takes only burns the processor.
Status StoreSpin(std::string_view text, std::chrono::microseconds* place) {
  constexpr uint64_t kLongest = 1000;
  const auto number = ReadNumber(text);
  if (!number.ok() || *number > kLongest) {
    return InvalidArgument("'", text, "' is not 0 to ", kLongest, " microseconds");
  }
  *place = std::chrono::microseconds(*number);
  return Ok();
}

Status StoreLineRate(std::string_view text, uint64_t* place) {
  const auto number = ReadNumber(text);
  if (!number.ok() || *number == 0) return InvalidArgument("'", text, "' is not 1 or more lines a second");
  *place = *number;
  return Ok();
}

Status StoreFd(std::string_view text, int* place) {
  const auto number = ReadNumber(text);
  if (!number.ok() || *number > 1u << 20) return InvalidArgument("'", text, "' is not a descriptor's number");
  *place = static_cast<int>(*number);
  return Ok();
}

Status StoreBool(std::string_view text, bool* place) {
  if (text == "true" || text == "1") return *place = true, Ok();
  if (text == "false" || text == "0") return *place = false, Ok();
  return InvalidArgument("'", text, "' is neither true nor false");
}

// Of what is done where it can be, or not at all; true and false are taken as before.
Status StoreAuto(std::string_view text, bool* place) {
  if (text == "auto" || text == "true" || text == "1") return *place = true, Ok();
  if (text == "never" || text == "false" || text == "0") return *place = false, Ok();
  return InvalidArgument("'", text, "' is neither auto nor never");
}

// A relative one would be another place for everybody who stands elsewhere. Empty: the default.
Status StorePath(std::string_view text, std::string* place) {
  if (!text.empty() && !text.starts_with('/')) return InvalidArgument("'", text, "' is not an absolute path");
  return StoreText(text, place);
}

Status StoreUnlisted(std::string_view text, Live<bool>* place) {
  if (text == "own") return *place = true, Ok();
  if (text == "refused") return *place = false, Ok();
  return InvalidArgument("'", text, "' is neither own nor refused");
}

Status StoreAdmins(std::string_view text, AccessList* place) {
  AB_RETURN_IF_ERROR(Store(ReadAdmins(text), place));
  const auto is_other = [](const AccessEntry& entry) {
    return entry.who == AccessEntry::Who::kToken || entry.who == AccessEntry::Who::kSubject;
  };
  if (!place->empty() && std::ranges::none_of(*place, is_other)) return Ok();
  return InvalidArgument("administrators are users and groups");
}

// Of every namespace, that is; it is a row for who writes down what holds.
Status CheckDefaultAccess(std::string_view text) {
  if (text == kSameUid) return Ok();
  return InvalidArgument("'", text, "' is not ", kSameUid,
                         ": without a table of its own a namespace is each user's own; whom one is shared with stands "
                         "in its table, [namespace.NAME]");
}

// Who writes another version means other settings.
Status CheckVersion(std::string_view text) {
  if (text == "1") return Ok();
  return InvalidArgument("'", text, "' is a version of the file that this daemon does not know; it knows 1");
}

Status StoreHosts(std::string_view text, std::vector<std::string>* place) {
  std::vector<std::string> hosts;
  if (text.empty()) return place->clear(), Ok();
  for (const std::string_view word : SplitList(text)) {
    std::string& host = hosts.emplace_back(word);
    std::ranges::transform(host, host.begin(),
                           [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
    const auto fits = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
    };
    if (!host.empty() && std::ranges::all_of(host, fits)) continue;
    return InvalidArgument("'", word, "' is no name of a host: letters, digits, '-', '_' and '.', without a port");
  }
  return *place = std::move(hosts), Ok();
}

std::string WrittenHosts(const std::vector<std::string>& hosts) {
  std::string text;
  for (const std::string& host : hosts) text += (text.empty() ? "" : ",") + host;
  return text;
}

Status StoreOneOf(std::initializer_list<std::string_view> words, std::string_view text, std::string* place) {
  if (std::ranges::find(words, text) != words.end()) return StoreText(text, place);
  std::string all;
  for (const std::string_view word : words) all += (all.empty() ? "" : ", ") + std::string(word);
  return InvalidArgument("'", text, "' is none of ", all);
}

}  // namespace arraybridge
