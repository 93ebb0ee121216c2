// A LibTorch training loop as one finds them; the three lines marked + attach Gradvane.
#include <torch/torch.h>

#include <gradvane/agent.hpp>  // +
#include <iostream>

int main() {
  torch::manual_seed(0);

  torch::nn::Sequential model(torch::nn::Linear(8, 16), torch::nn::Tanh(),
                              torch::nn::Linear(16, 1));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  gradvane::Agent agent;            // +
  agent.attach(*model, optimizer);  // +

  const torch::Tensor data = torch::randn({512, 8});
  const torch::Tensor target = data.sum(1, /*keepdim=*/true).sin();

  constexpr int kBatch = 32;
  constexpr int kEpochs = 5;
  for (int epoch = 1; epoch <= kEpochs; ++epoch) {
    double sum = 0;
    int batches = 0;
    for (int begin = 0; begin + kBatch <= data.size(0); begin += kBatch) {
      const torch::Tensor x = data.narrow(0, begin, kBatch);
      const torch::Tensor y = target.narrow(0, begin, kBatch);

      optimizer.zero_grad();
      const torch::Tensor loss = torch::mse_loss(model->forward(x), y);
      loss.backward();
      agent.step(optimizer, loss);  // was: optimizer.step();

      sum += loss.item<double>();
      ++batches;
    }
    std::cout << "epoch " << epoch << " loss " << sum / batches << '\n';
  }
  return 0;
}
