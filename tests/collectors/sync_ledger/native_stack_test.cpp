// Which native caller a sync is booked on. The fake CUDA is a library here, as the real one is: what calls it
// is this program.
#include "collectors/sync_ledger/places/native_stack.hpp"

#include <dlfcn.h>
#include <gmock/gmock.h>

#include <thread>

#include "collectors/sync_ledger/cupti_ledger.hpp"
#include "record/names.hpp"
#include "tests/collectors/sync_ledger/immortal_ledger.hpp"

namespace gradvane::collectors {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

template <typename Function>
Function in_fake(const char* name) {
  void* library = ::dlopen(GRADVANE_FAKE_CUDA, RTLD_NOW);
  EXPECT_NE(library, nullptr) << ::dlerror();
  return reinterpret_cast<Function>(::dlsym(library, name));
}

class NativeStackTest : public testing::Test {
 public:
  ~NativeStackTest() override { ledger_->leave(); }

 protected:
  NativeStackTest() {
    auto world = CuptiLedger::real_world();
    world.has_driver = [] { return true; };
    ledger_ = immortal_ledger(world);
    ledger_->join({.library = GRADVANE_FAKE_CUDA});
    if (!NativeStack::available()) skip_ = true;
  }

  CuptiLedger* ledger_;
  bool skip_ = false;
  void (*synchronize_)(long) = in_fake<void (*)(long)>("fake_synchronize");
};

// Exported from this program, so that the loader knows their names.
extern "C" [[gnu::visibility("default"), gnu::noinline]] void gradvane_test_logs_its_loss(
    void (*synchronize)(long)) {
  synchronize(0);
  asm volatile("" ::: "memory");  // no tail call: the caller stays on the stack
}

extern "C" [[gnu::visibility("default"), gnu::noinline]] void gradvane_test_checks_for_nan(
    void (*synchronize)(long)) {
  synchronize(0);
  asm volatile("" ::: "memory");
  synchronize(0);
  asm volatile("" ::: "memory");
}

TEST_F(NativeStackTest, ASyncIsBookedOnTheFunctionThatCalled) {
  if (skip_) GTEST_SKIP() << "no way to unwind without a lock here";
  for (int i = 0; i < 1000; ++i) gradvane_test_logs_its_loss(synchronize_);
  const auto sites = ledger_->summary().sites;
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].total.calls, 1000);
  EXPECT_EQ(sites[0].location, "native_stack_test!gradvane_test_logs_its_loss");
  EXPECT_EQ(sites[0].function, "gradvane_test_logs_its_loss");
  EXPECT_FALSE(sites[0].stack.empty()) << "its callers are known";
}

TEST_F(NativeStackTest, TwoCallsOfOneFunctionAreTwoPlacesOfOneName) {
  if (skip_) GTEST_SKIP() << "no way to unwind without a lock here";
  for (int i = 0; i < 500; ++i) {
    gradvane_test_checks_for_nan(synchronize_);
    gradvane_test_logs_its_loss(synchronize_);
  }
  std::int64_t logs = 0;
  std::int64_t checks = 0;
  for (const auto& site : ledger_->summary().sites) {
    if (site.function == "gradvane_test_logs_its_loss") logs += site.total.calls;
    if (site.function == "gradvane_test_checks_for_nan") checks += site.total.calls;
  }
  EXPECT_EQ(logs, 500);
  EXPECT_EQ(checks, 1000) << "none is booked on the other, however alike their stacks are";
}

TEST_F(NativeStackTest, OnlyWhatWasNeverSeenBeforeIsUnwound) {
  if (skip_) GTEST_SKIP() << "no way to unwind without a lock here";
  const auto measure = in_fake<double (*)(long)>("fake_measure");
  (void)measure(5000);
  const auto sites = ledger_->summary().sites;
  ASSERT_THAT(sites, SizeIs(1)) << "none of them had to do without its caller";
  EXPECT_EQ(sites[0].total.calls, 5000);
}

TEST_F(NativeStackTest, AScopeIsABetterName) {
  (void)ledger_->set_scope("epoch end");
  gradvane_test_logs_its_loss(synchronize_);
  (void)ledger_->set_scope(nullptr);
  const auto sites = ledger_->summary().sites;
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].location, "epoch end");
}

TEST_F(NativeStackTest, AThreadIsNamedByItsRole) {
  std::thread([&] {
    ::pthread_setname_np(::pthread_self(), "pt_autograd_0");
    synchronize_(0);
  }).join();
  const auto sites = ledger_->summary().sites;
  ASSERT_THAT(sites, SizeIs(1));
  EXPECT_EQ(sites[0].thread, "pt_autograd_0");
}

TEST(PassedOverTest, LibrariesThatEverybodyCallsCudaThroughArePassedOver) {
  for (const char* path :
       {"/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/x/nvidia/cu13/lib/libcudart.so.13",
        "/x/torch/lib/libtorch_cuda.so", "/x/torch/lib/libc10_cuda.so", "libcupti.so.13",
        "/x/nvidia/nccl/lib/libnccl.so.2", "/x/gradvane/_native.cpython-311-x86_64-linux-gnu.so",
        "/usr/lib/libgradvane.so", "/lib/x86_64-linux-gnu/libc.so.6"})
    EXPECT_TRUE(is_passed_over_library(path)) << path;
  for (const char* path :
       {"", "/data/train", "/x/libmodel.so", "/x/libcudagraph_tools.so", "/x/fused_native.so"})
    EXPECT_FALSE(is_passed_over_library(path)) << path;
}

}  // namespace
}  // namespace gradvane::collectors
