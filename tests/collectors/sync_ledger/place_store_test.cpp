#include "collectors/sync_ledger/places/place_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace gradvane::collectors {
namespace {

template <std::size_t N>
void write(std::array<char, N>& to, std::string_view text) {
  std::ranges::copy(text.substr(0, N - 1), to.begin());
}

/// A line of a program, met first by the thread of that name.
Place met(Place::From from, std::string_view function, std::string_view thread) {
  Place place{};
  place.from = from;
  place.lines = 1;
  write(place.line[0].file, "train.py");
  write(place.line[0].function, function);
  write(place.thread, thread);
  return place;
}

class PlaceStoreTest : public testing::Test {
 protected:
  PlaceStoreTest() { EXPECT_TRUE(store_.open()); }
  PlaceStore store_;
};

TEST_F(PlaceStoreTest, ALineHasOnePlaceWhicheverThreadsMeetIt) {
  for (const auto from : {Place::From::python, Place::From::scope}) {
    std::set<PlaceId> places;
    for (int i = 0; i < 5000; ++i)
      places.insert(store_.add(met(from, "read", "thread" + std::to_string(i))));
    EXPECT_EQ(places.size(), 1U);
    EXPECT_EQ(places.count(kOtherPlace), 0U);
  }
  EXPECT_NE(store_.add(met(Place::From::scope, "later", "main")), kOtherPlace)
      << "there is room for a place that comes later";
}

TEST_F(PlaceStoreTest, WhatHasOnlyItsThreadHasAPlaceForEachThreadWhileThereIsRoom) {
  const PlaceId first = store_.add(met(Place::From::thread, "", "loader"));
  EXPECT_EQ(store_.add(met(Place::From::thread, "", "loader")), first);
  EXPECT_NE(store_.add(met(Place::From::thread, "", "writer")), first);
  std::set<PlaceId> places;
  for (int i = 0; i < 5000; ++i)
    places.insert(store_.add(met(Place::From::thread, "", "thread" + std::to_string(i))));
  EXPECT_EQ(places.count(kOtherPlace), 1U);
  EXPECT_EQ(places.size(), PlaceStore::kPlaces - kFirstPlace - 2 + 1);
  EXPECT_EQ(store_.add(met(Place::From::thread, "", "loader")), first) << "known ones stay";
}

}  // namespace
}  // namespace gradvane::collectors
