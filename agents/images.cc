#include "agents/images.h"

#include <span>

#include "engine/graph/ops/image.h"
#include "engine/graph/ops/shape_ops.h"

namespace replicant::agents {
namespace {

using graph::Output;

// [B, H, W, C]
std::vector<int64_t> DimsOf(int64_t rows, const Shape& image) {
  std::vector<int64_t> dims = {rows};
  dims.insert(dims.end(), image.dims().begin(), image.dims().end());
  return dims;
}

}  // namespace

std::vector<Output> SplitImages(const TaskSpec& task, Output observation,
                                graph::CallSite site) {
  if (task.images.empty()) return {observation};
  const graph::Graph::SiteScope scope(observation, site);
  const int64_t rows = observation.shape()[0];
  std::vector<Output> images;
  int64_t begin = 0;
  for (const ImageSpec& image : task.images) {
    const int64_t size = image.shape.num_elements();
    images.push_back(
        graph::Reshape(graph::Slice(observation, {0, begin}, {rows, size}),
                       DimsOf(rows, image.shape)));
    begin += size;
  }
  return images;
}

Output JoinImages(const std::vector<Output>& images, graph::CallSite site) {
  if (images.size() == 1) return images[0];
  const graph::Graph::SiteScope scope(images.at(0), site);
  std::vector<Output> rows;
  rows.reserve(images.size());
  for (const Output& image : images) {
    rows.push_back(graph::Reshape(image, {image.shape()[0], -1}));
  }
  return graph::Concat(rows, /*axis=*/1);
}

Output GatherObservations(const TaskSpec& task, Output frames, Output slots,
                          graph::CallSite site) {
  const graph::Graph::SiteScope scope(frames, site);
  const auto leading = slots.shape().dims().first(slots.shape().rank() - 1);
  std::vector<Output> images;
  graph::FrameImage place;
  for (const ImageSpec& image : task.AllImages()) {
    place.pixels = image.shape[0] * image.shape[1];
    place.channels = image.shape[2] / task.frame_stack;
    std::vector<int64_t> dims(leading.begin(), leading.end());
    if (task.images.empty()) {
      dims.insert(dims.end(), image.shape.dims().begin(),
                  image.shape.dims().end());
    } else {
      dims.push_back(image.shape.num_elements());
    }
    images.push_back(
        graph::Reshape(graph::GatherStacks(frames, slots, place), dims));
    place.begin += place.pixels * place.channels;
  }
  return images.size() == 1 ? images[0] : graph::Concat(images, /*axis=*/-1);
}

std::vector<Output> ImageInputs(graph::Graph& graph, const TaskSpec& task,
                                int64_t rows) {
  const std::vector<ImageSpec> all = task.AllImages();
  std::vector<Output> images;
  for (const ImageSpec& image : all) {
    const auto dims = DimsOf(rows, image.shape);
    images.push_back(graph.Input(all.size() == 1 ? "observation" : image.name,
                                 DType::kU8,
                                 Shape(std::span<const int64_t>(dims))));
  }
  return images;
}

}  // namespace replicant::agents
