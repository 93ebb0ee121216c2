// Writes docs/configuration.md to standard output, from the option table.
#include <cstdio>
#include <string>
#include <string_view>

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

## Several processes

`rank`, `local_rank` and `world_size` need not be set under `torchrun`, or any launcher that sets `RANK`,
`LOCAL_RANK` and `WORLD_SIZE`: what is set nowhere else is taken from these.

## Options

`log`, which receives the agent's few lines, and `command_line`, which holds what `take_arguments` found, are set
in code only.

| Key | Default | Allowed | Meaning | Environment | Command line |
|---|---|---|---|---|---|
)";

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

}  // namespace

int main() {
  std::string text = kIntroduction;
  const gradvane::Options defaults;
  for (const ga::OptionSpec& option : ga::option_table()) {
    text.append("| `").append(option.key).append("` | ").append(code(option.get(defaults)));
    text.append(" | ").append(words(option.allowed)).append(" | ").append(words(option.help));
    text.append(" | `").append(ga::environment_name(option.key));
    text.append("` | `").append(ga::argument_name(option.key)).append("` |\n");
  }
  return std::fputs(text.c_str(), stdout) >= 0 ? 0 : 1;
}
