#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "replay/table/shard.h"

namespace replicant::replay::testing {

// One chunk as the test made it.
struct ModelChunk {
  uint64_t writer = 0;
  uint64_t episode = 0;
  int64_t first_step = 0;
  std::vector<float> rewards, discounts, priorities;
  bool ends = false;
  int64_t bytes = 0;
  int64_t end_observation() const {
    return first_step + static_cast<int64_t>(rewards.size()) + (ends ? 1 : 0);
  }
};

struct ModelItem {
  int64_t table = 0, order = 0;
  uint64_t writer = 0, episode = 0;
  int64_t step = 0, n = 0;
  double reward = 0.0, discount = 0.0;
  float priority = 0.0f;
  bool has_priority = false;
  int64_t times_sampled = 0;
  std::vector<int64_t> chunks;  // numbers, ascending
};

// The behaviour of a Shard, in the slow and obvious way: every question is
// answered by looking at everything there is.
class ShardModel {
 public:
  explicit ShardModel(const ShardConfig& config) : config_(config) {
    tables_.resize(config.tables.size());
  }

  InsertResult Insert(uint64_t id, uint64_t sequence, const ModelChunk& chunk) {
    Writer& writer = writers_[id];
    writer.open.resize(tables_.size());
    writer.waiting.resize(tables_.size());
    writer.is_closed = false;
    const bool is_admitted = Admit(id);
    if (sequence <= writer.last_sequence) {
      ++counts.duplicate_groups;
      return is_admitted ? InsertResult::kInserted : InsertResult::kWait;
    }
    if (!MakeRoom(chunk.bytes)) return InsertResult::kNoRoom;
    writer.last_sequence = sequence;
    const bool continues = !writer.steps.empty() &&
                           writer.episode == chunk.episode &&
                           writer.end_observation == chunk.first_step;
    if (!continues) {
      ForgetEpisode(writer);
      if (chunk.first_step != 0) {
        ++counts.dropped_groups;
        return InsertResult::kDropped;
      }
    }
    const int64_t number = next_chunk_++;
    chunks_[number] = chunk;
    TakeSteps(writer, number, chunk);
    MakeItems(id, writer, chunk.ends);
    writer.episode = chunk.episode;
    writer.end_observation = chunk.end_observation();
    if (chunk.ends) ForgetEpisode(writer);
    const bool is_in = Admit(id);
    DropUnused();
    return is_in ? InsertResult::kInserted : InsertResult::kWait;
  }

  InsertResult Resume(uint64_t id) {
    writers_[id].open.resize(tables_.size());
    writers_[id].waiting.resize(tables_.size());
    writers_[id].is_closed = false;
    return Admit(id) ? InsertResult::kInserted : InsertResult::kWait;
  }

  void CloseWriter(uint64_t id) {
    const auto found = writers_.find(id);
    if (found == writers_.end()) return;
    Writer& writer = found->second;
    ForgetEpisode(writer);
    for (auto& waiting : writer.waiting) {
      counts.abandoned_items += static_cast<int64_t>(waiting.size());
      waiting.clear();
    }
    writer.is_closed = true;
    DropUnused();
  }

  // How many of `wanted` samples the limiter admits; one by one if items go
  // with their samples.
  int64_t AdmitSamples(int64_t table, int64_t wanted) const {
    const TableConfig& c = ConfigOf(table);
    const RateLimiterConfig& limiter = c.rate_limiter;
    if (size(table) == 0) return 0;
    if (limiter.mode == RateLimiterMode::kQueue) {
      return std::min(wanted, size(table));
    }
    if (size(table) < limiter.min_size_to_sample) return 0;
    if (limiter.mode == RateLimiterMode::kMinSize) return wanted;
    int64_t admitted = 0;
    while (admitted < wanted &&
           Error(table, 0, admitted + 1) >= -limiter.error_buffer - 1e-6) {
      ++admitted;
    }
    return admitted;
  }

  double Probability(const ModelItem& item) const {
    const TableConfig& c = ConfigOf(item.table);
    if (c.sampler == SelectorKind::kUniform) {
      return 1.0 / static_cast<double>(size(item.table));
    }
    if (c.sampler != SelectorKind::kPrioritized) return 1.0;
    return IsWeighed(item.table) ? Weight(c, item) / Mass(item.table)
                                 : 1.0 / static_cast<double>(size(item.table));
  }

