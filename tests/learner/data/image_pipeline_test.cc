#include "learner/data/image_pipeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/tensor/host_tensor.h"
#include "tests/support/log_lines.h"
#include "tests/support/message_of.h"

namespace replicant::data {
namespace {

using replicant::testing::LogLines;
using replicant::testing::MessageOf;
using replicator::NextResult;
using ::testing::ElementsAre;

// Images whose pixels are a random number of the view and whose class is their
// index, so that a batch shows which ones it holds. Some cannot be read.
class NumberedImages : public ImageSource {
 public:
  explicit NumberedImages(int64_t size, std::vector<int64_t> unreadable = {},
                          bool is_damaged = true)
      : size_(size),
        unreadable_(std::move(unreadable)),
        is_damaged_(is_damaged) {}

  int64_t size() const override { return size_; }
  const std::vector<std::string>& class_names() const override {
    return names_;
  }
  int64_t num_classes() const override { return size_; }
  std::unique_ptr<ImageReader> MakeReader() const override {
    return std::make_unique<Reader>(*this);
  }

 private:
  class Reader : public ImageReader {
   public:
    explicit Reader(const NumberedImages& images) : images_(images) {}
    int32_t Read(int64_t index, View view, int64_t side,
                 std::span<uint8_t> rgb) override {
      if (std::ranges::count(images_.unreadable_, index) > 0) {
        const std::string name = "image " + std::to_string(index);
        if (!images_.is_damaged_) throw IoError(name);
        throw DamagedImage(name);
      }
      const Box box = view.ChooseBox({.height = 256, .width = 256});
      std::ranges::fill(rgb, static_cast<uint8_t>(box.left + box.top));
      view.Finish(side, rgb);
      return static_cast<int32_t>(index);
    }

   private:
    const NumberedImages& images_;
  };

  int64_t size_;
  std::vector<int64_t> unreadable_;
  bool is_damaged_;  // or the system cannot read them
  std::vector<std::string> names_;
};

struct Batch {
  std::vector<uint8_t> image;
  std::vector<int32_t> label;
  std::vector<float> weight;

  bool operator==(const Batch&) const = default;
};

Batch Take(ImagePipeline& pipeline) {
  std::vector<HostTensor> tensors;
  std::vector<MutableTensorView> views;
  for (const replicator::InputSpec& spec : pipeline.specs()) {
    tensors.emplace_back(spec.dtype, spec.shape);
  }
  for (HostTensor& tensor : tensors) views.push_back(tensor.mutable_view());
  const auto deadline = Clock::Real().Now() + std::chrono::minutes(1);
  EXPECT_EQ(pipeline.Next(deadline, views), NextResult::kOk);
  const auto copy = [](auto span, auto* to) {
    to->assign(span.begin(), span.end());
  };
  Batch batch;
  copy(views[0].Span<uint8_t>(), &batch.image);
  copy(views[1].Span<int32_t>(), &batch.label);
  if (views.size() > 2) copy(views[2].Span<float>(), &batch.weight);
  return batch;
}

ImagePipelineOptions Options(int64_t size, int64_t batch_size) {
  return {.source = std::make_shared<NumberedImages>(size),
          .batch_size = batch_size,
          .side = 4,
          .num_classes = size,
          .seed = 5};
}

TEST(ImagePipelineTest, EpochHasEachImageOnceForAnyNumberOfWorkers) {
  // 5 batches of 24 are three epochs of 40
  const ImagePipelineOptions options = Options(40, 24);
  ImagePipeline alone(options, {});
  std::vector<Batch> expected;
  std::vector<int> counts(40);
  for (int i = 0; i < 5; ++i) {
    expected.push_back(Take(alone));
    for (const int32_t label : expected.back().label) {
      ++counts[static_cast<size_t>(label)];
    }
  }
  EXPECT_THAT(counts, ::testing::Each(3));
  for (const int n : {2, 3, 8}) {
    std::vector<std::unique_ptr<ImagePipeline>> workers;
    for (int id = 0; id < n; ++id) {
      workers.push_back(std::make_unique<ImagePipeline>(
          options,
          replicator::InputContext{
              .num_replicas = n, .pipeline_id = id, .num_pipelines = n}));
    }
    for (const Batch& batch : expected) {
      Batch together;
      for (const auto& worker : workers) {
        const Batch part = Take(*worker);
        together.image.insert(together.image.end(), part.image.begin(),
                              part.image.end());
        together.label.insert(together.label.end(), part.label.begin(),
                              part.label.end());
      }
      EXPECT_EQ(together, batch) << n << " workers";
    }
  }
}

TEST(ImagePipelineTest, GroupsDrawBatchesOfTheirOwn) {
  const ImagePipelineOptions options = Options(40, 8);
  ImagePipeline alone(options, {});
  ImagePipeline first(options, {.group_id = 0, .num_groups = 2});
  ImagePipeline second(options, {.group_id = 1, .num_groups = 2});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Take(first), Take(alone));
    EXPECT_EQ(Take(second), Take(alone));
  }
}

