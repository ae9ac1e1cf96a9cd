#include "blocks.hpp"

#include <algorithm>
#include <stdexcept>

namespace gpulift {

std::vector<std::vector<int>> williams_rows(int arms) {
  if (arms < 1) throw std::invalid_argument("a block needs at least one arm");
  // First row 0, 1, n-1, 2, n-2, ...; the others by adding 1, 2, ... modulo n.
  std::vector<int> first{0};
  for (int low = 1, high = arms - 1; low <= high; ++low, --high) {
    first.push_back(low);
    if (low != high) first.push_back(high);
  }
  std::vector<std::vector<int>> rows;
  for (int shift = 0; shift < arms; ++shift) {
    std::vector<int> row = first;
    for (int& arm : row) arm = (arm + shift) % arms;
    rows.push_back(row);
  }
  if (arms % 2 == 1 && arms > 1) {  // an odd number needs the mirrored rows for balance
    for (int shift = 0; shift < arms; ++shift) {
      std::vector<int> row = rows[static_cast<std::size_t>(shift)];
      std::reverse(row.begin(), row.end());
      rows.push_back(row);
    }
  }
  return rows;
}

BlockOrder::BlockOrder(int arms, std::uint64_t seed) : rows_(williams_rows(arms)), random_(seed) {}

Block BlockOrder::next() {
  if (used_ == 0) std::shuffle(rows_.begin(), rows_.end(), random_);
  Block block = rows_[used_];
  used_ = (used_ + 1) % rows_.size();
  const std::vector<int> row = block;
  block.insert(block.end(), row.rbegin(), row.rend());
  return block;
}

}  // namespace gpulift
