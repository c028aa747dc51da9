#include "models/resnet/config.h"

#include <algorithm>

namespace replicant::models::resnet {

SgdConfig SgdConfig::Read(config::Reader& reader) {
  SgdConfig c;
  reader.Field("kind", &c.kind,
               {{"sgd", OptimizerKind::kSgd}, {"lars", OptimizerKind::kLars}},
               "sgd: stochastic gradient descent with momentum; lars: the same "
               "with a rate per weight tensor, from its norm and the norm of "
               "its gradient, for batches of thousands (arXiv:1708.03888)");
  reader.Field("trust_coefficient", &c.trust_coefficient, {1e-6, 1.0},
               "lars: factor of the rate of each weight tensor");
  reader.Field("learning_rate", &c.learning_rate, {0.0, 100.0},
               "learning rate after the warm-up; usually 0.1 per 256 images "
               "of a batch");
  reader.Field("momentum", &c.momentum, {0.0, 0.9999}, "momentum of SGD");
  reader.Field("weight_decay", &c.weight_decay, {0.0, 1.0},
               "weight decay of convolutions and the last layer; not applied "
               "to norms and biases");
  reader.Field("warm_up_steps", &c.warm_up_steps, {0, 1'000'000'000},
               "updates over which the learning rate rises linearly to its "
               "value");
  reader.Field("schedule", &c.schedule,
               {{"steps", Schedule::kSteps}, {"cosine", Schedule::kCosine}},
               "fall of the learning rate. steps: at decay_steps; cosine: half "
               "a cosine to 0 at total_steps");
  reader.Field("total_steps", &c.total_steps, {0, 1'000'000'000},
               "updates of the schedule cosine");
  reader.Field("decay_steps", &c.decay_steps, {1, 1'000'000'000}, {0, 16},
               "ascending updates; at each the learning rate is multiplied by "
               "decay_factor");
  reader.Field("decay_factor", &c.decay_factor, {0.0, 1.0},
               "factor of the learning rate at each of decay_steps");
  if (c.schedule == Schedule::kCosine && c.total_steps == 0) {
    reader.Error("total_steps",
                 "the schedule cosine needs the number of updates");
  }
  if (c.schedule != Schedule::kCosine && c.total_steps != 0) {
    reader.Error("total_steps",
                 "belongs to the schedule cosine; hint: "
                 "schedule: cosine");
  }
  if (c.schedule != Schedule::kSteps && !c.decay_steps.empty()) {
    reader.Error("decay_steps",
                 "belong to the schedule steps; allowed with cosine: []");
  }
  if (!std::ranges::is_sorted(c.decay_steps)) {
    reader.Error("decay_steps", "want ascending numbers");
  }
  return c;
}

ResNetConfig ResNetConfig::Read(config::Reader& reader) {
  ResNetConfig c;
  reader.Field(
      "depth", &c.depth,
      {{"18", Depth::k18}, {"50", Depth::k50}, {"linear", Depth::kLinear}},
      "number of layers: 18 (two convolutions per block) or 50 "
      "(three, with the stride at the 3x3 one: v1.5); linear: a "
      "linear classifier of the pixels, to compare with");
  reader.Field("stem", &c.stem,
               {{"imagenet", Stem::kImageNet}, {"small", Stem::kSmall}},
               "first layers. imagenet: a 7x7 convolution of stride 2 and a "
               "pool; small: a 3x3 convolution, for images of about 32 "
               "pixels");
  reader.Field("width", &c.width, {1, 1024},
               "channels of the stem and of the first stage's blocks");
  reader.Field("image_size", &c.image_size, {8, 4096},
               "side of an image in pixels");
  reader.Field("num_classes", &c.num_classes, {2, 1 << 20},
               "number of classes");
  reader.Field("label_smoothing", &c.label_smoothing, {0.0, 0.99},
               "share of the target that is spread evenly over all classes");
  reader.Field("has_zero_gamma", &c.has_zero_gamma,
               "whether the last batch norm of a block starts with scale 0, "
               "so that the block starts as the identity");
  ReadNormStatistics(reader, &c.batch_norm_statistics);
  reader.Field("micro_batches", &c.micro_batches, {1, 4096},
               "parts into which a replica divides its rows, so that its "
               "logical devices work on several at once. Batch norm uses each "
               "part alone. Must divide the rows of a replica");
  reader.Section("optimizer", &c.optimizer, "SGD with momentum");
  reader.Field("average_decay", &c.average_decay, {0.0, 0.999999},
               "decay rate of a moving average of the variables, which "
               "evaluations and exports use; 0 for none");
  reader.Field("evaluation_interval_steps", &c.evaluation_interval_steps,
               {0, 1'000'000'000},
               "steps between evaluations on all images of images.evaluation, "
               "which it needs, in f32; 0 for none");
  reader.Field("initial_variables", &c.initial_variables,
               "safetensors file, with torchvision's names, of a new run's "
               "initial variables, relative to the file that holds this key; "
               "empty: random");
  reader.Field("has_initial_head", &c.has_initial_head,
               "whether initial_variables also set the last layer; false if "
               "the classes differ");
  return c;
}

}  // namespace replicant::models::resnet
