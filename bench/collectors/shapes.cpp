#include "bench/collectors/shapes.hpp"

namespace gradvane::bench {

std::int64_t ModelShapes::numel() const {
  std::int64_t sum = 0;
  for (const Shape& shape : params) {
    std::int64_t numel = 1;
    for (const std::int64_t size : shape) numel *= size;
    sum += numel;
  }
  return sum;
}

ModelShapes gpt2_124m() {
  constexpr std::int64_t kWidth = 768;
  ModelShapes model{"gpt2_124m", {{50257, kWidth}, {1024, kWidth}}};
  for (int layer = 0; layer < 12; ++layer) {
    const std::vector<Shape> block{
        {kWidth}, {kWidth}, {3 * kWidth, kWidth}, {3 * kWidth}, {kWidth, kWidth},     {kWidth},
        {kWidth}, {kWidth}, {4 * kWidth, kWidth}, {4 * kWidth}, {kWidth, 4 * kWidth}, {kWidth}};
    model.params.insert(model.params.end(), block.begin(), block.end());
  }
  model.params.push_back({kWidth});
  model.params.push_back({kWidth});
  return model;
}

ModelShapes resnet50() {
  ModelShapes model{"resnet50", {}};
  const auto convolution = [&](std::int64_t out, std::int64_t in, std::int64_t size) {
    model.params.push_back({out, in, size, size});
    model.params.push_back({out});  // batch norm, scale
    model.params.push_back({out});  // batch norm, shift
  };
  convolution(64, 3, 7);
  std::int64_t in = 64;
  std::int64_t width = 64;
  for (const int blocks : {3, 4, 6, 3}) {
    for (int block = 0; block < blocks; ++block) {
      convolution(width, in, 1);
      convolution(width, width, 3);
      convolution(4 * width, width, 1);
      if (block == 0) convolution(4 * width, in, 1);  // the shortcut
      in = 4 * width;
    }
    width *= 2;
  }
  model.params.push_back({1000, 2048});
  model.params.push_back({1000});
  return model;
}

ModelShapes tiny_tensors() {
  ModelShapes model{"tiny_10000", {}};
  for (std::int64_t i = 0; i < 10000; ++i) model.params.push_back({16 + i * 37 % 241});
  return model;
}

}  // namespace gradvane::bench
