// Another tool ends CUPTI for the whole process: a program of its own, because of what that may leave behind.
#include <cupti.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "tests/collectors/sync_ledger/real_cupti.hpp"

namespace gradvane::collectors {
namespace {

using record::SyncReason;
using record::SyncSource;

class SyncLedgerAfterFinalize : public OnRealCupti {};

TEST_F(SyncLedgerAfterFinalize, TheEndIsNoticedAndForGood) {
  std::uint32_t version = 0;
  ASSERT_EQ(cuptiGetVersion(&version), CUPTI_SUCCESS);  // also has it linked, so that it is found
  count();
  ASSERT_CUDA(cudaDeviceSynchronize());
  ASSERT_EQ(calls(), (Calls{{"device", 1}}));

  const auto finalize = reinterpret_cast<CUptiResult (*)()>(::dlsym(RTLD_DEFAULT, "cuptiFinalize"));
  ASSERT_NE(finalize, nullptr);
  ASSERT_EQ(finalize(), CUPTI_SUCCESS);
  ASSERT_CUDA(cudaDeviceSynchronize());

  ledger_->look(true);
  EXPECT_EQ(ledger_->summary().source, SyncSource::none);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::lost);
  EXPECT_EQ(ledger_->summary().gaps, 1);
  EXPECT_EQ(calls(), (Calls{{"device", 1}})) << "what was counted stays";

  (void)ledger_->end_step();
  pass(std::chrono::minutes(10));
  ledger_->look(true);
  EXPECT_EQ(ledger_->summary().reason, SyncReason::lost) << "for good";
  ledger_->leave();
  ASSERT_CUDA(cudaDeviceSynchronize()) << "and nothing that is dead was used";
}

}  // namespace
}  // namespace gradvane::collectors
