// The sample on a device is that of the CPU, element for element.
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

#include <vector>

#include "collectors/tensors/device_sample.hpp"
#include "collectors/tensors/update_sample.hpp"
#include "tests/kernels/device/cuda_device.hpp"

namespace gradvane::collectors {
namespace {

class DeviceSampleOnCuda : public kernels::test::OnDevice {
 protected:
  /// Parameters of every dtype, one transposed, one frozen, one without elements.
  static std::vector<at::Tensor> parameters(at::Device device) {
    std::vector<at::Tensor> params;
    for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16})
      params.push_back(at::randn({70, 30}).to(device, type).requires_grad_());
    params.push_back(at::randn({30, 70}).to(device).t().detach().requires_grad_());
    params.push_back(at::randn({5}).to(device));
    params.push_back(at::randn({0}).to(device).requires_grad_());
    return params;
  }
};

TEST_F(DeviceSampleOnCuda, ChangesAreThoseThatTheCpuSamples) {
  constexpr std::int64_t kElements = 100;
  const std::vector<at::Tensor> on_device = parameters(at::kCUDA);
  std::vector<at::Tensor> on_host;
  for (const at::Tensor& param : on_device)
    on_host.push_back(param.detach().cpu().requires_grad_(param.requires_grad()));

  DeviceSample device;
  UpdateSample host;
  device.resize(on_device, kElements);
  host.resize(on_host, kElements);
  device.keep(on_device);
  host.keep(on_host);
  for (std::size_t i = 0; i < on_device.size(); ++i) {
    on_device[i].detach().mul_(1.5);
    on_host[i].detach().mul_(1.5);
  }
  device.difference(on_device);
  std::vector<kernels::TensorStats> expected(on_host.size());
  host.difference(on_host, expected);

  for (std::size_t i = 0; i < on_device.size(); ++i) {
    SCOPED_TRACE(i);
    const at::Tensor changes = device.changes(i);
    ASSERT_EQ(changes.defined(), expected[i].numel > 0);
    if (!changes.defined()) continue;
    EXPECT_TRUE(device.changes(i).is_same(changes)) << "torch is not asked for another";
    EXPECT_EQ(changes.numel(), expected[i].numel);
    const double sum_sq = changes.square().sum().item<double>();
    EXPECT_NEAR(sum_sq, expected[i].sum_sq, 1e-12 * expected[i].sum_sq);
    EXPECT_EQ(changes.abs().max().item<double>(), expected[i].abs_max);
  }
}

TEST_F(DeviceSampleOnCuda, AParameterThatWasReplacedHasNoChanges) {
  std::vector<at::Tensor> params = parameters(at::kCUDA);
  DeviceSample device;
  device.resize(params, 10);
  device.keep(params);
  params[0] = at::randn({3}).to(at::kCUDA).requires_grad_();
  params[1] = params[1].detach().cpu();
  device.difference(params);
  EXPECT_FALSE(device.changes(0).defined());
  EXPECT_FALSE(device.changes(1).defined());
  EXPECT_TRUE(device.changes(2).defined());
}

}  // namespace
}  // namespace gradvane::collectors
