#include "collectors/sync_ledger/cupti/cupti_library.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>

namespace gradvane::collectors::cupti {
namespace {

/// Whether anybody opens the loader's cache while `call` runs.
template <typename Call>
bool opens_the_cache(Call call) {
  const int watch = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  EXPECT_GE(::inotify_add_watch(watch, "/etc/ld.so.cache", IN_OPEN), 0);
  call();
  std::array<char, 4096> events{};
  const bool has_event = ::read(watch, events.data(), events.size()) > 0;
  ::close(watch);
  return has_event;
}

TEST(CuptiLibrary, LookingForADriverThatIsNotThereOpensNoFile) {
  if (is_in_process("libcuda.so")) GTEST_SKIP() << "the driver is in this process";
  const auto load = [] {
    EXPECT_EQ(::dlopen("libgradvane_is_no_such_library.so", RTLD_NOW | RTLD_NOLOAD), nullptr);
  };
  if (!opens_the_cache(load)) GTEST_SKIP() << "this loader opens no cache";
  EXPECT_FALSE(opens_the_cache([] { EXPECT_FALSE(driver_is_loaded()); }));
}

TEST(CuptiLibrary, WhatIsInTheProcessIsFoundByTheBeginningOfItsName) {
  EXPECT_TRUE(is_in_process("libc.so"));
  EXPECT_FALSE(is_in_process("c.so"));
  EXPECT_FALSE(is_in_process("libgradvane_is_no_such_library"));
}

}  // namespace
}  // namespace gradvane::collectors::cupti
