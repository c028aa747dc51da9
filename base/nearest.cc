#include "base/nearest.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace replicant {

int EditDistance(std::string_view a, std::string_view b) {
  // row i holds the distances from the first i characters of a to every prefix
  // of b; a swap of neighbours looks two rows back
  std::vector<int> before_last(b.size() + 1);
  std::vector<int> last(b.size() + 1);
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string NearestName(std::string_view given,
                        const std::vector<std::string>& names) {
  // no key is that long, and the time stays bounded for hostile input
  constexpr size_t kMaxLength = 64;
  if (given.size() > kMaxLength) return "";
  std::string nearest;
  int smallest = std::max(2, static_cast<int>(given.size()) / 3) + 1;
  for (const std::string& name : names) {
    // a difference in length takes at least as many edits; this rules out most
    // names
    const size_t shorter = std::min(given.size(), name.size());
    const size_t longer = std::max(given.size(), name.size());
    if (longer - shorter >= static_cast<size_t>(smallest)) continue;
    const int distance = EditDistance(given, name);
    // a name that shares no character is no help
    if (distance < smallest && distance < static_cast<int>(longer)) {
      smallest = distance;
      nearest = name;
    }
  }
  if (!nearest.empty() || given.size() < 3) return nearest;

  // an incomplete name
  const auto begun = std::find_if(
      names.begin(), names.end(),
      [given](const std::string& name) { return name.starts_with(given); });
  return begun == names.end() ? "" : *begun;
}

}  // namespace replicant
