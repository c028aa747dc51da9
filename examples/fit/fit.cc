#include "fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/disk_queue.h"
#include "base/error.h"
#include "base/fs.h"
#include "engine/kernels/backend.h"
#include "engine/nn/optimizers.h"
#include "engine/nn/trained_variables.h"
#include "engine/runtime/executor.h"
#include "learner/data/epoch_order.h"
#include "learner/learner.h"
#include "learner/workload.h"
#include "replicator/make_replicator.h"

namespace replicant::fit {
namespace {

using graph::Graph;
using graph::Output;
using learner::NextResult;
using replicator::InputContext;
using replicator::InputSpec;

using NamedScalars = std::vector<std::pair<std::string, double>>;

constexpr const char* kBatches = "batches";

// The types of a batch of `rows` examples.
std::vector<InputSpec> SpecsOf(const Dataset& dataset, int64_t rows) {
  std::vector<InputSpec> specs;
  for (const Dataset::Column& column : dataset.columns) {
    specs.push_back({.name = column.name,
                     .dtype = column.values.dtype(),
                     .shape = column.values.shape().WithLeading(rows),
                     .num_classes = column.num_classes});
  }
  return specs;
}

// Copies example `from` of every column to row `to` of a batch.
void CopyExample(const Dataset& dataset, int64_t from, int64_t to,
                 std::span<const MutableTensorView> batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const HostTensor& values = dataset.columns[i].values;
    const size_t size =
        values.size_bytes() / static_cast<size_t>(values.shape()[0]);
    if (size == 0) continue;
    std::memcpy(static_cast<std::byte*>(batch[i].data()) +
                    static_cast<size_t>(to) * size,
                values.bytes().data() + static_cast<size_t>(from) * size, size);
  }
}

// The batches of one group: every num_groups-th of the run's.
class DatasetPipeline : public replicator::InputPipeline {
 public:
  DatasetPipeline(const Dataset* dataset, data::EpochOrder* order,
                  int64_t batch_size, const InputContext& context)
      : dataset_(*dataset),
        order_(*order),
        rows_(batch_size),
        context_(context),
        specs_(SpecsOf(*dataset, context.PipelineBatchSize(batch_size))) {}

  const std::vector<InputSpec>& specs() const override { return specs_; }
  NextResult Next(Clock::TimePoint /*deadline*/,
                  std::span<const MutableTensorView> batch) override {
    const int64_t number = position_ * context_.num_groups + context_.group_id;
    for (int64_t row = 0; row < rows_; ++row) {
      CopyExample(dataset_, order_.At(number * rows_ + row), row, batch);
    }
    ++position_;
    return NextResult::kOk;
  }

  int64_t position() const { return position_; }
  void SetPosition(int64_t position) { position_ = position; }
  const InputContext& context() const { return context_; }

 private:
  const Dataset& dataset_;
  data::EpochOrder& order_;
  const int64_t rows_;
  const InputContext context_;
  const std::vector<InputSpec> specs_;
  int64_t position_ = 0;  // the group's next batch
};

// The scores of the newest variables on a dataset, by one replica.
class Evaluator {
 public:
  Evaluator(const Model& model, const Dataset& dataset, int64_t batch_size,
            const replicator::ReplicationConfig& config)
      : dataset_(dataset),
        backend_(kernels::MakeBackend(
            config.backend,
            config.backend_options(/*number=*/0, config.MakePlanCache()))),
        variables_(*backend_, /*seed=*/0) {
    AddPlan(model, std::min(batch_size, dataset.size()));
    const int64_t rest = dataset.size() % plans_[0].rows;
    if (rest > 0) AddPlan(model, rest);
  }

  NamedScalars Run(const runtime::VariableStore& newest) {
    for (const auto& [name, variable] : variables_.variables()) {
      variables_.Set(name, newest.Get(name).view());
    }
    NamedScalars sums;
    for (int64_t first = 0; first < dataset_.size();) {
      Plan& plan =
          dataset_.size() - first >= plans_[0].rows ? plans_[0] : plans_.back();
      for (int64_t row = 0; row < plan.rows; ++row) {
        CopyExample(dataset_, first + row, row, plan.batch);
      }
      plan.executor->Run();
      for (size_t i = 0; i < plan.names.size(); ++i) {
        if (sums.size() <= i) {
          sums.emplace_back("evaluation_" + plan.names[i], 0.0);
        }
        sums[i].second += static_cast<double>(plan.rows) *
                          plan.executor->output(i).Span<float>()[0];
      }
      first += plan.rows;
    }
    for (auto& [name, sum] : sums) sum /= static_cast<double>(dataset_.size());
    return sums;
  }

 private:
  struct Plan {
    int64_t rows = 0;
    std::vector<std::string> names;
    std::unique_ptr<runtime::Executor> executor;
    std::vector<MutableTensorView> batch;
  };

