// Whose password is checked when, with a library that counts instead of computing.
#include "exporters/web/password_check.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

namespace gradvane::exporters {
namespace {

using Verdict = WebAccess::Verdict;
using Clock = PasswordCheck::Clock;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

/// A password fits the hash that is the same text.
class CountingLibrary final : public TlsLibrary {
 public:
  [[nodiscard]] std::unique_ptr<TlsServer> server(const TlsSettings& /*settings*/,
                                                  std::string& /*error*/) const override {
    return nullptr;
  }
  [[nodiscard]] std::unique_ptr<TlsClientSession> client(const TlsClientSettings& /*settings*/,
                                                         std::string& /*error*/) const override {
    return nullptr;
  }
  [[nodiscard]] bool fits(const std::string& password, const std::string& hash) const override {
    ++checks;
    std::this_thread::sleep_for(takes);
    return password == hash;
  }
  [[nodiscard]] std::string digest(const std::string& text) const override {
    return std::to_string(std::hash<std::string>()(text));
  }
  [[nodiscard]] std::string random(std::size_t count) const override {
    return std::string(count, 'r');
  }

  mutable int checks = 0;
  std::chrono::milliseconds takes{0};
};

// alice:right, alice:wrong, bob:right, alice: with nothing
constexpr const char* kRight = "Basic YWxpY2U6cmlnaHQ=";
constexpr const char* kWrong = "Basic YWxpY2U6d3Jvbmc=";
constexpr const char* kUnknown = "Basic Ym9iOnJpZ2h0";
constexpr const char* kEmpty = "Basic YWxpY2U6";

class PasswordCheckTest : public testing::Test {
 protected:
  Verdict ask(const char* authorization, const char* peer = "10.0.0.1") {
    return check_.admits(peer, authorization, now_);
  }

  CountingLibrary library_;
  PasswordCheck check_{library_, {{"alice", "right"}}};
  Clock::time_point now_ = Clock::now();
};

TEST_F(PasswordCheckTest, LetsInWhoHasTheNameAndThePassword) {
  EXPECT_EQ(ask(kRight), Verdict::yes);
  now_ += 1s;
  EXPECT_EQ(ask("basic   YWxpY2U6cmlnaHQ=  "), Verdict::yes);
  EXPECT_EQ(ask("Basic YWxpY2U6cmlnaHQ"), Verdict::yes);  // without its padding
}

TEST_F(PasswordCheckTest, LetsNobodyElseIn) {
  for (const char* one :
       {kWrong, kUnknown, kEmpty, "Basic", "Basic ", "Basic !!!!", "Bearer YWxpY2U6cmlnaHQ=", "",
        "Basic YWxpY2U=", "Basic YWxpY2U6cmlnaHQ=!", "YWxpY2U6cmlnaHQ="}) {
    now_ += 1s;
    EXPECT_EQ(ask(one), Verdict::no) << one;
  }
}

TEST_F(PasswordCheckTest, ChecksAPasswordOnce) {
  for (int i = 0; i < 100; ++i) {
    now_ += 1s;
    (void)ask(kRight);
    now_ += 1s;
    (void)ask(kWrong);
  }
  EXPECT_EQ(library_.checks, 2);
}

TEST_F(PasswordCheckTest, ChecksTheSamePasswordForANameThatIsNotKnown) {
  EXPECT_EQ(ask(kUnknown), Verdict::no);  // "right" is alice's
  EXPECT_EQ(library_.checks, 1);
}

TEST_F(PasswordCheckTest, RestsThreeTimesAsLongAsAPasswordTook) {
  library_.takes = 20ms;
  EXPECT_EQ(ask(kWrong), Verdict::no);
  now_ += 60ms;  // 20 for the check itself
  EXPECT_EQ(ask(kRight), Verdict::not_yet);
  now_ += 10s;
  EXPECT_EQ(ask(kRight), Verdict::yes);
}

TEST_F(PasswordCheckTest, LetsInAtOnceWhomItKnowsHoweverManyWait) {
  EXPECT_EQ(ask(kRight), Verdict::yes);
  library_.takes = 20ms;
  now_ += 1s;
  EXPECT_EQ(ask(kWrong), Verdict::no);
  EXPECT_EQ(ask(kUnknown), Verdict::not_yet);
  EXPECT_EQ(ask(kRight), Verdict::yes);
}

TEST_F(PasswordCheckTest, GivesEachAddressItsTurn) {
  // One that asks without end, with another password each time, and one that asks for the first time.
  EXPECT_EQ(ask(kWrong, "10.6.6.6"), Verdict::no);
  now_ += 1s;
  EXPECT_EQ(ask(kUnknown, "10.6.6.6"), Verdict::no);
  library_.takes = 1ms;
  now_ += 1s;
  EXPECT_EQ(ask("Basic YTph", "10.6.6.6"), Verdict::no);
  EXPECT_EQ(ask(kRight, "10.0.0.1"), Verdict::not_yet);
  now_ += 100ms;
  EXPECT_EQ(ask("Basic YTpi", "10.6.6.6"),
            Verdict::not_yet);  // the other one has waited for longer
  EXPECT_EQ(ask(kRight, "10.0.0.1"), Verdict::yes);
}

TEST_F(PasswordCheckTest, DoesNotWaitForOneThatHasGone) {
  library_.takes = 1ms;
  EXPECT_EQ(ask(kWrong, "10.6.6.6"), Verdict::no);
  EXPECT_EQ(ask(kRight, "10.0.0.1"), Verdict::not_yet);
  now_ += 5s;
  EXPECT_EQ(ask(kUnknown, "10.6.6.6"), Verdict::no);
}

}  // namespace
}  // namespace gradvane::exporters
