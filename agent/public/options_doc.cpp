// Writes docs/configuration.md to standard output, from the option table; with --python the table that
// `gradvane run --help` shows.
#include <array>
#include <cstdio>
#include <string>
#include <string_view>

#include "agent/public/config_file.hpp"
#include "agent/public/option_table.hpp"

namespace ga = gradvane::agent;

namespace {

constexpr const char* kIntroduction =
    R"(<!-- Made by gradvane_options_doc from agent/public/option_table.cpp. Do not edit: change the table there. -->
# Configuration

Every option has one key and four places where it can be set. The strongest that sets it wins:

1. the command line: `gradvane run --weight-every 10 script.py`, or `--gradvane-weight-every=10` in C++ programs that
   hand `gradvane::take_arguments(argc, argv)` to `Options::command_line`
2. the environment: `GRADVANE_WEIGHT_EVERY=10`
3. a YAML file, named by the option `config`: `weight_every: 10`
4. the code: `gradvane.attach(model, optimizer, weight_every=10)`, `gradvane::Agent agent({.weight_every = 10});`
5. the default

`/api/v1/status` shows every option with its value and the place that it came from.

A key that does not exist and a value that is not allowed are refused when the agent is constructed, with the
key, the value, the place, and what is allowed. Environment variables that are not in the table are not looked at.

`GRADVANE=off`, or `--gradvane-enabled=off`, leaves the program as if Gradvane were not there: no other option is
read then, so that none can be refused. What `agent.clip_grad_norm` does to gradients it still does.

## A YAML file

```yaml
run: gpt-small
mode: lagged
weight_every: 100
stall_seconds: 60
step_log: steps.jsonl
groups:              # one regular expression for each group; the first that is found in a name counts
  embedding: '^(wte|wpe)\.'
  attention: '\.attn\.'
  mlp: '\.mlp\.'     # what none finds falls into "other"
```

## Changing the file while the run lasts

The file is looked at once a second. If it has changed, these options take their new values from the next step on, in each
rank when it sees the change:

@MAY_CHANGE@

The log has a line for each, and `/api/v1/status` and the page's Configuration tab say since when it holds. A key that is
taken out of the file gets its value from the code, or its default. All other options stay as they are until the next
start, and a line says so. A file that cannot be read, or that has an unknown key or a value that is not allowed, changes
nothing. Values from the environment and the command line are stronger, as at the start. [governor.md](governor.md) says which
changes of a policy are possible; ranks that agree follow rank 0's file there.

A Kubernetes ConfigMap that is mounted as a folder works. One that is mounted by `subPath` never changes.

## Several processes

`rank`, `local_rank` and `world_size` need not be set. From Python they are taken from `torch.distributed` if it is
initialised when the agent starts. Else each is taken from the first of these variables that is set:

| launcher | rank | local rank | world size |
|---|---|---|---|
| torchrun and most others | `RANK` | `LOCAL_RANK` | `WORLD_SIZE` |
| Open MPI | `OMPI_COMM_WORLD_RANK` | `OMPI_COMM_WORLD_LOCAL_RANK` | `OMPI_COMM_WORLD_SIZE` |
| MPICH, Intel MPI | `PMI_RANK` | `MPI_LOCALRANKID` | `PMI_SIZE` |
| Slurm, inside `srun` | `SLURM_PROCID` | `SLURM_LOCALID` | `SLURM_STEP_NUM_TASKS`, `SLURM_NTASKS` |
| Kubernetes, an Indexed Job | `JOB_COMPLETION_INDEX` | | |

`run_id` is taken from `TORCHELASTIC_RUN_ID` (`torchrun --rdzv-id`), else from Slurm's job and step inside `srun`, such
as `1234.0`, else from `PMIX_NAMESPACE`; `-restart1` is added after a restart. If there is none, torchrun's processes on
one node take that of torchrun itself, and ranks that start the agent after `init_process_group` agree on one. A
process on its own takes the time of its start.

## Options

`log`, which receives the agent's few lines, and `command_line`, which holds what `take_arguments` found, are set
in code only.

)";

constexpr const char* kHead =
    "| Key | Default | Allowed | Meaning | Environment | Command line "
    "|\n|---|---|---|---|---|---|\n";

/// The options of a group stand together in the table.
struct Group {
  std::string_view title;
  std::string_view first;  ///< key
};
constexpr std::array kGroups{
    Group{"The run", "enabled"},
    Group{"The endpoint", "address"},
    Group{"What is measured", "mode"},
    Group{"The step log", "step_log"},
    Group{"Start, stalls and end", "stall_seconds"},
    Group{"Ranks", "rank"},
    Group{"Host syncs", "sync"},
    Group{"Detectors", "detect"},
    Group{"The governor", "on_nonfinite"},
    Group{"Alertmanager", "alertmanager_url"},
    Group{"The flight recorder", "recorder"},
    Group{"Traces, sharded models, signals", "trace_nonfinite"},
};

/// Null if no group begins with it.
const Group* group_from(std::string_view key) {
  for (const Group& group : kGroups)
    if (group.first == key) return &group;
  return nullptr;
}

/// `<R>` would be taken for HTML.
std::string words(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '<') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string code(const std::string& text) { return text.empty() ? "empty" : "`" + text + "`"; }

std::string keys_that_may_change() {
  std::string text;
  for (const ga::OptionSpec& option : ga::option_table())
    if (ga::may_change(option.key))
      text.append(text.empty() ? "`" : ", `").append(option.key).append("`");
  return text;
}

std::string markdown() {
  std::string text = kIntroduction;
  constexpr std::string_view kPlace = "@MAY_CHANGE@";
  text.replace(text.find(kPlace), kPlace.size(), keys_that_may_change());
  const gradvane::Options defaults;
  for (const ga::OptionSpec& option : ga::option_table()) {
    if (const Group* group = group_from(option.key))
      text.append("\n### ").append(group->title).append("\n\n").append(kHead);
    text.append("| `").append(option.key).append("` | ").append(code(option.get(defaults)));
    text.append(" | ").append(words(option.allowed)).append(" | ").append(words(option.help));
    text.append(" | `").append(ga::environment_name(option.key));
    text.append("` | `").append(ga::argument_name(option.key)).append("` |\n");
  }
  return text;
}

/// A literal of Python.
std::string quoted(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal += '\\';
    literal += c;
  }
  return literal + '"';
}

std::string python() {
  std::string text =
      R"("""Every option, in groups: what `gradvane run --help` shows.

Made by gradvane_options_doc --python from agent/public/option_table.cpp. Do not edit: change the table there.
"""

# ruff: noqa: E501
from __future__ import annotations

GROUPS: dict[str, list[tuple[str, str, str, str]]] = {)";
  const gradvane::Options defaults;
  bool is_first = true;
  for (const ga::OptionSpec& option : ga::option_table()) {
    if (const Group* group = group_from(option.key)) {
      text.append(is_first ? "\n" : "    ],\n").append("    ").append(quoted(group->title));
      text.append(": [\n");
      is_first = false;
    }
    text.append("        (").append(quoted(option.key)).append(", ");
    text.append(quoted(option.get(defaults))).append(", ").append(quoted(option.allowed));
    text.append(", ").append(quoted(option.help)).append("),\n");
  }
  return text + "    ],\n}\n\"\"\"title -> (key, default, allowed, meaning)\"\"\"\n";
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_for_python = argc == 2 && std::string_view(argv[1]) == "--python";
  if (argc > 1 && !is_for_python) return 2;
  return std::fputs((is_for_python ? python() : markdown()).c_str(), stdout) >= 0 ? 0 : 1;
}
