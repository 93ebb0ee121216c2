#pragma once
// libcupti, found at run time: the one that is in the process already, so that there are never two.
#include <string>
#include <string_view>

#include "collectors/sync_ledger/cupti/cupti_abi.hpp"

namespace gradvane::collectors::cupti {

/// The functions of the libcupti at `path`, or, with an empty one, of the one that is loaded, or else of
/// the one that the loader finds. Not from a callback. Null where there is none; `why` says so then. It is
/// never unloaded.
[[nodiscard]] const Functions* load(const std::string& path, std::string& why);

/// Whether an object is loaded whose file name begins with `library`. Opens no file, as dlopen() does even with
/// RTLD_NOLOAD if the library is not there. Any thread.
[[nodiscard]] bool is_in_process(std::string_view library) noexcept;
/// Whether the CUDA driver is in this process, without bringing it there.
[[nodiscard]] bool driver_is_loaded() noexcept;
/// Calls the driver's cuDriverGetVersion, where it is in this process. It changes nothing and waits for nothing.
void call_driver() noexcept;

}  // namespace gradvane::collectors::cupti