  // Whether the sampler may draw `item` at all.
  bool CanDraw(const ModelItem& item) const {
    const SelectorKind kind = ConfigOf(item.table).sampler;
    if (kind == SelectorKind::kPrioritized) {
      return item.priority > 0.0f || !IsWeighed(item.table);
    }
    if (kind == SelectorKind::kUniform) return true;
    return &item == Choose(item.table, kind);
  }

  ModelItem* Find(int64_t table, uint64_t writer, uint64_t episode,
                  int64_t step) {
    for (ModelItem& item : items_) {
      if (item.table == table && item.writer == writer &&
          item.episode == episode && item.step == step) {
        return &item;
      }
    }
    return nullptr;
  }

  void CountSample(ModelItem& item) {
    ++tables_[static_cast<size_t>(item.table)].samples;
    ++item.times_sampled;
    const int64_t limit = ConfigOf(item.table).max_times_sampled;
    if (limit > 0 && item.times_sampled >= limit) RemoveItem(item);
  }

  void Update(ModelItem& item, float priority) {
    item.priority = priority;
    NotePriority(item.table, priority);
  }
  void NotePriority(int64_t table, float priority) {
    float& largest = tables_[static_cast<size_t>(table)].max_priority;
    largest = std::max(largest, priority);
  }

  int64_t size(int64_t table) const {
    int64_t count = 0;
    for (const ModelItem& item : items_) count += item.table == table ? 1 : 0;
    return count;
  }
  // Items that the table has inserted since.
  int64_t Age(const ModelItem& item) const {
    return inserts(item.table) - 1 - item.order;
  }
  int64_t inserts(int64_t table) const {
    return tables_[static_cast<size_t>(table)].inserts;
  }
  int64_t samples(int64_t table) const {
    return tables_[static_cast<size_t>(table)].samples;
  }
  int64_t size_bytes() const {
    int64_t bytes = 0;
    for (const auto& [number, chunk] : chunks_) bytes += chunk.bytes;
    return bytes;
  }
  int64_t num_chunks() const { return static_cast<int64_t>(chunks_.size()); }
  int64_t num_writers() const {
    int64_t count = 0;
    for (const auto& [id, writer] : writers_) count += writer.is_closed ? 0 : 1;
    return count;
  }

  ShardStatus counts;

 private:
  struct Step {
    float reward, discount;
    std::optional<float> priority;
  };
  struct Writer {
    bool is_closed = false;
    uint64_t last_sequence = 0, episode = 0;
    int64_t end_observation = 0;
    // the open episode: all its steps, and the number of each one's chunk
    std::vector<Step> steps;
    std::vector<int64_t> chunk_of_observation;
    struct Open {
      int64_t next_step = 0;
    };
    std::vector<Open> open;                      // by table
    std::vector<std::deque<ModelItem>> waiting;  // by table
  };
  struct TableCounts {
    int64_t inserts = 0, samples = 0, order = 0;
    float max_priority = 1.0f;
  };

  const TableConfig& ConfigOf(int64_t table) const {
    return config_.tables[static_cast<size_t>(table)];
  }

  double Weight(const TableConfig& c, const ModelItem& item) const {
    if (item.priority == 0.0f) return 0.0;
    const auto age = static_cast<double>(Age(item));
    return std::pow(static_cast<double>(item.priority), c.priority_exponent) *
           std::max(std::pow(c.priority_fade.base, age), c.priority_fade.floor);
  }

  double Mass(int64_t table) const {
    double total = 0.0;
    for (const ModelItem& item : items_) {
      if (item.table == table) total += Weight(ConfigOf(table), item);
    }
    return total;
  }

  // Whether the table has an item whose priority counts.
  bool IsWeighed(int64_t table) const {
    return ConfigOf(table).sampler == SelectorKind::kPrioritized
               ? Mass(table) > 0.0
               : size(table) > 0;
  }

