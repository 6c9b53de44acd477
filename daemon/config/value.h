// How the text of a setting becomes the value that is stored. Each reader says what is wrong with a text that it
// refuses.
#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "daemon/config/config.h"
#include "proto/boundary/result.h"

namespace arraybridge {

Status StoreText(std::string_view text, std::string* place);
Status StoreCudaDriver(std::string_view text, std::string* place);
Status StoreSpin(std::string_view text, std::chrono::microseconds* place);
Status StoreLineRate(std::string_view text, uint64_t* place);
// Whether it is open is asked when the daemon starts, not when a configuration is read.
Status StoreFd(std::string_view text, int* place);
Status StoreBool(std::string_view text, bool* place);
Status StoreAuto(std::string_view text, bool* place);
Status StorePath(std::string_view text, std::string* place);
Status StoreUnlisted(std::string_view text, Live<bool>* place);
Status StoreAdmins(std::string_view text, AccessList* place);
// Names with commas between them. INVALID_ARGUMENT: one is no host name.
Status StoreHosts(std::string_view text, std::vector<std::string>* place);
std::string WrittenHosts(const std::vector<std::string>& hosts);
Status StoreOneOf(std::initializer_list<std::string_view> words, std::string_view text, std::string* place);

// What has one value and is written down all the same.
Status CheckDefaultAccess(std::string_view text);
Status CheckVersion(std::string_view text);

}  // namespace arraybridge
