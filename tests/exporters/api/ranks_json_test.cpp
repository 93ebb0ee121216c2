#include "exporters/api/ranks_json.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "exporters/api/endpoint_file.hpp"
#include "tests/exporters/fake_run.hpp"
#include "tests/exporters/files/claimed.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using fakes::Scratch;
using nlohmann::json;

class RanksTest : public testing::Test {
 protected:
  void write(int rank, const std::string& run = fakes::fake_run().run,
             const std::string& url = "") {
    record::RunInfo info = fakes::fake_run();
    info.run = run;
    info.rank = rank;
    EndpointFile file(fakes::claimed(scratch_.path()), info);
    EXPECT_EQ(file.write(url.empty() ? "http://127.0.0.1:" + std::to_string(9464 + rank) : url,
                         record::RunState::running),
              "");
  }
  json ranks() {
    const record::RunInfo run = fakes::fake_run();
    return json::parse(ranks_json(&run, scratch_.path(), {}).body);
  }

  Scratch scratch_;
};

TEST_F(RanksTest, AreThoseOfTheRunInTheOrderOfTheirRanks) {
  for (const int rank : {10, 0, 2}) write(rank);
  const json found = ranks();
  ASSERT_EQ(found["ranks"].size(), 3U);
  EXPECT_EQ(found["ranks"][0]["rank"], 0);
  EXPECT_EQ(found["ranks"][2]["rank"], 10);
  EXPECT_EQ(found["ranks"][2]["url"], "http://127.0.0.1:9474");
  EXPECT_EQ(found["ranks"][0]["is_this"], true);
  EXPECT_EQ(found["ranks"][1]["is_this"], false);
  EXPECT_EQ(found["world_size"], fakes::fake_run().world_size);
}

TEST_F(RanksTest, AnotherRunsFileAndADamagedOneAreLeftOut) {
  write(0);
  write(1, "another run");
  std::ofstream(scratch_.path() / "endpoint.rank2.json") << "{\"run\":\"fake-gpt\",\"rank\":";
  std::ofstream(scratch_.path() / "endpoint.rank3.json") << "[]";
  std::ofstream(scratch_.path() / "endpoint.rank4.json") << R"({"run":"fake-gpt","rank":"four"})";
  EXPECT_EQ(ranks()["ranks"].size(), 1U);
}

TEST_F(RanksTest, OnlyAddressesOfTheWebAreHandedOn) {
  write(0);
  write(1, fakes::fake_run().run, "javascript:alert(1)");
  write(2, fakes::fake_run().run, "https://proxy.example/run");
  const json found = ranks();
  ASSERT_EQ(found["ranks"].size(), 2U);
  EXPECT_EQ(found["ranks"][1]["url"], "https://proxy.example/run");
}

TEST_F(RanksTest, APipeALinkAndAFileWithoutEndAreLeftOutAndNothingWaits) {
  write(0);
  ASSERT_EQ(::mkfifo((scratch_.path() / "endpoint.rank1.json").c_str(), 0666), 0);
  std::filesystem::create_symlink("endpoint.rank0.json", scratch_.path() / "endpoint.rank2.json");
  std::filesystem::create_symlink("/dev/zero", scratch_.path() / "endpoint.rank3.json");
  std::ofstream(scratch_.path() / "endpoint.rank4.json") << std::string(100'000, ' ');
  EXPECT_EQ(ranks()["ranks"].size(), 1U);
}

TEST_F(RanksTest, NobodyIsThereWithoutADirectory) {
  const record::RunInfo run = fakes::fake_run();
  const auto answer = ranks_json(&run, scratch_.path() / "gone", {});
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(json::parse(answer.body)["ranks"].empty());
  EXPECT_TRUE(json::parse(ranks_json(nullptr, {}, {}).body)["ranks"].empty());
}

}  // namespace
}  // namespace gradvane::exporters
