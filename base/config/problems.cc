#include "base/config/problems.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/utf8.h"

namespace replicant::config {

int Problems::AddFile(std::string name) {
  sources_.push_back({std::move(name), /*has_lines=*/true});
  return static_cast<int>(sources_.size()) - 1;
}

int Problems::AddOption(std::string name) {
  sources_.push_back({std::move(name), /*has_lines=*/false});
  return static_cast<int>(sources_.size()) - 1;
}

void Problems::Add(const Place& place, std::string key, std::string message) {
  problems_.push_back({place, std::move(key), std::move(message)});
}

bool Problems::HasKey(std::string_view key) const {
  return std::any_of(problems_.begin(), problems_.end(),
                     [key](const Problem& p) { return p.key == key; });
}

std::string Problems::Where(const Place& place) const {
  REPLICANT_CHECK(
      place.file >= 0 && static_cast<size_t>(place.file) < sources_.size(),
      "source {} of {}", place.file, sources_.size());
  const Source& source = sources_[static_cast<size_t>(place.file)];
  if (!source.has_lines) return source.name;
  return fmt::format("{}:{}:{}", source.name, place.line, place.column);
}

void Problems::ThrowIfAny() const {
  if (problems_.empty()) return;
  std::vector<const Problem*> ordered;
  ordered.reserve(problems_.size());
  for (const Problem& problem : problems_) ordered.push_back(&problem);
  std::stable_sort(
      ordered.begin(), ordered.end(),
      [](const Problem* a, const Problem* b) { return a->place < b->place; });

  std::string text;
  for (const Problem* problem : ordered) {
    if (!text.empty()) text += '\n';
    text += Where(problem->place) + ": ";
    if (!problem->key.empty()) text += problem->key + ": ";
    text += problem->message;
  }
  throw ConfigError(text);
}

std::string Printable(std::string_view text) {
  constexpr size_t kMaxBytes = 80;
  const std::string_view shown = Utf8Prefix(text, kMaxBytes);
  std::string out;
  for (const char c : shown) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  if (shown.size() < text.size()) out += "...";
  return out;
}

std::string Quote(std::string_view text) { return "'" + Printable(text) + "'"; }

}  // namespace replicant::config
