#pragma once
// The three sizes that --size names, and what each trains with unless the command line says otherwise.
#include <array>
#include <cstdint>
#include <string_view>

namespace char_gpt {

struct SizePreset {
  std::string_view name;
  std::string_view purpose;
  std::int64_t layers;
  std::int64_t heads;
  std::int64_t width;
  std::int64_t context;
  std::int64_t batch;
  std::int64_t steps;
  double learning_rate;
  double dropout;
  std::int64_t sample;  ///< characters of text written at the end
  /// Rows of the embedding, where there are to be more than the text has characters; 0: as many.
  std::int64_t embedding_rows;
};

inline constexpr std::array kSizePresets = {
    SizePreset{.name = "tiny",
               .purpose = "for tests: hundreds of steps in seconds",
               .layers = 2,
               .heads = 2,
               .width = 32,
               .context = 32,
               .batch = 8,
               .steps = 300,
               .learning_rate = 3e-3,
               .dropout = 0.0,
               .sample = 200,
               .embedding_rows = 0},
    SizePreset{.name = "small",
               .purpose = "learns prose on two CPU cores in two minutes",
               .layers = 3,
               .heads = 4,
               .width = 128,
               .context = 96,
               .batch = 12,
               .steps = 2500,
               .learning_rate = 4e-3,
               .dropout = 0.0,
               .sample = 400,
               .embedding_rows = 0},
    // The text has fewer than 256 characters; the embedding is as large as GPT-2's all the same, so
    // that a run has the shapes, the memory and the 124 million parameters of the real one. 50,304 is
    // GPT-2's 50,257 rounded up to a multiple of 64, which matrix units like.
    SizePreset{.name = "gpt2",
               .purpose = "the shape of GPT-2 124M, for a GPU",
               .layers = 12,
               .heads = 12,
               .width = 768,
               .context = 1024,
               .batch = 8,
               .steps = 1000,
               .learning_rate = 6e-4,
               .dropout = 0.0,
               .sample = 200,
               .embedding_rows = 50304},
};

}  // namespace char_gpt
