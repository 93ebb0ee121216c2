#include "collectors/sync_ledger/places/place_finder.hpp"

#include <gtest/gtest.h>

namespace gradvane::collectors {
namespace {

TEST(OwnerOfFileTest, TorchIsPassedOverWhereverItIsInstalled) {
  for (const char* path : {"/venv/lib/python3.11/site-packages/torch/nn/modules/module.py",
                           "/usr/lib/python3/dist-packages/torch/_tensor.py",
                           "/venv/lib/python3.12/site-packages/triton/runtime/jit.py",
                           "/venv/lib/python3.12/site-packages/gradvane/_hooks.py",
                           "/tmp/torchinductor_me/ab/cabc.py", "<eval_with_key>.0"})
    EXPECT_EQ(owner_of_file(path), CodeOwner::torch) << path;
}

TEST(OwnerOfFileTest, TheProfilerIsKnownByItsFiles) {
  EXPECT_EQ(owner_of_file("/v/lib/python3.11/site-packages/torch/profiler/profiler.py"),
            CodeOwner::profiler);
  EXPECT_EQ(owner_of_file("/v/lib/python3.11/site-packages/torch/autograd/profiler.py"),
            CodeOwner::profiler);
}

TEST(OwnerOfFileTest, PythonsOwnLibraryIsOnlyALastResort) {
  for (const char* path : {"/usr/lib/python3.11/contextlib.py", "<frozen runpy>",
                           "/opt/py/lib/python3.13/functools.py", "/opt/python311.zip/enum.py"})
    EXPECT_EQ(owner_of_file(path), CodeOwner::library) << path;
}

TEST(OwnerOfFileTest, EverythingElseIsTheUsers) {
  for (const char* path :
       {"train.py", "/data/torch/train.py", "<stdin>", "<string>", "<ipython-input-3-abc>",
        "/v/lib/python3.11/site-packages/transformers/trainer.py",
        "/v/lib/python3.11/site-packages/torchvision/io.py", "/data/lib/model.py", ""})
    EXPECT_EQ(owner_of_file(path), CodeOwner::user) << path;
}

}  // namespace
}  // namespace gradvane::collectors
