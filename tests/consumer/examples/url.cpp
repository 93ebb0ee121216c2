// Says where the agent listens. It names no torch, as the main file of a program whose model is in a library.
#include <gradvane/agent.hpp>
#include <iostream>

int main() {
  const gradvane::Agent agent;
  std::cout << agent.url() << '\n';
}
