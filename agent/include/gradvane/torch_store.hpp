#pragma once
// An AllGather over a c10d::Store, such as a TCPStore: for programs that have no MPI or the like.
// Not part of libgradvane.so: it is compiled with your program, against your libtorch.
#include <c10/util/intrusive_ptr.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <gradvane/ranks.hpp>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

namespace gradvane {

/// For rank `rank` of `ranks`. All ranks name the same store, which is new in each start of the run
/// (or a PrefixStore with a prefix that is); keys begin with "gradvane/". Each call
/// takes four operations of the store on each rank. Throws what the store throws if a rank does not
/// come within `patience`.
inline AllGather gather_over_store(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                   int ranks,
                                   std::chrono::milliseconds patience = std::chrono::minutes(10)) {
  const auto key = [](std::int64_t call, int of) {
    return "gradvane/" + std::to_string(call) + "/" + std::to_string(of);
  };
  return [=, calls = std::int64_t{0}](const std::string& mine) mutable {
    const std::int64_t call = ++calls;
    std::vector<std::string> keys;
    for (int of = 0; of < ranks; ++of) keys.push_back(key(call, of));
    store->set(key(call, rank), std::vector<std::uint8_t>(mine.begin(), mine.end()));
    store->wait(keys, patience);
    std::vector<std::string> all;
    for (const auto& bytes : store->multiGet(keys)) all.emplace_back(bytes.begin(), bytes.end());
    // All ranks are in this call, so that none still reads the one before.
    if (call > 1) store->deleteKey(key(call - 1, rank));
    return all;
  };
}

/// The GatherAmong of rank `rank`, for ranks on several nodes. Give it the store of gather_over_store().
inline GatherAmong gather_among_over_store(
    const c10::intrusive_ptr<c10d::Store>& store, int rank,
    std::chrono::milliseconds patience = std::chrono::minutes(10)) {
  return [=](const std::vector<int>& ranks) {
    const auto place = std::find(ranks.begin(), ranks.end(), rank) - ranks.begin();
    return gather_over_store(c10::make_intrusive<c10d::PrefixStore>("gradvane/among", store),
                             static_cast<int>(place), static_cast<int>(ranks.size()), patience);
  };
}

}  // namespace gradvane
