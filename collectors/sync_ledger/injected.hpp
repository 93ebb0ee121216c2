#pragma once
// How the ledger of an injected library is found by an agent in the same process.

namespace gradvane::collectors {

inline constexpr const char* kInjectedLibrary = "libgradvane_inject.so";
inline constexpr const char* kFindLedgerName = "gradvane_find_sync_ledger";
/// Both sides were built from the same sources, or they do not talk: the interface is a C++ class.
inline constexpr const char* kLedgerVersion = GRADVANE_VERSION " ledger 3";

/// Returns a SyncLedger, or null where `version` is another one.
using FindLedger = void* (*)(const char* version);

}  // namespace gradvane::collectors
