#pragma once
// What a trained model is worth: its loss on text it has not seen, and text of its own.
#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "examples/char_gpt/training/text_data.hpp"

namespace char_gpt {

class Gpt;

/// Mean loss, in nats a character, over the held-out text cut into sequences that do not overlap (at
/// most about 65,000 characters of it, evenly spread). Draws no random numbers. Waits for the device.
/// Throws std::invalid_argument where the text is shorter than one sequence.
[[nodiscard]] double held_out_loss(Gpt& model, const Text& text, const c10::Device& device);

/// `length` characters that the model writes, beginning a new line. Shorter, where its output is not
/// finite.
[[nodiscard]] std::string sample(Gpt& model, const Text& text, std::int64_t length,
                                 std::uint64_t seed, const c10::Device& device);

/// 16 hexadecimal digits that depend on every byte of every parameter, in order.
[[nodiscard]] std::string weights_checksum(const Gpt& model);

}  // namespace char_gpt
