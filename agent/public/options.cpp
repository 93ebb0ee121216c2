#include "agent/public/options.hpp"

#include <errno.h>
#include <limits.h>
#include <unistd.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "agent/public/detector_settings.hpp"
#include "agent/public/option_table.hpp"
#include "agent/ranks/policy.hpp"
#include "exporters/files/run_token.hpp"
#include "exporters/http/access/host_rule.hpp"
#include "exporters/http/unix_address.hpp"
#include "record/incident_classes.hpp"

namespace gradvane::agent {
namespace {

/// Key -> where its value came from.
using Sources = std::map<std::string, std::string, std::less<>>;

void apply(Options& options, Sources& sources, std::string_view key, std::string_view value,
           const std::string& where, const std::string& source) {
  const OptionSpec* option = find_option(key);
  if (option == nullptr)
    throw std::invalid_argument(where + ": unknown option '" + std::string(key) +
                                "'; docs/configuration.md lists them all");
  if (!option->set(options, value))
    throw std::invalid_argument(where + ": " + std::string(key) + " = '" + std::string(value) +
                                "' is not allowed; allowed: " + std::string(option->allowed));
  sources[std::string(key)] = source;
}

/// A value as text; a map of group names to regexes becomes the one-line form of `groups`.
std::string yaml_text(const YAML::Node& node, const std::string& where, const std::string& key) {
  if (node.IsScalar()) return node.Scalar();
  if (node.IsNull()) return "";
  if (node.IsMap() && key == "groups") {
    std::string rule;
    for (const auto& group : node) {
      if (!group.first.IsScalar() || !group.second.IsScalar())
        throw std::invalid_argument(where + ": groups must map each name to one regex");
      const std::string& name = group.first.Scalar();
      const std::string& regex = group.second.Scalar();
      if (name.find_first_of("=;") != std::string::npos || regex.find(';') != std::string::npos)
        throw std::invalid_argument(where + ": groups: '" + name + ": " + regex +
                                    "' is not allowed; allowed: no ; anywhere, no = in a name");
      rule += name + "=" + regex + ";";
    }
    return rule;
  }
  throw std::invalid_argument(where + ": " + key + " must be one value");
}

void apply_yaml(Options& options, Sources& sources, const std::string& path) {
  YAML::Node root;
  try {
    // yaml-cpp opens a directory without complaint, and finds it empty.
    if (std::error_code unknown; std::filesystem::is_directory(path, unknown))
      throw YAML::BadFile(path);
    root = YAML::LoadFile(path);
  } catch (const YAML::Exception& error) {
    throw std::invalid_argument("config: cannot read '" + path + "': " + error.what());
  }
  if (root.IsNull()) return;
  if (!root.IsMap())
    throw std::invalid_argument("config: '" + path + "' must hold a map of options");
  for (const auto& item : root) {
    if (!item.first.IsScalar())
      throw std::invalid_argument("config: '" + path + "' has a key that is not a word");
    const std::string& key = item.first.Scalar();
    if (key == "config")
      throw std::invalid_argument(path + ": config cannot be set in the file itself");
    apply(options, sources, key, yaml_text(item.second, path, key), path, "yaml");
  }
}

/// One of the numbers that a launcher such as torchrun puts into the environment for its processes.
int rank_of(int given, const Environment& environment, record::RankNumber number, int otherwise,
            Sources& sources, std::string_view key) {
  if (given >= 0) return given;
  const auto found = record::launcher_number(number, environment);
  if (!found) return otherwise;
  const std::string* text = &found->text;
  char* end = nullptr;
  errno = 0;
  const long value = std::strtol(text->c_str(), &end, 10);
  if (errno != 0 || end == text->c_str() || *end != '\0' || value < 0 || value > 1 << 30)
    throw std::invalid_argument(std::string(found->variable) + " = '" + *text +
                                "' is not allowed; allowed: a whole number of at least 0");
  sources[std::string(key)] = "environment";
  return static_cast<int>(value);
}

std::vector<record::Setting> settings_of(const Options& options, const Sources& sources) {
  std::vector<record::Setting> settings;
  for (const OptionSpec& option : option_table()) {
    const auto source = sources.find(option.key);
    std::string value = option.get(options);
    // Settings are shown to whoever reads the endpoint, and kept in recordings.
    if (option.key == "token" && !value.empty() && value != exporters::kTokenOfDirectory)
      value = "(set)";
    settings.push_back({std::string(option.key), std::move(value),
                        source == sources.end() ? "default" : source->second});
  }
  return settings;
}

/// Switched off from outside the program: nothing else is looked at then, so that nothing else can fail.
std::optional<ResolvedOptions> switched_off(const Options& code, const Environment& environment) {
  constexpr std::string_view kKey = "enabled";
  ResolvedOptions off;
  Sources sources;
  const std::string variable = environment_name(kKey);
  if (const auto value = environment(variable))
    apply(off.options, sources, kKey, *value, variable, "environment");
  for (const std::string_view argument : code.command_line) {
    if (!argument.starts_with(kKey) || argument.substr(kKey.size(), 1) != "=") continue;
    apply(off.options, sources, kKey, argument.substr(kKey.size() + 1), "command line",
          "command line");
  }
  if (off.options.enabled) return std::nullopt;
  off.options.log = code.log;
  off.options.rank = off.options.local_rank = 0;
  off.options.world_size = 1;
  off.settings = settings_of(off.options, sources);
  return off;
}

/// Whether any incident that on_divergence acts on can open.
bool judges_divergences(const Options& options) {
  const detectors::Settings settings = detector_settings(options);
  return std::ranges::any_of(
      record::kIncidentClassTable, [&](const record::IncidentClassInfo& info) {
        return record::is_divergence(info.kind) && settings.judged[record::index_of(info.kind)] &&
               (info.kind != record::IncidentClass::random_guess || settings.loss.random_guess);
      });
}

/// What one option asks of others.
void check_together(const Options& options) {
  const bool is_open = options.enabled && options.port >= 0 && options.token.empty() &&
                       options.web_config.empty() && !options.insecure &&
                       !exporters::is_loopback(options.address);
  if (is_open)
    throw std::invalid_argument(
        "address = '" + options.address +
        "' would let everyone on the network read this run; set token to auto or to a text of your "
        "own, web_config to a file with users, or insecure to on if the network is yours alone");
  if (options.enabled && options.port >= 0 && !options.web_config.empty() &&
      exporters::is_unix_address(options.address))
    throw std::invalid_argument(
        "web_config is for ports, and address = '" + options.address +
        "' has none: only this user can open it; leave web_config out, or set another address");
  if (options.ranks == RankAgreement::agree &&
      (options.snapshot_seconds > 0 || options.snapshot_budget > 0))
    throw std::invalid_argument(
        "ranks: agree needs snapshots at the same steps on every rank; set snapshot_every, and "
        "snapshot_seconds and snapshot_budget to 0");
  if (options.skip_on_device && options.on_nonfinite != NonfinitePolicy::skip)
    throw std::invalid_argument(
        "skip_on_device is for bad steps that are skipped; set on_nonfinite to skip");
  if (options.ranks == RankAgreement::agree) return;
  const char* needs_exchange = options.compare_replicas_every > 0 ? "compare_replicas_every"
                               : options.check_before_reduction   ? "check_before_reduction"
                                                                  : nullptr;
  if (needs_exchange != nullptr)
    throw std::invalid_argument(
        std::string(needs_exchange) +
        " needs ranks that tell each other what they know; set ranks to agree");
}

/// Of a policy at the start of a run. While it lasts, the file of options changes what it may (ConfigFile).
void check_policies(const Options& options) {
  if (!options.enabled) return;
  if (options.on_divergence != DivergencePolicy::watch && !judges_divergences(options))
    throw std::invalid_argument(
        "on_divergence acts on incidents that detect leaves out; add loss_divergence or "
        "grad_exploding to detect, or "
        "random_guess with random_guess_loss");
  const ranks::Policy policy = ranks::policy_of(options);
  if (options.world_size > 1 && options.ranks != RankAgreement::agree &&
      (policy.rolls_back() || policy.on_divergence != DivergencePolicy::watch))
    throw std::invalid_argument(std::string(policy.on_divergence != DivergencePolicy::watch
                                                ? "on_divergence"
                                                : "on_nonfinite: rollback") +
                                " on several ranks needs ranks that act together, or each would "
                                "stop or go back by itself; set ranks to "
                                "agree, or world_size to 1 if this process trains alone");
}

/// As it is meant now: a program may change its working directory. Links stay, since Kubernetes replaces them.
std::string absolute(const std::string& path) {
  std::array<char, PATH_MAX> here{};
  if (path.empty() || path.front() == '/' || ::getcwd(here.data(), here.size()) == nullptr)
    return path;
  return std::string(here.data()) + '/' + path;
}

/// @param config  the YAML file; empty: what the options name
ResolvedOptions resolve_with(const Options& code, const Environment& outside,
                             const std::string& config) {
  // getenv() would be a race with a program that changes its environment.
  const auto known = std::make_shared<std::map<std::string, std::optional<std::string>>>();
  const Environment environment = [&outside, known](const std::string& name) {
    const auto at = known->find(name);
    return at != known->end() ? at->second : (*known)[name] = outside(name);
  };
  if (auto off = switched_off(code, environment)) return *std::move(off);

  ResolvedOptions resolved{code, {}, {}};
  Options& options = resolved.options;
  Sources sources;

  const Options defaults;
  for (const OptionSpec& option : option_table()) {
    // Code may hold what text may not say.
    Options scratch;
    const std::string value = option.get(code);
    if (value == option.get(defaults)) continue;
    if (!option.set(scratch, value))
      throw std::invalid_argument("Options::" + std::string(option.key) + " = '" + value +
                                  "' is not allowed; allowed: " + std::string(option.allowed));
    sources[std::string(option.key)] = "code";
  }

  // The name of the YAML file comes from the stronger sources, its contents from the file.
  Options named = code;
  Sources ignored;
  const std::string config_variable = environment_name("config");
  if (const auto value = environment(config_variable))
    apply(named, ignored, "config", *value, config_variable, "environment");
  std::vector<std::pair<std::string, std::string>> arguments;
  for (const std::string& argument : code.command_line) {
    const std::size_t equals = argument.find('=');
    if (equals == std::string::npos)
      throw std::invalid_argument("command line: '" + argument + "' must be key=value");
    std::string key = argument.substr(0, equals);
    std::replace(key.begin(), key.end(), '-', '_');
    arguments.emplace_back(key, argument.substr(equals + 1));
    if (key == "config") named.config = arguments.back().second;
  }
  if (!config.empty()) named.config = config;
  if (!named.config.empty()) apply_yaml(options, sources, named.config);

  for (const OptionSpec& option : option_table()) {
    const std::string name = environment_name(option.key);
    if (const auto value = environment(name))
      apply(options, sources, option.key, *value, name, "environment");
  }
  for (const auto& [key, value] : arguments)
    apply(options, sources, key, value, "command line", "command line");

  using enum record::RankNumber;
  options.rank = rank_of(options.rank, environment, rank, 0, sources, "rank");
  options.local_rank =
      rank_of(options.local_rank, environment, local_rank, 0, sources, "local_rank");
  options.world_size =
      std::max(1, rank_of(options.world_size, environment, world_size, 1, sources, "world_size"));
  if (options.run_id.empty()) {
    options.run_id = record::launcher_run_id(environment);
    if (!options.run_id.empty()) sources["run_id"] = "environment";
  }

  check_together(options);
  if (config.empty()) check_policies(options);
  resolved.settings = settings_of(options, sources);
  if (!named.config.empty()) {
    resolved.config_path = absolute(named.config);
    resolved.again = [code, known, path = resolved.config_path] {
      const auto as_it_was = [known](const std::string& name) {
        const auto at = known->find(name);
        return at != known->end() ? at->second : std::nullopt;
      };
      return resolve_with(code, as_it_was, path);
    };
  }
  return resolved;
}

}  // namespace

ResolvedOptions resolve(const Options& code, const Environment& environment) {
  return resolve_with(code, environment, "");
}

bool is_renamed(const Options& options, const record::RunInfo& run) {
  return options.run.empty() && run.run.ends_with("-" + run.run_id);
}

}  // namespace gradvane::agent

namespace gradvane {

std::vector<std::string> take_arguments(int& argc, char** argv) {
  constexpr std::string_view kPrefix = "--gradvane-";
  std::vector<std::string> taken;
  int kept = 0;
  for (int i = 0; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (i > 0 && argument.starts_with(kPrefix))
      taken.emplace_back(argument.substr(kPrefix.size()));
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
  argv[kept] = nullptr;
  return taken;
}

}  // namespace gradvane
