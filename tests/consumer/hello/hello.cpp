// The example of README.md: consumer_test.py holds it against the lines between the marks.
// readme-begin
#include <torch/torch.h>

#include <gradvane/agent.hpp>

int main() {
  torch::nn::Linear model(10, 1);
  torch::optim::AdamW optimizer(model->parameters(), 1e-3);
  gradvane::Agent agent({.run = "hello"});
  agent.attach(*model, optimizer);
  for (int step = 0; step < 1000; ++step) {
    optimizer.zero_grad();
    torch::Tensor loss = model->forward(torch::randn({64, 10})).square().mean();
    loss.backward();
    agent.step(optimizer, loss);  // where optimizer.step() stood
  }
}
// readme-end
