// Which ranks of this node have a socket in a run directory.
#include "exporters/node/rank_sockets.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "exporters/files/private_directory.hpp"
#include "tests/exporters/scratch.hpp"

namespace gradvane::exporters {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;

TEST(RankSockets, AreListedLowestRankFirstAndForThisNodeOnly) {
  const fakes::Scratch scratch;
  for (const char* name :
       {"rank10.0123abcd.sock", "rank2.0123abcd.sock", "rank3.ffffffff.sock",
        "rank-1.0123abcd.sock", "rank02.0123abcd.sock", "rank4.0123abcd.lock",
        "rank99999999999.0123abcd.sock", "rank.sock", "rank5.0123abcd.sock.part"})
    std::ofstream(scratch.path() / name) << "x";
  const auto directory = open_named_directory(scratch.path(), ::geteuid(), Missing::stays);
  EXPECT_THAT(ranks_with_socket(directory.descriptor.get(), "0123abcd"), ElementsAre(2, 10));
  EXPECT_THAT(ranks_with_socket(directory.descriptor.get(), "00000000"), IsEmpty());
}

TEST(RankSockets, HaveAWordForTheNodeThatStays) {
  EXPECT_THAT(word_of_node(), MatchesRegex("[0-9a-f]{8}"));
  EXPECT_EQ(word_of_node(), word_of_node());
}

}  // namespace
}  // namespace gradvane::exporters