  void AddPlan(const Model& model, int64_t rows) {
    Graph graph;
    std::vector<std::pair<std::string, Output>> inputs;
    const std::vector<InputSpec> specs = SpecsOf(dataset_, rows);
    inputs.reserve(specs.size());
    for (const InputSpec& spec : specs) {
      inputs.emplace_back(spec.name,
                          graph.Input(spec.name, spec.dtype, spec.shape));
    }
    Plan plan{.rows = rows};
    runtime::PlanSpec outputs;
    for (const auto& [name, score] :
         model.scores(graph, replicator::Inputs(std::move(inputs)))) {
      plan.names.push_back(name);
      outputs.outputs.push_back(score);
    }
    plan.executor =
        std::make_unique<runtime::Executor>(graph, outputs, variables_);
    for (const InputSpec& spec : specs) {
      plan.batch.push_back(plan.executor->input(spec.name));
    }
    plans_.push_back(std::move(plan));
  }

  const Dataset& dataset_;
  std::unique_ptr<kernels::Backend> backend_;
  runtime::VariableStore variables_;
  std::vector<Plan> plans_;  // for whole batches, and for the rest
};

class FitWorkload : public learner::Workload {
 public:
  FitWorkload(const Model& model, const Dataset& training,
              const FitOptions& options)
      : dataset_size_(training.size()),
        batch_size_(options.batch_size),
        order_({training.size()}, options.seed),
        replicator_(replicator::MakeReplicator(options.replication,
                                               options.seed, options.place)) {
    // one process draws, so that a checkpoint has one cut
    input_ = replicator_->MakeInput(
        [&](const InputContext& context) {
          auto pipeline = std::make_unique<DatasetPipeline>(
              &training, &order_, options.batch_size, context);
          pipelines_.push_back(pipeline.get());
          return pipeline;
        },
        replicator::InputMode::kSingle);
    step_ = replicator_->Build(*input_, [&](replicator::ReplicaContext& replica,
                                            const replicator::Inputs& batch) {
      return BuildStep(model, replica, batch);
    });
    if (options.evaluation != nullptr && leads()) {
      evaluator_.emplace(model, *options.evaluation, options.batch_size,
                         options.replication);
    }
  }

  bool leads() const { return replicator_->process_id() == 0; }

  NextResult Step(Clock::TimePoint deadline) override {
    const NextResult result = step_->Run(deadline);
    if (result != NextResult::kOk || !leads()) return result;
    num_batches_ += step_->num_steps();
    ++num_summed_;
    for (const std::string& name : names_) {
      sums_[name] += step_->value(name).Span<float>()[0];
    }
    if (epoch() > ended_epochs_) EndEpoch();
    return result;
  }

  int64_t NumNewSteps() const override { return step_->num_steps(); }
  void Stop() override { replicator_->Stop(); }
  std::string WaitReason() const override { return "examples"; }
  double WaitSeconds() const override { return 0.0; }
  runtime::VariableStore& variables() override {
    return replicator_->variables();
  }
  NamedScalars Scalars() const override {
    NamedScalars scalars;
    for (const std::string& name : names_) {
      scalars.emplace_back(name, step_->value(name).Span<float>()[0]);
    }
    scalars.insert(scalars.end(), evaluation_.begin(), evaluation_.end());
    return scalars;
  }
  std::optional<double> NumEpochs() const override {
    return static_cast<double>(num_batches_ * batch_size_) /
           static_cast<double>(dataset_size_);
  }
  std::map<std::string, std::string> State() const override {
    return {{kBatches, std::to_string(num_batches_)}};
  }
  void Restore(const std::map<std::string, std::string>& state) override {
    const auto found = state.find(kBatches);
    const std::string text = found == state.end() ? "" : found->second;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, num_batches_);
    if (error != std::errc() || stop != end || num_batches_ < 0) {
      throw InvalidArgument(fmt::format(
          "checkpoint: {}: want a whole number >= 0, got '{}'; hint: the "
          "folder holds another kind of run",
          kBatches, text));
    }
    ended_epochs_ = epoch();
    for (DatasetPipeline* const pipeline : pipelines_) {
      const InputContext& context = pipeline->context();
      pipeline->SetPosition(
          (num_batches_ + context.num_groups - 1 - context.group_id) /
          context.num_groups);
    }
  }
  NamedScalars Evaluate() override {
    return evaluator_ ? evaluator_->Run(variables()) : NamedScalars{};
  }

  std::vector<std::map<std::string, double>> TakeEpochs() {
    return std::move(epochs_);
  }

 private:
  int64_t epoch() const { return num_batches_ * batch_size_ / dataset_size_; }

