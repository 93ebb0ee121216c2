#include "python/native/options_of_python.hpp"

#include <stdexcept>
#include <utility>

#include "agent/public/option_table.hpp"
#include "agent/public/options.hpp"

namespace gradvane::python {

Options options_of(const std::vector<std::string>& code, std::vector<std::string> command_line) {
  Options options;
  for (const std::string& item : code) {
    const std::size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const agent::OptionSpec* option = agent::find_option(key);
    if (option == nullptr) {
      std::string known;
      for (const agent::OptionSpec& one : agent::option_table())
        known += (known.empty() ? "" : ", ") + std::string(one.key);
      throw std::invalid_argument("there is no option '" + key + "'; there are: " + known);
    }
    if (!option->set(options, item.substr(equals + 1)))
      throw std::invalid_argument(key + " = '" + item.substr(equals + 1) +
                                  "' is not allowed; allowed: " + std::string(option->allowed));
  }
  options.command_line = std::move(command_line);
  return options;
}

bool lacks_run_id(const std::vector<std::string>& code, std::vector<std::string> command_line) {
  try {
    const Options options = options_of(code, std::move(command_line));
    const agent::ResolvedOptions resolved = agent::resolve(options, agent::process_environment());
    return resolved.options.enabled && resolved.options.run_id.empty();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace gradvane::python
