// Plans that cannot be made.
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "collectors/model/libtorch_source.hpp"
#include "collectors/model/model_watch.hpp"

namespace gradvane::collectors {
namespace {

using torch::optim::SGD;

/// As another source, until it has to fail.
class Failing : public ModelSource {
 public:
  Failing(std::unique_ptr<ModelSource> source, const bool& fails)
      : source_(std::move(source)), fails_(fails) {}

  [[nodiscard]] const void* names_key() const noexcept override { return source_->names_key(); }
  [[nodiscard]] const void* optimizer_key() const noexcept override {
    return source_->optimizer_key();
  }
  [[nodiscard]] std::string optimizer_type() const override { return source_->optimizer_type(); }
  [[nodiscard]] std::vector<Named> named_parameters() const override {
    return source_->named_parameters();
  }
  [[nodiscard]] bool names_are_cheap() const noexcept override {
    return source_->names_are_cheap();
  }
  [[nodiscard]] std::vector<std::vector<Tensor>> optimizer_parameters() const override {
    return source_->optimizer_parameters();
  }
  [[nodiscard]] bool changed(std::span<const void* const> identity) const noexcept override {
    return source_->changed(identity);
  }
  [[nodiscard]] std::vector<Shard> shards(std::span<const Tensor> params) const override {
    if (fails_) throw std::runtime_error("it has no shape");
    return source_->shards(params);
  }
  [[nodiscard]] Tensor local_part(const Tensor& tensor) const override {
    return source_->local_part(tensor);
  }
  [[nodiscard]] std::int64_t steps_done() const override { return source_->steps_done(); }
  int learning_rates(double* out, int room) const noexcept override {
    return source_->learning_rates(out, room);
  }

 private:
  std::unique_ptr<ModelSource> source_;
  const bool& fails_;
};

TEST(ModelWatch, PlansThatCannotBeMadeLeaveAllAsItWas) {
  bool fails = false;
  torch::nn::Linear body(3, 2);
  torch::nn::Linear head(2, 2);
  SGD of_body(body->parameters(), 0.1);
  SGD of_head(head->parameters(), 0.1);
  ModelWatch watch("auto", 50);
  (void)watch.add(libtorch_source(*body, &of_body));
  (void)watch.add(std::make_unique<Failing>(libtorch_source(*head, &of_head), fails));
  const std::array plans{watch.plan(0), watch.plan(1)};
  of_head.param_groups()[0].params().pop_back();
  fails = true;
  EXPECT_THROW(watch.rebuild(), std::runtime_error);
  for (const int optimizer : {0, 1}) {
    EXPECT_EQ(watch.plan(optimizer), plans[static_cast<std::size_t>(optimizer)]);
    EXPECT_EQ(watch.params(optimizer).size(), 2u);
  }
  EXPECT_TRUE(watch.changed(1)) << "the next one tries again";
  fails = false;
  watch.rebuild();
  EXPECT_FALSE(watch.changed(1));
  EXPECT_NE(watch.plan(1), plans[1]);
}

}  // namespace
}  // namespace gradvane::collectors
