// An item lives in a slot of items_ and is known in three other places: the
// sampler, the remover, and the list of its first chunk, by which an eviction
// finds it. Enter() and RemoveSlot() keep them together. A freed slot is used
// again by the next insert under a new generation, so that old keys do not
// match the new item.
#include "replay/table/table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/error.h"

namespace replicant::replay {
namespace {

// The limits, including the ones that the table itself sets.
RateLimiterLimits LimitsOf(const TableConfig& config,
                           RateLimiterLimits limits) {
  limits.max_size = config.max_size;
  limits.max_times_sampled = config.max_times_sampled;
  return limits;
}

}  // namespace

Table::Table(const TableConfig& config, const RateLimiterLimits& limits,
             uint32_t index, FrameStore* store)
    : config_(config),
      index_(index),
      store_(store),
      limiter_([&] {
        // RateLimiter would throw without the table's name
        const std::string reason =
            WhyRefused(config.rate_limiter, LimitsOf(config, limits));
        if (!reason.empty()) {
          throw InvalidArgument(
              fmt::format("table '{}': rate_limiter: {}", config.name, reason));
        }
        return RateLimiter(config.rate_limiter, LimitsOf(config, limits));
      }()),
      sampler_([&] {
        const std::string reason =
            WhyRefused(config.priority_fade, config.sampler);
        if (!reason.empty()) {
          throw InvalidArgument(fmt::format("table '{}': priority_fade: {}",
                                            config.name, reason));
        }
        return MakeSelector(config.sampler, config.max_size,
                            config.priority_exponent, config.priority_fade);
      }()),
      remover_(MakeSelector(config.remover, config.max_size)) {
  if (config.max_times_sampled < 0) {
    throw InvalidArgument(
        fmt::format("table '{}': max_times_sampled {} must be >= 0",
                    config.name, config.max_times_sampled));
  }
  const bool is_random = config.remover == SelectorKind::kPrioritized ||
                         config.remover == SelectorKind::kUniform;
  if (is_random) {
    throw InvalidArgument(
        fmt::format("table '{}': remover '{}' is not allowed; allowed: fifo, "
                    "lifo, lowest_priority",
                    config.name, ToString(config.remover)));
  }
}

Table::~Table() {
  for (uint32_t slot = 0; slot < items_.size(); ++slot) {
    if (items_[slot].first != nullptr) {
      store_->ReleaseRange(*items_[slot].first, items_[slot].num_chunks);
    }
  }
}

int64_t Table::AdmitInserts(int64_t wanted) const {
  const int64_t admitted = limiter_.AdmitInserts(wanted, size_);
  const bool is_queue = config_.rate_limiter.mode == RateLimiterMode::kQueue;
  // the mass comes last, since it takes the longest
  if (admitted == wanted || is_queue || sampler_->mass() > 0.0) return admitted;
  return wanted;
}

uint32_t Table::TakeSlot() {
  if (size_ == config_.max_size) {
    // the constructor allows only removers that draw no random number
    RandomStream unused(0, "remover");
    Draw draw;
    remover_->Select(unused, {&draw, 1});
    RemoveSlot(static_cast<uint32_t>(draw.slot));
  }
  if (!free_slots_.empty()) {
    const uint32_t slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }
  items_.push_back({.generation = first_generation_});
  return static_cast<uint32_t>(items_.size() - 1);
}

// Adds the item in `slot` to the selectors and to the list of its chunk.
void Table::Enter(uint32_t slot) {
  TableItem& item = items_[slot];
  const auto priority = static_cast<double>(item.priority);
  sampler_->Insert(slot, priority);
  remover_->Insert(slot, priority);
  item.first->items.push_back({index_, {slot, item.generation}});
  ++size_;
}

void Table::Insert(const NStepItem& source) {
  REPLICANT_CHECK_EQ(AdmitInserts(1), 1);
  const uint32_t slot = TakeSlot();
  TableItem& item = items_[slot];
  item.first = source.first;
  item.step = static_cast<int32_t>(source.step);
  item.n = static_cast<uint16_t>(source.n);
  item.num_chunks = static_cast<uint16_t>(source.num_chunks);
  item.reward = source.reward;
  item.discount = source.discount;
  item.priority = source.priority.value_or(max_priority_);
  item.times_sampled = 0;
  item.order = static_cast<uint64_t>(limiter_.inserts()) + 1;
  max_priority_ = std::max(max_priority_, item.priority);
  Enter(slot);
  limiter_.CountInserts(1);
}

void Table::RemoveSlot(uint32_t slot) {
  TableItem& item = items_[slot];
  sampler_->Remove(slot);
  remover_->Remove(slot);
  StoredChunk* const first = item.first;
  item.first = nullptr;
  item.generation = std::max(item.generation + 1, first_generation_);
  max_generation_ = std::max(max_generation_, item.generation);
  free_slots_.push_back(slot);
  --size_;
  store_->ReleaseRange(*first, item.num_chunks);
}

bool Table::IsLive(ItemKey key) const {
  return key.slot < items_.size() && items_[key.slot].first != nullptr &&
         items_[key.slot].generation == key.generation;
}

void Table::Prefetch(size_t slot) const {
  if (slot >= items_.size()) return;
  // an item may lie in two cache lines
  const TableItem& item = items_[slot];
  __builtin_prefetch(&item.first);
  __builtin_prefetch(&item.priority);
}

void Table::Remove(ItemKey key) {
  if (IsLive(key)) RemoveSlot(key.slot);
}

int64_t Table::Sample(int64_t wanted, RandomStream& random,
                      SampledBatch* batch) {
  if (!sampler_->CanSelect()) return 0;
  const int64_t admitted = limiter_.AdmitSamples(wanted, size_);
  if (admitted == 0) return 0;
  batch->table_size = size_;
  batch->table_mass = sampler_->mass();
  draws_.resize(static_cast<size_t>(admitted));
  if (config_.max_times_sampled == 0) {
    sampler_->Select(random, draws_);
    for (const Draw& draw : draws_) Prefetch(static_cast<size_t>(draw.slot));
    for (const Draw& draw : draws_) AddToBatch(draw, batch);
    limiter_.CountSamples(admitted);
    return admitted;
  }
  // a draw may remove its item, and the rate limiter may then admit no more
  int64_t drawn = 0;
  while (drawn < admitted && sampler_->CanSelect() &&
         limiter_.AdmitSamples(1, size_) == 1) {
    Draw draw;
    sampler_->Select(random, {&draw, 1});
    AddToBatch(draw, batch);
    limiter_.CountSamples(1);
    ++drawn;
    const auto slot = static_cast<uint32_t>(draw.slot);
    if (items_[slot].times_sampled >= config_.max_times_sampled) {
      RemoveSlot(slot);
    }
  }
  return drawn;
}

void Table::AddToBatch(const Draw& draw, SampledBatch* batch) {
  TableItem& item = items_[static_cast<size_t>(draw.slot)];
  ++item.times_sampled;
  batch->items.push_back(
      {.key = {static_cast<uint32_t>(draw.slot), item.generation},
       .probability = draw.probability,
       .priority = item.priority,
       .reward = item.reward,
       .discount = item.discount,
       .times_sampled = item.times_sampled,
       .age = limiter_.inserts() - static_cast<int64_t>(item.order),
       .step = item.step,
       .n = item.n,
       .first_chunk = static_cast<int64_t>(batch->chunks.size()),
       .num_chunks = item.num_chunks});
  const StoredChunk* chunk = item.first;
  for (int i = 0; i < item.num_chunks; ++i, chunk = chunk->next) {
    chunk->data->WillRead();
    batch->chunks.push_back(chunk->data);
  }
}

int64_t Table::UpdatePriorities(std::span<const PriorityUpdate> updates) {
  for (const PriorityUpdate& update : updates) {
    if (!IsPriority(static_cast<double>(update.priority))) {
      throw InvalidArgument(
          fmt::format("table '{}': priority {} must be finite and >= 0",
                      config_.name, update.priority));
    }
    Prefetch(update.key.slot);
  }
  updated_slots_.clear();
  new_priorities_.clear();
  for (const PriorityUpdate& update : updates) {
    if (!IsLive(update.key)) continue;
    items_[update.key.slot].priority = update.priority;
    max_priority_ = std::max(max_priority_, update.priority);
    updated_slots_.push_back(update.key.slot);
    new_priorities_.push_back(static_cast<double>(update.priority));
  }
  sampler_->Update(updated_slots_, new_priorities_);
  remover_->Update(updated_slots_, new_priorities_);
  return static_cast<int64_t>(updated_slots_.size());
}

void Table::ReadContents(TableContents* contents) const {
  contents->items.assign(items_.begin(), items_.end());
  contents->free_slots.assign(free_slots_.begin(), free_slots_.end());
  contents->limiter = limiter_.state();
  contents->max_priority = max_priority_;
  contents->max_generation = max_generation_;
}

void Table::Restore(const TableContents& contents) {
  REPLICANT_CHECK(items_.empty(), "the table holds items");
  max_priority_ = contents.max_priority;
  limiter_.Restore(contents.limiter);
  first_generation_ = contents.max_generation + kGenerationsPerRestore;
  max_generation_ = first_generation_;

  // the selectors get the items in their order of insertion
  std::vector<size_t> slots_by_age;
  for (size_t slot = 0; slot < contents.items.size(); ++slot) {
    if (contents.items[slot].first != nullptr) slots_by_age.push_back(slot);
  }
  std::sort(slots_by_age.begin(), slots_by_age.end(), [&](size_t a, size_t b) {
    return contents.items[a].order < contents.items[b].order;
  });

  // items keep their slots, and so their keys, unless the table has become
  // smaller than that
  const auto max_size = static_cast<size_t>(config_.max_size);
  const bool keeps_slots = contents.items.size() <= max_size;
  const size_t num_kept = std::min(slots_by_age.size(), max_size);
  items_.resize(keeps_slots ? contents.items.size() : num_kept,
                {.generation = first_generation_});
  size_t next_slot = 0;
  for (size_t i = slots_by_age.size() - num_kept; i < slots_by_age.size();
       ++i) {
    const size_t old_slot = slots_by_age[i];
    const size_t slot = keeps_slots ? old_slot : next_slot++;
    TableItem& item = items_[slot];
    item = contents.items[old_slot];
    if (!keeps_slots) item.generation = first_generation_;
    store_->UseRange(*item.first, item.num_chunks);
    // ages count items that were removed before the checkpoint, too. Version
    // 0.1 counted orders anew after a restore: such items look older
    sampler_->AgeTo(item.order - 1);
    Enter(static_cast<uint32_t>(slot));
  }
  sampler_->AgeTo(static_cast<uint64_t>(limiter_.inserts()));
  if (keeps_slots) free_slots_ = contents.free_slots;
}

}  // namespace replicant::replay