  replicator::StepOutputs BuildStep(const Model& model,
                                    replicator::ReplicaContext& replica,
                                    const replicator::Inputs& batch) {
    Graph& graph = replica.graph();
    const Model::Scores scores = model.scores(graph, batch);
    if (scores.empty()) {
      throw InvalidArgument(
          "Fit: the model has no scores; want its loss first");
    }
    const nn::TrainedVariables trained = nn::GradientsOf(scores[0].second, "");
    const nn::StepCounter step = nn::AddStepCounter(graph);
    const std::vector<Output> gradients =
        replica.MeanGradients(trained.gradients);
    const Output update =
        model.optimizer
            ? model.optimizer(replica, trained.variables, gradients, step.value)
            : nn::Adam(replica, "adam", trained.variables, gradients,
                       graph.Scalar(1e-3, DType::kF32), step.value);
    replicator::StepOutputs outputs{.updates = {update, step.advance}};
    names_.clear();
    for (const auto& [name, score] : scores) {
      if (score.dtype() != DType::kF32 || score.shape().rank() != 0) {
        throw InvalidArgument(
            fmt::format("Fit: score '{}' is {}; want f32[], a mean over rows",
                        name, score.type().ToString()));
      }
      names_.push_back(name);
      outputs.values.emplace_back(name,
                                  replica.AllReduce(score, ReduceOp::kMean));
    }
    return outputs;
  }

  void EndEpoch() {
    ended_epochs_ = epoch();
    evaluation_ = Evaluate();
    std::map<std::string, double> scores(evaluation_.begin(),
                                         evaluation_.end());
    for (const auto& [name, sum] : std::exchange(sums_, {})) {
      scores[name] = sum / static_cast<double>(num_summed_);
    }
    num_summed_ = 0;
    epochs_.push_back(std::move(scores));
  }

  const int64_t dataset_size_;
  const int64_t batch_size_;
  data::EpochOrder order_;
  std::unique_ptr<replicator::Replicator> replicator_;
  std::vector<DatasetPipeline*> pipelines_;  // of this process; input_'s
  std::unique_ptr<replicator::Input> input_;
  std::vector<std::string> names_;  // of the scores
  std::unique_ptr<replicator::Step> step_;
  std::optional<Evaluator> evaluator_;  // of the first process
  int64_t num_batches_ = 0;             // of all groups
  int64_t ended_epochs_ = 0;
  // since the last epoch's end
  std::map<std::string, double> sums_;
  int64_t num_summed_ = 0;
  NamedScalars evaluation_;
  std::vector<std::map<std::string, double>> epochs_;
};

void Check(const Dataset& dataset, const char* what,
           const FitOptions& options) {
  const int64_t size = dataset.size();
  if (options.batch_size < 1 || options.epochs < 1) {
    throw InvalidArgument(
        fmt::format("Fit: batch_size {} and epochs {}; want 1 or more of both",
                    options.batch_size, options.epochs));
  }
  if (size < 1) throw InvalidArgument(fmt::format("Fit: no {} examples", what));
}

}  // namespace

int64_t Dataset::size() const {
  if (columns.empty()) throw InvalidArgument("Dataset: no columns");
  const auto rows_of = [](const Column& column) {
    const Shape& shape = column.values.shape();
    return shape.rank() == 0 ? int64_t{0} : shape[0];
  };
  const int64_t size = rows_of(columns[0]);
  for (const Column& column : columns) {
    if (rows_of(column) != size || size == 0) {
      throw InvalidArgument(
          fmt::format("Dataset: column '{}' is {} of {}; want a row for each "
                      "of {} examples",
                      column.name, column.values.shape().ToString(),
                      DTypeName(column.values.dtype()), size));
    }
  }
  return size;
}

FitResult Fit(const Model& model, const Dataset& training,
              const FitOptions& options) {
  Check(training, "training", options);
  if (options.evaluation != nullptr) {
    Check(*options.evaluation, "evaluation", options);
  }
  FitWorkload workload(model, training, options);
  FitResult result;
  if (!workload.leads()) {
    learner::Follow(workload, options.should_stop);
    return result;
  }
  learner::LearnerConfig config;
  config.batch_size = options.batch_size;
  config.limits.max_epochs = static_cast<double>(options.epochs);
  config.log_interval_s = options.log_interval_s;
  config.checkpoint_interval_s = options.checkpoint_interval_s;
  config.parameter_bind = "";
  MakeFolders(options.folder);
  learner::Learner loop(config, options.folder, &workload,
                        {.should_stop = options.should_stop});
  static_cast<void>(loop.Run());
  result.num_steps = loop.step();
  result.epochs = workload.TakeEpochs();
  for (const auto& [name, variable] : workload.variables().variables()) {
    if (variable.spec.is_trainable) {
      result.variables.emplace(name, workload.variables().Get(name));
    }
  }
  return result;
}

}  // namespace replicant::fit