  // The error after so many more inserts and samples.
  double Error(int64_t table, int64_t inserts_more,
               int64_t samples_more) const {
    const RateLimiterConfig& c = ConfigOf(table).rate_limiter;
    const TableCounts& t = tables_[static_cast<size_t>(table)];
    return c.samples_per_insert * static_cast<double>(t.inserts + inserts_more -
                                                      c.min_size_to_sample) -
           static_cast<double>(t.samples + samples_more);
  }

  bool AdmitsInsert(int64_t table) const {
    const TableConfig& c = ConfigOf(table);
    if (c.rate_limiter.mode == RateLimiterMode::kQueue) {
      return size(table) < c.max_size;
    }
    return c.rate_limiter.mode == RateLimiterMode::kMinSize ||
           !IsWeighed(table) ||
           size(table) < c.rate_limiter.min_size_to_sample ||
           Error(table, 1, 0) <= c.rate_limiter.error_buffer + 1e-6;
  }

  const ModelItem* Choose(int64_t table, SelectorKind kind) const {
    const auto is_before = [kind](const ModelItem& a, const ModelItem& b) {
      if (kind == SelectorKind::kLifo) return a.order > b.order;
      if (kind == SelectorKind::kLowestPriority && a.priority != b.priority) {
        return a.priority < b.priority;
      }
      return a.order < b.order;
    };
    const ModelItem* chosen = nullptr;
    for (const ModelItem& item : items_) {
      if (item.table != table) continue;
      if (chosen == nullptr || is_before(item, *chosen)) chosen = &item;
    }
    return chosen;
  }

  void RemoveItem(const ModelItem& item) {
    items_.erase(items_.begin() + (&item - items_.data()));
    DropUnused();
  }

  bool Admit(uint64_t id) {
    Writer& writer = writers_[id];
    bool is_done = true;
    for (size_t table = 0; table < tables_.size(); ++table) {
      std::deque<ModelItem>& waiting = writer.waiting[table];
      while (!waiting.empty() && AdmitsInsert(static_cast<int64_t>(table))) {
        const TableConfig& c = config_.tables[table];
        TableCounts& t = tables_[table];
        if (size(static_cast<int64_t>(table)) == c.max_size) {
          RemoveItem(*Choose(static_cast<int64_t>(table), c.remover));
        }
        ModelItem item = waiting.front();
        waiting.pop_front();
        item.order = t.order++;
        if (!item.has_priority) item.priority = t.max_priority;
        t.max_priority = std::max(t.max_priority, item.priority);
        ++t.inserts;
        items_.push_back(item);
      }
      is_done = is_done && waiting.empty();
    }
    return is_done;
  }

  void ForgetEpisode(Writer& writer) {
    int64_t lost = 0;
    for (Writer::Open& open : writer.open) {
      const auto steps = static_cast<int64_t>(writer.steps.size());
      lost = std::max(lost, steps - open.next_step);
      open.next_step = 0;
    }
    counts.abandoned_steps += lost;
    writer.steps.clear();
    writer.chunk_of_observation.clear();
    DropUnused();
  }

  void TakeSteps(Writer& writer, int64_t number, const ModelChunk& chunk) {
    for (size_t i = 0; i < chunk.rewards.size(); ++i) {
      Step step = {chunk.rewards[i], chunk.discounts[i], std::nullopt};
      if (!chunk.priorities.empty()) step.priority = chunk.priorities[i];
      writer.steps.push_back(step);
      writer.chunk_of_observation.push_back(number);
    }
    if (chunk.ends) writer.chunk_of_observation.push_back(number);
    counts.inserted_steps += static_cast<int64_t>(chunk.rewards.size());
  }

