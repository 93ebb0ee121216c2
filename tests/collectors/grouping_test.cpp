#include "collectors/grouping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace gradvane::collectors {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

using Names = std::vector<std::string>;

/// The group of each parameter, by name.
Names groups_of(const Names& params, std::string_view rule, int max_groups = 50) {
  const Grouping grouping = group_parameters(params, rule, max_groups);
  EXPECT_EQ(grouping.group_of.size(), params.size());
  EXPECT_EQ(std::set(grouping.names.begin(), grouping.names.end()).size(), grouping.names.size());
  Names names;
  for (const std::int32_t group : grouping.group_of)
    names.push_back(grouping.names.at(static_cast<std::size_t>(group)));
  return names;
}

std::string refusal_of(std::string_view rule) {
  try {
    check_group_rule(rule);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}

/// As a transformer of `layers` layers names its parameters, below `prefix`.
Names transformer(const std::string& prefix, int layers) {
  Names names{prefix + "wte.weight"};
  for (int i = 0; i < layers; ++i) {
    for (const char* part : {"attn.qkv.weight", "attn.proj.weight", "mlp.up.weight", "ln.weight"})
      names.push_back(prefix + "h." + std::to_string(i) + "." + part);
  }
  return names;
}

TEST(Grouping, ADepthIsANumberOfModuleNamesAndLeavesTheParameterOut) {
  const Names params{"a.b.c.weight", "a.b.d.weight", "a.e.weight", "f.bias"};
  EXPECT_THAT(groups_of(params, "depth:1"), ElementsAre("a", "a", "a", "f"));
  EXPECT_THAT(groups_of(params, "depth:2"), ElementsAre("a.b", "a.b", "a.e", "f"));
  EXPECT_THAT(groups_of(params, "depth:3"), ElementsAre("a.b.c", "a.b.d", "a.e", "f"));
  EXPECT_THAT(groups_of(params, "depth:99"), ElementsAre("a.b.c", "a.b.d", "a.e", "f"));
}

TEST(Grouping, ParametersOfTheRootModuleHaveAGroupOfTheirOwn) {
  EXPECT_THAT(groups_of({"scale", "a.weight", "bias"}, "depth:1"),
              ElementsAre("(root)", "a", "(root)"));
  EXPECT_THAT(groups_of({"scale"}, "auto"), ElementsAre("(root)"));
}

TEST(Grouping, NoParametersAreNoGroups) {
  for (const char* rule : {"auto", "depth:2", "all=."}) {
    const Grouping grouping = group_parameters(Names{}, rule, 50);
    EXPECT_TRUE(grouping.names.empty()) << rule;
    EXPECT_TRUE(grouping.group_of.empty()) << rule;
  }
}

TEST(Grouping, GroupsAreInTheOrderOfTheirFirstParameter) {
  const Names params{"z.weight", "a.weight", "m.weight", "a.bias"};
  EXPECT_THAT(group_parameters(params, "auto", 50).names, ElementsAre("z", "a", "m"));
}

TEST(Grouping, AutoGoesAsDeepAsTheLimitAllows) {
  const Names params = transformer("", 4);
  // wte; 4 x (attn.qkv, attn.proj, mlp.up, ln): 17 groups of one module each.
  EXPECT_EQ(group_parameters(params, "auto", 17).names.size(), 17U);
  // One less, and it is the depth above: wte; 4 x (attn, mlp, ln).
  EXPECT_EQ(group_parameters(params, "auto", 16).names.size(), 13U);
  EXPECT_EQ(group_parameters(params, "auto", 12).names.size(), 5U);
}

TEST(Grouping, AutoJoinsNeighbouringLayersIfNotEachCanHaveItsOwn) {
  const Grouping grouping = group_parameters(transformer("", 5), "auto", 4);
  EXPECT_THAT(grouping.names, ElementsAre("wte", "h.0-1", "h.2-3", "h.4"));
  EXPECT_EQ(grouping.note, "5 layers are shown in groups of 2, because max_groups is 4");
  EXPECT_THAT(group_parameters(transformer("", 5), "auto", 3).names,
              ElementsAre("wte", "h.0-2", "h.3-4"));
  EXPECT_THAT(group_parameters(transformer("", 5), "auto", 2).names, ElementsAre("wte", "h.0-4"));
  EXPECT_THAT(group_parameters(transformer("", 5), "auto", 6).note, "");
}

TEST(Grouping, AutoLooksThroughWrappersThatHoldOneModule) {
  const Names bare = transformer("", 6);
  const Names wrapped = transformer("module.model.transformer.", 6);
  const Grouping expected = group_parameters(bare, "auto", 50);
  const Grouping actual = group_parameters(wrapped, "auto", 50);
  EXPECT_EQ(actual.group_of, expected.group_of);
  EXPECT_EQ(actual.names.front(), "module.model.transformer.wte");
}

TEST(Grouping, AutoKeepsToOneDepthWhereEvenTheFirstHasTooManyGroups) {
  Names params;
  for (int i = 0; i < 60; ++i) params.push_back("layer" + std::to_string(i) + ".weight");
  const Grouping grouping = group_parameters(params, "auto", 50);
  ASSERT_EQ(grouping.names.size(), 50U);
  EXPECT_EQ(grouping.names[48], "layer48");
  EXPECT_EQ(grouping.names[49], "other");
  for (std::size_t i = 49; i < 60; ++i) EXPECT_EQ(grouping.group_of[i], 49) << i;
}

TEST(Grouping, TheFirstRegexThatIsFoundInTheNameCounts) {
  const Names params{"h.0.attn.weight", "h.0.mlp.weight", "head.weight", "h.1.attn.bias"};
  EXPECT_THAT(groups_of(params, "attention=attn;first=^h\\.0\\.;rest=."),
              ElementsAre("attention", "first", "rest", "attention"));
  EXPECT_THAT(groups_of(params, "attention=attn"),
              ElementsAre("attention", "other", "other", "attention"));
  // What stands behind the first equals sign is the regex, further ones included.
  EXPECT_THAT(groups_of({"a=b.weight", "ab.weight"}, "x=a=b"), ElementsAre("x", "other"));
  EXPECT_THAT(groups_of(params, ";one=attn;;"), ElementsAre("one", "other", "other", "one"));
}

TEST(Grouping, WhatTheLimitLeavesOutSharesTheGroupOther) {
  const Names params{"a.w", "b.w", "c.w", "a.v", "d.w"};
  EXPECT_THAT(groups_of(params, "depth:1", 3), ElementsAre("a", "b", "other", "a", "other"));
  EXPECT_THAT(groups_of(params, "depth:1", 4), ElementsAre("a", "b", "c", "a", "d"));
  EXPECT_THAT(groups_of(params, "depth:1", 1),
              ElementsAre("other", "other", "other", "other", "other"));
}

TEST(Grouping, NeverMakesMoreGroupsThanAllowedAlsoWhereOneIsCalledOther) {
  const Names params{"a.w", "other.w", "b.w", "c.w", "d.w", "scale"};
  for (int limit = 1; limit <= 7; ++limit) {
    for (const char* rule : {"auto", "depth:1", "other=b;x=c", "y=a;other=b;x=c"}) {
      const Grouping grouping = group_parameters(params, rule, limit);
      EXPECT_LE(grouping.names.size(), static_cast<std::size_t>(limit)) << rule;
      ASSERT_EQ(grouping.group_of.size(), params.size());
      for (const std::int32_t group : grouping.group_of) {
        EXPECT_GE(group, 0);
        EXPECT_LT(static_cast<std::size_t>(group), grouping.names.size());
      }
    }
  }
}

TEST(Grouping, TenThousandParametersWithOddNamesAreGrouped) {
  Names params;
  for (int i = 0; i < 10'000; ++i) params.push_back("h." + std::to_string(i) + ".\"é\n{}\\.weight");
  const Grouping grouping = group_parameters(params, "auto", 50);
  EXPECT_EQ(grouping.names.size(), 50U);
  EXPECT_EQ(grouping.names.front(), "h.0000-0199");
  EXPECT_EQ(grouping.names.back(), "h.9800-9999");
}

/// As Hugging Face names the parameters of Llama: 80 layers are the 70B model.
Names llama(int layers) {
  Names names{"model.embed_tokens.weight"};
  for (int i = 0; i < layers; ++i)
    for (const char* part :
         {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight",
          "self_attn.o_proj.weight", "mlp.gate_proj.weight", "mlp.up_proj.weight",
          "mlp.down_proj.weight", "input_layernorm.weight", "post_attention_layernorm.weight"})
      names.push_back("model.layers." + std::to_string(i) + "." + part);
  names.insert(names.end(), {"model.norm.weight", "lm_head.weight"});
  return names;
}

constexpr int kUsualMost = 150;

TEST(Grouping, EachOfEightyLayersOfLlamaHasItsGroup) {
  const Grouping grouping = group_parameters(llama(80), "auto", kUsualMost);
  ASSERT_EQ(grouping.names.size(), 83U);
  EXPECT_EQ(grouping.names[0], "model.embed_tokens");
  EXPECT_EQ(grouping.names[1], "model.layers.00");
  EXPECT_EQ(grouping.names[80], "model.layers.79");
  EXPECT_EQ(grouping.names[81], "model.norm");
  EXPECT_EQ(grouping.names[82], "lm_head");
  EXPECT_EQ(grouping.note, "");
  // The largest of the family, and one that no one has trained yet.
  EXPECT_EQ(group_parameters(llama(126), "auto", kUsualMost).names.size(), 129U);
  const Grouping deeper = group_parameters(llama(200), "auto", kUsualMost);
  EXPECT_EQ(deeper.names.size(), 103U);
  EXPECT_EQ(deeper.names[1], "model.layers.000-001");
  EXPECT_EQ(deeper.note, "200 layers are shown in groups of 2, because max_groups is 150");
}

TEST(Grouping, TheLayersOfAListWithinASequentialAreGroups) {
  Names names{"0.weight"};
  for (int i = 0; i < 80; ++i)
    for (const char* part : {"attn.weight", "mlp.weight"})
      names.push_back("1." + std::to_string(i) + "." + part);
  names.push_back("2.weight");
  const Grouping grouping = group_parameters(names, "auto", kUsualMost);
  ASSERT_EQ(grouping.names.size(), 82U);
  EXPECT_EQ(grouping.names[0], "0");
  EXPECT_EQ(grouping.names[8], "1.07");
  EXPECT_EQ(grouping.names[81], "2");
  EXPECT_EQ(group_parameters(names, "auto", 50).note,
            "80 layers are shown in groups of 2, because max_groups is 50");
}

TEST(Grouping, ANumberThatAllNamesBeginWithIsNoLayer) {
  Names names{"0.embedding.weight"};
  for (int i = 0; i < 60; ++i)
    for (const char* part : {"mlp.fc1.weight", "mlp.fc2.weight"})
      names.push_back("0.decoder.layers." + std::to_string(i) + "." + part);
  const Grouping grouping = group_parameters(names, "auto", kUsualMost);
  ASSERT_EQ(grouping.names.size(), 61U);
  EXPECT_EQ(grouping.names[0], "0.embedding");
  EXPECT_EQ(grouping.names[60], "0.decoder.layers.59");
  EXPECT_THAT(groups_of({"0.weight", "0.bias"}, "auto"), ElementsAre("0", "0"));
}

TEST(Grouping, HeadsAndExpertsBelowLayersAreNoLayers) {
  Names names;
  for (int layer = 0; layer < 4; ++layer)
    for (int head = 0; head < 64; ++head)
      names.push_back("blocks." + std::to_string(layer) + ".sa.heads." + std::to_string(head) +
                      ".key.weight");
  EXPECT_EQ(group_parameters(names, "auto", kUsualMost).names.size(), 4U);
}

TEST(Grouping, NamesOfLayersSortAsTheLayersFollow) {
  const Grouping grouping = group_parameters(llama(80), "auto", kUsualMost);
  const auto first = grouping.names.begin() + 1;
  EXPECT_TRUE(std::is_sorted(first, first + 80));
  EXPECT_THAT(groups_of({"h.2.w", "h.10.w"}, "depth:2"), ElementsAre("h.02", "h.10"));
  // Only next to those that need it.
  EXPECT_THAT(groups_of({"a.2.w", "b.10.3.w"}, "depth:3"), ElementsAre("a.2", "b.10.3"));
}

TEST(Grouping, TheLayersOfGpt2XlAreGroups) {
  Names names{"transformer.wte.weight", "transformer.wpe.weight"};
  for (int i = 0; i < 48; ++i)
    for (const char* part : {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_proj.bias",
                             "ln_2.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"})
      names.push_back("transformer.h." + std::to_string(i) + "." + part);
  names.insert(names.end(), {"transformer.ln_f.weight", "transformer.ln_f.bias"});
  const Grouping grouping = group_parameters(names, "auto", kUsualMost);
  EXPECT_EQ(grouping.names.size(), 51U);
  EXPECT_EQ(grouping.names[2], "transformer.h.00");
}

TEST(Grouping, AMixtureOfExpertsIsGroupedByLayer) {
  Names names{"model.embed_tokens.weight"};
  for (int layer = 0; layer < 61; ++layer)
    for (int expert = 0; expert < 64; ++expert)
      for (const char* part : {"w1", "w2", "w3"})
        names.push_back("model.layers." + std::to_string(layer) + ".mlp.experts." +
                        std::to_string(expert) + "." + part + ".weight");
  const Grouping grouping = group_parameters(names, "auto", kUsualMost);
  EXPECT_EQ(grouping.names.size(), 62U);
  EXPECT_EQ(grouping.names[1], "model.layers.00");
  // Two layers leave room to tell more.
  names.resize(1 + 2 * 64 * 3);
  EXPECT_THAT(group_parameters(names, "auto", kUsualMost).names,
              ElementsAre("model.embed_tokens", "model.layers.0.mlp.experts",
                          "model.layers.1.mlp.experts"));
}

TEST(Grouping, LoraIsGroupedByTheLayersThatItAdapts) {
  Names names;
  for (int i = 0; i < 80; ++i)
    for (const char* part : {"q_proj.lora_A", "q_proj.lora_B", "v_proj.lora_A", "v_proj.lora_B"})
      names.push_back("base_model.model.model.layers." + std::to_string(i) + ".self_attn." + part +
                      ".default.weight");
  const Grouping grouping = group_parameters(names, "auto", kUsualMost);
  EXPECT_EQ(grouping.names.size(), 80U);
  EXPECT_EQ(grouping.names[9], "base_model.model.model.layers.09");
}

TEST(Grouping, AnEncoderAndADecoderAreJoinedAlike) {
  Names names{"shared.weight"};
  for (const char* side : {"encoder", "decoder"})
    for (int i = 0; i < 24; ++i)
      names.push_back(std::string(side) + ".block." + std::to_string(i) + ".layer.0.w.weight");
  EXPECT_EQ(group_parameters(names, "auto", kUsualMost).names.size(), 49U);
  const Grouping grouping = group_parameters(names, "auto", 20);
  EXPECT_EQ(grouping.names.size(), 17U);
  EXPECT_EQ(grouping.names[1], "encoder.block.00-02");
  EXPECT_EQ(grouping.names[9], "decoder.block.00-02");
  EXPECT_EQ(grouping.note, "48 layers are shown in groups of 3, because max_groups is 20");
}

TEST(Grouping, ARuleThatCannotBeUnderstoodIsRefusedWithWhatIsAllowed) {
  for (const char* rule :
       {"", ";", "depth", "depth:", "depth:0", "depth:-1", "depth:2x", "depth: 2", "deep:2", "Auto",
        "auto ", "=attn", "attention", "a=(", "a=[", "ok=x;a=*", "depth:99999999999999"}) {
    const std::string message = refusal_of(rule);
    EXPECT_THAT(message, HasSubstr("groups: '" + std::string(rule) + "'"));
    EXPECT_THAT(message, HasSubstr("allowed: auto, depth:N with N >= 1, or name=regex;name=regex"));
    EXPECT_THROW((void)group_parameters(Names{"a.w"}, rule, 50), std::invalid_argument) << rule;
  }
  EXPECT_THAT(refusal_of("ok=x;bad"), HasSubstr("'bad'"));
  EXPECT_THAT(refusal_of("a=("), HasSubstr("bad regex 'a=('"));
}

TEST(Grouping, ARuleThatCanBeUnderstoodIsNotRefused) {
  for (const char* rule : {"auto", "depth:1", "depth:12", "a=b", "a=b;c=d", "a=^b\\d+$;"})
    EXPECT_EQ(refusal_of(rule), "") << rule;
}

}  // namespace
}  // namespace gradvane::collectors