TEST(ImagePipelineTest, DoesNotDependOnThreads) {
  ImagePipelineOptions options = Options(40, 8);
  options.num_threads = 0;
  ImagePipeline none(options, {});
  options.num_threads = 3;
  options.num_batches_ahead = 4;
  ImagePipeline three(options, {});
  for (int i = 0; i < 12; ++i) EXPECT_EQ(Take(three), Take(none));
}

TEST(ImagePipelineTest, GoesOnInTheMiddleOfAnEpoch) {
  ImagePipeline whole(Options(40, 8), {});
  for (int i = 0; i < 7; ++i) Take(whole);
  ImagePipeline resumed(Options(40, 8), {});
  Take(resumed);
  resumed.set_position(7);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Take(resumed), Take(whole));
  EXPECT_EQ(resumed.position(), 11);
}

TEST(ImagePipelineTest, EvaluationHasEachImageOnceAndThenEnds) {
  ImagePipelineOptions options = Options(10, 4);
  options.is_training = false;
  for (const int threads : {0, 2}) {
    options.num_threads = threads;
    ImagePipeline pipeline(options, {});
    EXPECT_EQ(pipeline.num_batches(), 3);
    EXPECT_THAT(Take(pipeline).label, ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(Take(pipeline).label, ElementsAre(4, 5, 6, 7));
    const Batch last = Take(pipeline);
    EXPECT_THAT(last.label, ElementsAre(8, 9, 0, 0));
    EXPECT_THAT(last.weight, ElementsAre(1.0F, 1.0F, 0.0F, 0.0F));
    EXPECT_EQ(last.image.back(), 0);
    EXPECT_EQ(pipeline.Next({}, std::vector<MutableTensorView>{}),
              NextResult::kEnd);
    pipeline.set_position(0);
    EXPECT_THAT(Take(pipeline).label, ElementsAre(0, 1, 2, 3));
  }
}

TEST(ImagePipelineTest, UnreadableImageIsLoggedOnceAndLeftOut) {
  const LogLines log;
  ImagePipelineOptions options = Options(6, 6);
  options.source = std::make_shared<NumberedImages>(6, std::vector<int64_t>{2});
  ImagePipeline training(options, {});
  for (int i = 0; i < 3; ++i) {
    const Batch batch = Take(training);
    EXPECT_EQ(std::ranges::count(batch.label, 2), 0);
  }
  EXPECT_THAT(log.lines(), ElementsAre("image left out: image 2"));
  options.is_training = false;
  ImagePipeline evaluation(options, {});
  EXPECT_THAT(Take(evaluation).weight,
              ElementsAre(1.0F, 1.0F, 0.0F, 1.0F, 1.0F, 1.0F));
}

// Would catch scores of fewer images because too many files are open.
TEST(ImagePipelineTest, AnErrorOfTheSystemLeavesNoImageOut) {
  ImagePipelineOptions options = Options(6, 6);
  options.source = std::make_shared<NumberedImages>(6, std::vector<int64_t>{2},
                                                    /*is_damaged=*/false);
  for (const bool is_training : {true, false}) {
    options.is_training = is_training;
    for (const int threads : {0, 1}) {
      options.num_threads = threads;
      ImagePipeline pipeline(options, {});
      EXPECT_EQ(MessageOf<IoError>([&] { Take(pipeline); }), "image 2");
    }
  }
}

TEST(ImagePipelineTest, NoReadableImageIsAnError) {
  ImagePipelineOptions options = Options(2, 2);
  options.source =
      std::make_shared<NumberedImages>(2, std::vector<int64_t>{0, 1});
  for (const int threads : {0, 1}) {
    options.num_threads = threads;
    ImagePipeline pipeline(options, {});
    EXPECT_THAT(MessageOf<IoError>([&] { Take(pipeline); }),
                ::testing::StartsWith("1000 images in turn cannot be read: "));
  }
}

TEST(ImagePipelineTest, SourceWithMoreClassesIsRefused) {
  ImagePipelineOptions options = Options(6, 2);
  options.num_classes = 5;
  EXPECT_EQ(MessageOf<InvalidArgument>([&] { ImagePipeline(options, {}); }),
            "images: the source has 6 classes, the network 5");
}

TEST(ImagePipelineTest, PausedPipelineIsDrainedByTheNextCall) {
  ImagePipeline pipeline(Options(40, 8), {});
  Take(pipeline);
  pipeline.SetPaused(true);
  EXPECT_FALSE(pipeline.is_drained());
  EXPECT_EQ(pipeline.Next({}, std::vector<MutableTensorView>{}),
            NextResult::kTimeout);
  EXPECT_TRUE(pipeline.is_drained());
  EXPECT_EQ(pipeline.position(), 1);
  pipeline.SetPaused(false);
  Take(pipeline);
}

}  // namespace
}  // namespace replicant::data