  // The definition of an item, a transition or a window, taken literally.
  void MakeItems(uint64_t id, Writer& writer, bool ends) {
    const auto last_observation =
        static_cast<int64_t>(writer.chunk_of_observation.size()) - 1;
    for (size_t table = 0; table < tables_.size(); ++table) {
      const NStepConfig& c = config_.tables[table].n_step;
      int64_t& t = writer.open[table].next_step;
      const int64_t max_steps = c.window > 0 ? c.window : c.n_step;
      while (t + max_steps <= last_observation ||
             (ends && t < last_observation)) {
        ModelItem item;
        item.table = static_cast<int64_t>(table);
        item.writer = id;
        item.episode = chunks_[writer.chunk_of_observation.back()].episode;
        item.step = t;
        item.n = std::min(max_steps, last_observation - t);
        item.discount = 1.0;
        for (int64_t i = 0; i < item.n; ++i) {
          const Step& step = writer.steps[static_cast<size_t>(t + i)];
          double factor = 1.0;
          for (int64_t j = 0; j < i; ++j) {
            factor *= c.discount *
                      static_cast<double>(
                          writer.steps[static_cast<size_t>(t + j)].discount);
          }
          item.reward += factor * static_cast<double>(step.reward);
          item.discount *= c.discount * static_cast<double>(step.discount);
        }
        const Step& first = writer.steps[static_cast<size_t>(t)];
        item.has_priority = first.priority.has_value();
        item.priority = first.priority.value_or(0.0f);
        std::set<int64_t> chunks;
        for (int64_t o = std::max<int64_t>(0, t - c.stack + 1); o <= t + item.n;
             ++o) {
          chunks.insert(writer.chunk_of_observation[static_cast<size_t>(o)]);
        }
        item.chunks.assign(chunks.begin(), chunks.end());
        writer.waiting[table].push_back(item);
        t += c.period;
      }
    }
  }

  // Forgets the chunks that nothing needs.
  void DropUnused() {
    std::set<int64_t> needed;
    const auto need = [&](const ModelItem& item) {
      needed.insert(item.chunks.begin(), item.chunks.end());
    };
    for (const ModelItem& item : items_) need(item);
    for (const auto& [id, writer] : writers_) {
      for (const auto& waiting : writer.waiting) {
        for (const ModelItem& item : waiting) need(item);
      }
      if (writer.steps.empty()) continue;
      for (size_t table = 0; table < tables_.size(); ++table) {
        const int64_t stack = config_.tables[table].n_step.stack;
        const int64_t begin = writer.open[table].next_step - stack + 1;
        const auto& chunk_of = writer.chunk_of_observation;
        for (size_t o = 0; o < chunk_of.size(); ++o) {
          if (static_cast<int64_t>(o) >= begin) needed.insert(chunk_of[o]);
        }
        needed.insert(chunk_of.back());
      }
    }
    for (auto it = chunks_.begin(); it != chunks_.end();) {
      it = needed.contains(it->first) ? std::next(it) : chunks_.erase(it);
    }
  }

  // Whether an open episode or a waiting item needs the chunk, or one before it
  // of the same writer.
  bool IsHeld(int64_t number) const {
    const Writer& writer = writers_.at(chunks_.at(number).writer);
    for (const auto& waiting : writer.waiting) {
      if (!waiting.empty() && waiting.front().chunks.front() <= number) {
        return true;
      }
    }
    const auto& chunk_of = writer.chunk_of_observation;
    if (writer.steps.empty()) return false;
    for (size_t table = 0; table < tables_.size(); ++table) {
      const int64_t begin =
          writer.open[table].next_step - config_.tables[table].n_step.stack + 1;
      const auto first = std::clamp<int64_t>(
          begin, 0, static_cast<int64_t>(chunk_of.size()) - 1);
      if (chunk_of[static_cast<size_t>(first)] <= number) return true;
    }
    return false;
  }

  bool MakeRoom(int64_t bytes) {
    std::vector<int64_t> numbers;
    for (const auto& [number, chunk] : chunks_) numbers.push_back(number);
    for (const int64_t number : numbers) {
      if (size_bytes() + bytes <= config_.max_bytes) break;
      if (!chunks_.contains(number) || IsHeld(number)) continue;
      counts.evicted_items += static_cast<int64_t>(
          std::erase_if(items_, [number](const ModelItem& item) {
            return std::count(item.chunks.begin(), item.chunks.end(), number) >
                   0;
          }));
      DropUnused();
    }
    return size_bytes() + bytes <= config_.max_bytes;
  }

  const ShardConfig config_;
  std::vector<TableCounts> tables_;
  std::map<uint64_t, Writer> writers_;
  std::vector<ModelItem> items_;
  std::map<int64_t, ModelChunk> chunks_;  // in the store, by number
  int64_t next_chunk_ = 0;
};

}  // namespace replicant::replay::testing
