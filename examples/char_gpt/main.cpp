// Trains a small GPT with Gradvane attached. README.md beside the folder tells how; training.cpp is the
// file to read for how the agent is used.
#include <exception>
#include <gradvane/agent.hpp>
#include <iostream>
#include <stdexcept>

#include "examples/char_gpt/exit_code.hpp"
#include "examples/char_gpt/options.hpp"
#include "examples/char_gpt/run.hpp"

int main(int argc, char** argv) {
  using namespace char_gpt;
  try {
    auto agent_arguments = gradvane::take_arguments(argc, argv);
    const auto command_line = parse_command_line(argc, argv, std::cout, std::cerr);
    if (!command_line.options) return command_line.exit_code;
    return run(*command_line.options, std::move(agent_arguments));
  } catch (const std::invalid_argument& error) {
    std::cerr << "char_gpt: " << error.what() << '\n';
    return kExitBadOption;
  } catch (const std::exception& error) {
    std::cerr << "char_gpt: " << error.what() << '\n';
    return kExitFailed;
  }
}
