#include "exporters/text/text_escape.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

namespace gradvane::exporters {
namespace {

using testing::EndsWith;
using testing::SizeIs;

std::string utf8(char32_t code) {
  const auto tail = [&](unsigned shift) {
    return static_cast<char>(0x80U | ((code >> shift) & 0x3FU));
  };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0U | (code >> 6U)), tail(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0U | (code >> 12U)), tail(6), tail(0)};
  return {static_cast<char>(0xF0U | (code >> 18U)), tail(12), tail(6), tail(0)};
}

TEST(PlainText, WhatATerminalWouldObeyIsAQuestionMark) {
  for (char32_t code = 0; code < 0x20; ++code)
    EXPECT_EQ(plain(utf8(code)), "?") << static_cast<unsigned>(code);
  for (char32_t code = 0x7F; code < 0xA0; ++code)
    EXPECT_EQ(plain(utf8(code)), "?") << static_cast<unsigned>(code);
  for (const char32_t code :
       std::initializer_list<char32_t>{0xAD,   0x61C,  0x180E, 0x200B,  0x200E,  0x200F,  0x2028,
                                       0x2029, 0x202A, 0x202E, 0x2060,  0x2066,  0x2069,  0x206F,
                                       0xFEFF, 0xFFF9, 0xFFFB, 0x110BD, 0x1D173, 0xE0001, 0xE007F})
    EXPECT_EQ(plain(utf8(code)), "?") << std::hex << static_cast<unsigned>(code);
}

TEST(PlainText, WordsOfAnyLanguageStayAsTheyAre) {
  for (const std::string text : {"", "blocks[0].attn/[/x] 100 %", "Gr\303\274\303\237e",
                                 "\xE5\xB1\xA4.\xE9\x87\x8D\xE3\x81\xBF", "\xF0\x9F\x99\x82"})
    EXPECT_EQ(plain(text), text);
  for (const char32_t code :
       std::initializer_list<char32_t>{0x20, 0x7E, 0xA0, 0xAC, 0xAE, 0x200A, 0x2010, 0x2027, 0x202F,
                                       0x2070, 0xFEFE, 0xFFFC, 0x10FFFF})
    EXPECT_EQ(plain(utf8(code)), utf8(code)) << std::hex << static_cast<unsigned>(code);
}

TEST(PlainText, WhatIsNotUtf8IsReplacedAndNeverPassedOn) {
  EXPECT_EQ(plain("a\x9B"
                  "2J"),
            "a\xEF\xBF\xBD"
            "2J");
  EXPECT_EQ(plain("\xC2"), "\xEF\xBF\xBD");
  EXPECT_EQ(plain("\xC0\x9B"), "\xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_EQ(plain("\xED\xA0\x80"), "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(BriefText, IsAKibibyteAtMostAndCutBetweenCharacters) {
  EXPECT_EQ(brief("out of memory"), "out of memory");
  EXPECT_EQ(brief(std::string(1024, 'x')), std::string(1024, 'x'));
  const std::string cut = brief(std::string(1025, 'x'));
  EXPECT_THAT(cut, SizeIs(1024));
  EXPECT_THAT(cut, EndsWith("x\xE2\x80\xA6"));
  std::string umlauts = "x";
  while (umlauts.size() < 100'000) umlauts += "\xC3\xBC";
  const std::string whole = brief(umlauts);
  EXPECT_LE(whole.size(), 1024U);
  EXPECT_GE(whole.size(), 1022U);
  EXPECT_EQ(plain(whole), whole) << "no half character is left";
}

}  // namespace
}  // namespace gradvane::exporters
