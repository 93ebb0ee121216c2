#include "tests/json_instances.hpp"

GRADVANE_JSON_INSTANCES();
