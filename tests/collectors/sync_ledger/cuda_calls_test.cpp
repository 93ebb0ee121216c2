// The table of calls against the real libcupti and, where there is a toolkit, against its headers.
#include "collectors/sync_ledger/cupti/cuda_calls.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "collectors/sync_ledger/cupti/cupti_library.hpp"
#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "tests/collectors/sync_ledger/immortal_ledger.hpp"

#ifdef GRADVANE_HAS_CUPTI_HEADERS
#include <cupti.h>
#endif

namespace gradvane::collectors {
namespace {

const cupti::Functions* real_cupti() {
  std::string why;
  const cupti::Functions* functions = cupti::load(GRADVANE_LIBCUPTI, why);
  EXPECT_NE(functions, nullptr) << why;
  return functions;
}

TEST(CudaCallsTest, NoCallIsListedTwiceAndEachIsFound) {
  std::set<std::pair<cupti::Domain, int>> seen;
  for (const CudaCall& call : cuda_calls()) {
    EXPECT_TRUE(seen.emplace(call.domain, call.id).second) << call.name;
    EXPECT_EQ(cuda_call(call.domain, call.id), &call);
  }
  EXPECT_EQ(cuda_call(cupti::Domain::runtime, 0), nullptr);
  EXPECT_EQ(cuda_call(cupti::Domain::runtime, 211), nullptr) << "launches are not looked at";
  EXPECT_EQ(cuda_call(cupti::Domain::runtime, 1'000'000), nullptr);
  EXPECT_EQ(cuda_call(cupti::Domain::state, 1), nullptr);
}

TEST(CudaCallsTest, TheSameNumberMeansAnotherCallInTheOtherDomain) {
  EXPECT_EQ(cuda_call(cupti::Domain::runtime, 126)->what, CallClass::device);
  EXPECT_EQ(cuda_call(cupti::Domain::driver, 126)->what, CallClass::stream);
}

// Their names say nothing of it, and whoever lists the waits forgets them.
TEST(CudaCallsTest, CallsThatMayWaitWithoutBeingMadeForItAreListed) {
  for (const char* name : {"cudaGraphInstantiate_v10000",
                           "cudaGraphInstantiateWithFlags_v11040",
                           "cudaGraphInstantiateWithParams_v12000",
                           "cudaGraphInstantiate_v12000",
                           "cudaGraphUpload_v10000",
                           "cudaIpcOpenMemHandle_v4010",
                           "cudaIpcCloseMemHandle_v4010",
                           "cudaDeviceEnablePeerAccess_v4000",
                           "cudaMemPoolDestroy_v11020",
                           "cudaDeviceGraphMemTrim_v11040",
                           "cudaDeviceSetLimit_v3020",
                           "cuKernelGetFunction",
                           "cuLibraryGetModule",
                           "cuModuleGetFunction",
                           "cuGraphInstantiateWithFlags",
                           "cuGraphInstantiateWithParams",
                           "cuGraphUpload",
                           "cuIpcOpenMemHandle",
                           "cuIpcCloseMemHandle",
                           "cuIpcOpenMemHandle_v2",
                           "cuDevicePrimaryCtxReset_v2"}) {
    const auto calls = cuda_calls();
    EXPECT_TRUE(std::ranges::any_of(calls, [&](const CudaCall& call) {
      return std::string_view(call.name) == name;
    })) << name;
  }
}

TEST(CudaCallsTest, TheRealLibraryHasEveryCallUnderItsName) {
  if (std::string(GRADVANE_LIBCUPTI).empty()) GTEST_SKIP() << "this build has no CUDA toolkit";
  const cupti::Functions* functions = real_cupti();
  ASSERT_NE(functions, nullptr);
  for (const CudaCall& call : cuda_calls()) {
    const char* name = nullptr;
    ASSERT_EQ(functions->get_callback_name(call.domain, call.id, &name), cupti::kSuccess)
        << call.name;
    EXPECT_STREQ(name, call.name);
  }
}

TEST(CudaCallsTest, TheRealLibraryWithoutADriverLeavesAReasonAndNothingElse) {
  if (std::string(GRADVANE_LIBCUPTI).empty()) GTEST_SKIP() << "this build has no CUDA toolkit";
  auto world = CuptiLedger::real_world();
  if (world.has_driver()) GTEST_SKIP() << "this machine has a driver";
  CuptiLedger* ledger = immortal_ledger(world);
  ledger->join({.at_once = true, .library = GRADVANE_LIBCUPTI});
  const auto summary = ledger->summary();
  EXPECT_EQ(summary.source, record::SyncSource::none);
  // A machine with a driver that only was not loaded gets further, and says so.
  EXPECT_TRUE(summary.reason == record::SyncReason::no_driver ||
              summary.reason == record::SyncReason::refused)
      << summary.detail;
  ledger->leave();
}

#ifdef GRADVANE_HAS_CUPTI_HEADERS

static_assert(sizeof(cupti::CallbackData) == sizeof(CUpti_CallbackData));
static_assert(offsetof(cupti::CallbackData, site) == offsetof(CUpti_CallbackData, callbackSite));
static_assert(offsetof(cupti::CallbackData, params) ==
              offsetof(CUpti_CallbackData, functionParams));
static_assert(offsetof(cupti::CallbackData, return_value) ==
              offsetof(CUpti_CallbackData, functionReturnValue));
static_assert(offsetof(cupti::CallbackData, correlation_data) ==
              offsetof(CUpti_CallbackData, correlationData));
static_assert(offsetof(cupti::CallbackData, correlation_id) ==
              offsetof(CUpti_CallbackData, correlationId));
static_assert(cupti::kSingleParamsSize == CUpti_SubscriberParams_STRUCT_SIZE);
static_assert(cupti::kOldNameBytes >= CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN);
static_assert(static_cast<int>(cupti::Domain::driver) == CUPTI_CB_DOMAIN_DRIVER_API);
static_assert(static_cast<int>(cupti::Domain::runtime) == CUPTI_CB_DOMAIN_RUNTIME_API);
static_assert(static_cast<int>(cupti::Domain::state) == CUPTI_CB_DOMAIN_STATE);
static_assert(static_cast<int>(cupti::Site::enter) == CUPTI_API_ENTER);
static_assert(static_cast<int>(cupti::Site::exit) == CUPTI_API_EXIT);
static_assert(cupti::kStateFatalError == CUPTI_CBID_STATE_FATAL_ERROR);
static_assert(cupti::kMultipleSubscribers == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
static_assert(cupti::kUnknownError == CUPTI_ERROR_UNKNOWN);
static_assert(sizeof(CUpti_ApiCallbackSite) == sizeof(cupti::Site));
static_assert(static_cast<int>(CopyDirection::device_to_host) == cudaMemcpyDeviceToHost);
static_assert(static_cast<int>(CopyDirection::device_to_device) == cudaMemcpyDeviceToDevice);

void expect_offsets(const char* name, std::size_t stream, std::size_t kind = 255) {
  for (const CudaCall& call : cuda_calls()) {
    if (std::string(call.name) != name) continue;
    EXPECT_EQ(call.stream_at, stream) << name;
    EXPECT_EQ(call.direction_at, kind) << name;
    return;
  }
  ADD_FAILURE() << name << " is not in the table";
}

TEST(CudaCallsTest, StreamsAndDirectionsLieWhereTheHeadersSay) {
#define STREAM_AND_KIND(name) \
  expect_offsets(#name, offsetof(name##_params, stream), offsetof(name##_params, kind))
#define STREAM(name, member) expect_offsets(#name, offsetof(name##_params, member))
  STREAM_AND_KIND(cudaMemcpyAsync_v3020);
  STREAM_AND_KIND(cudaMemcpyAsync_ptsz_v7000);
  STREAM_AND_KIND(cudaMemcpy2DAsync_v3020);
  STREAM_AND_KIND(cudaMemcpy2DAsync_ptsz_v7000);
  STREAM_AND_KIND(cudaMemcpyToSymbolAsync_v3020);
  STREAM_AND_KIND(cudaMemcpyFromSymbolAsync_v3020);
  STREAM_AND_KIND(cudaMemcpy2DFromArrayAsync_v3020);
  STREAM_AND_KIND(cudaMemcpy2DToArrayAsync_v3020);
  STREAM(cudaStreamSynchronize_v3020, stream);
  STREAM(cudaStreamSynchronize_ptsz_v7000, stream);
  STREAM(cudaMemcpy3DAsync_v3020, stream);
  STREAM(cuMemcpyAsync, hStream);
  STREAM(cuMemcpyDtoHAsync_v2, hStream);
  STREAM(cuMemcpyHtoDAsync_v2, hStream);
  STREAM(cuMemcpyAtoHAsync_v2, hStream);
  STREAM(cuMemcpyPeerAsync, hStream);
  STREAM(cuStreamSynchronize, hStream);
  expect_offsets("cudaMemcpy_v3020", 255, offsetof(cudaMemcpy_v3020_params, kind));
  expect_offsets("cudaMemcpy2D_v3020", 255, offsetof(cudaMemcpy2D_v3020_params, kind));
#undef STREAM
#undef STREAM_AND_KIND
}

#endif

}  // namespace
}  // namespace gradvane::collectors
