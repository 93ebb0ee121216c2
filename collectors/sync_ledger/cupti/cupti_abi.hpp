#pragma once
// The part of CUPTI's binary interface that we use, so that the ledger is built where there is no toolkit
// and finds the library at run time. A test holds it against the toolkit's own headers.
#include <cstddef>
#include <cstdint>

namespace gradvane::collectors::cupti {

enum class Domain : std::int32_t { driver = 1, runtime = 2, state = 6 };
enum class Site : std::int32_t { enter = 0, exit = 1 };

/// cuDriverGetVersion: touches no device and no stream, and a capture allows it.
inline constexpr std::uint32_t kDriverGetVersion = 2;
inline constexpr const char* kDriverGetVersionName = "cuDriverGetVersion";

inline constexpr int kSuccess = 0;
inline constexpr int kMultipleSubscribers = 39;
inline constexpr int kUnknownError = 999;

/// CUPTI has met an error that it cannot survive, and ends itself. (Of a cuptiFinalize by another
/// tool no callback tells.)
inline constexpr std::uint32_t kStateFatalError = 1;

struct CallbackData {
  Site site = Site::enter;
  const char* function_name = nullptr;
  const void* params = nullptr;
  const void* return_value = nullptr;  ///< an int, at the exit only
  const char* symbol_name = nullptr;
  void* context = nullptr;
  std::uint32_t context_uid = 0;
  std::uint64_t* correlation_data = nullptr;  ///< shared by enter and exit of one call
  std::uint32_t correlation_id = 0;
};

using Callback = void (*)(void* user, Domain domain, std::uint32_t id, const void* data);
using Subscriber = void*;

inline constexpr std::size_t kOldNameBytes = 64;

/// As it is from CUPTI 13.2 on; before, it ended after old_name_size.
struct SubscriberParams {
  std::size_t struct_size = 0;
  const char* name = nullptr;
  char* old_name = nullptr;
  std::size_t old_name_size = 0;
  std::uint8_t allow_multiple = 0;
  std::uint8_t padding[7] = {};
};
inline constexpr std::size_t kSingleParamsSize = offsetof(SubscriberParams, allow_multiple);
inline constexpr std::uint32_t kFirstMultipleVersion = 130300;

/// CUPTI's functions. All but subscribe_v2 are there, or none is.
struct Functions {
  int (*subscribe)(Subscriber*, Callback, void* user) = nullptr;
  int (*subscribe_v2)(Subscriber*, Callback, void* user, SubscriberParams*) = nullptr;
  int (*unsubscribe)(Subscriber) = nullptr;
  int (*enable_callback)(std::uint32_t enable, Subscriber, Domain, std::uint32_t id) = nullptr;
  int (*get_version)(std::uint32_t*) = nullptr;
  int (*get_result_string)(int result, const char** text) = nullptr;
  int (*get_callback_name)(Domain, std::uint32_t id, const char** name) = nullptr;
};

}  // namespace gradvane::collectors::cupti
