#pragma once
// Which parameters are shown together as one series.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradvane::collectors {

struct Grouping {
  std::vector<std::string> names;      ///< in order of first appearance; at most max_groups
  std::vector<std::int32_t> group_of;  ///< parameter -> index into names
  std::string note;                    ///< a sentence, if layers had to be joined
};

/// Groups parameter names by `rule`:
///   auto               one group per layer: the module prefix through its first number. Deeper, if that gives at
///                      most 50 groups. If there are more than max_groups, neighbouring layers are joined: h.0-1.
///                      Without numbers: the module prefix, at the greatest depth that gives at most 50 groups
///   depth:N            module prefix of N components (N >= 1)
///   name=regex;...     the first ECMAScript regex found in the parameter's name; the rest: "other"
/// What does not fit into max_groups falls into "other". Parameters of the root module: "(root)".
/// Numbers in a name have leading zeros if those next to them are longer (h.07), so that names sort by layer.
/// Throws std::invalid_argument for a rule that is none of these.
[[nodiscard]] Grouping group_parameters(std::span<const std::string> param_names,
                                        std::string_view rule, int max_groups);

/// Throws std::invalid_argument, naming what is wrong, if `rule` cannot be understood.
void check_group_rule(std::string_view rule);

}  // namespace gradvane::collectors
