#include "replicator/steps/compiled_step.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace replicant::replicator {

CompiledStep::CompiledStep(DevicePlans plans,
                           std::vector<PartitionedProgram::Place> outputs,
                           const std::vector<InputSpec>& specs)
    : plans_(std::move(plans)),
      outputs_(std::move(outputs)),
      sent_(plans_.size(), 0) {
  for (const auto& devices : plans_) {
    // inputs are on the first device
    runtime::Executor& plan = *devices[0].executor;
    std::vector<MutableTensorView> batch;
    batch.reserve(specs.size());
    for (const InputSpec& spec : specs) batch.push_back(plan.input(spec.name));
    batches_.push_back(std::move(batch));
    for (const std::string& name : plan.input_names()) {
      accumulation_.Add(name, plan.input(name));
    }
  }
}

void CompiledStep::SetBatchNumber(int64_t number) {
  ahead_->Set(Ahead::State::kUnknown);
  accumulation_.Set(number);
}

void CompiledStep::Ahead::Set(State new_state) {
  const MutexLock lock(mutex);
  state = new_state;
  changed.NotifyAll();
}

bool CompiledStep::Ahead::IsThere() {
  const MutexLock lock(mutex);
  while (state == State::kUnknown) changed.Wait(mutex);
  return state == State::kThere;
}

bool CompiledStep::can_read_ahead() const {
  return plans_[0][0].executor->can_fill_ahead();
}

void CompiledStep::RunDevice(size_t replica, size_t device, SharedInput& input,
                             bool reads_ahead) {
  runtime::Executor& plan = *plans_[replica][device].executor;
  if (device != 0) {
    plan.Run();
    return;
  }
  TakeBatch(replica, input);
  plan.Start();
  if (reads_ahead) SendAhead(replica, input);
  plan.Wait();
}

void CompiledStep::TakeBatch(size_t replica, const SharedInput& input) {
  if (sent_[replica] == input.number()) return;
  // a batch that another step took instead
  if (sent_[replica] != 0) plans_[replica][0].executor->RecallInputs();
  input.CopyTo(static_cast<int>(replica), batches_[replica]);
}

void CompiledStep::SendAhead(size_t replica, SharedInput& input) {
  if (replica == 0) {
    ahead_->Set(input.FetchAhead() ? Ahead::State::kThere
                                   : Ahead::State::kNone);
  }
  sent_[replica] = 0;
  if (!ahead_->IsThere()) return;
  input.CopyAheadTo(static_cast<int>(replica), batches_[replica]);
  plans_[replica][0].executor->SendInputs();
  sent_[replica] = input.number() + 1;
}

TensorView CompiledStep::value(size_t index) const {
  const PartitionedProgram::Place place = outputs_[index];
  return plans_[0][place.device].executor->output(place.index);
}

ReduceTimes CompiledStep::reduce_times() const {
  ReduceTimes times;
  const auto& first = plans_[0];
  for (size_t device = 0; device < first.size(); ++device) {
    for (size_t call = 0; call < first[device].waits->size(); ++call) {
      double least = std::numeric_limits<double>::infinity();
      for (const auto& devices : plans_) {
        least = std::min(least, (*devices[device].waits)[call].seconds);
      }
      const bool is_bucket = (*first[device].waits)[call].is_bucket;
      (is_bucket ? times.buckets_s : times.calls_s) += least;
    }
  }
  return times;
}

}  // namespace replicant::replicator
