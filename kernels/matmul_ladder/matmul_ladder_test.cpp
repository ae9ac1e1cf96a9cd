#include "kernels/matmul_ladder/matmul_ladder.hpp"

#include <array>
#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device_test.hpp"
#include "kernels/matmul_ladder/layout.hpp"
#include "kernels/matmul_ladder/rungs.hpp"
#include "kernels/matmul_ladder/tensor_map.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

using ladder::ClusterShape;

TEST(MatmulRung, HasAName) {
  std::vector<std::string> names;
  for (const MatmulRung rung : kMatmulRungs) names.push_back(matmul_rung_name(rung));
  EXPECT_EQ(names, (std::vector<std::string>{"naive", "tiled", "mma_unswizzled", "mma_swizzled", "mma", "wgmma_tma",
                                             "wgmma_multicast", "wgmma"}));
}

TEST(MatmulRung, SaysWhatADeviceLacks) {
  for (const int architecture : {75, 80, 86, 89, 90, 100, 120}) {
    EXPECT_EQ(why_rung_unsupported(MatmulRung::kNaive, architecture), "");
    EXPECT_EQ(why_rung_unsupported(MatmulRung::kTiled, architecture), "");
    for (const MatmulRung rung : {MatmulRung::kMmaUnswizzled, MatmulRung::kMmaSwizzled, MatmulRung::kMma}) {
      EXPECT_EQ(why_rung_unsupported(rung, architecture).empty(), architecture >= 80);
    }
    for (const MatmulRung rung : {MatmulRung::kWgmmaTma, MatmulRung::kWgmmaMulticast, MatmulRung::kWgmma}) {
      EXPECT_EQ(why_rung_unsupported(rung, architecture).empty(), architecture == 90);
    }
  }
  EXPECT_EQ(why_rung_unsupported(MatmulRung::kMma, 75),
            "mma.sync with bf16 and cp.async need compute capability 8.0 or later; this device has 7.5");
  EXPECT_EQ(why_rung_unsupported(MatmulRung::kWgmma, 89),
            "wgmma needs compute capability 9.0, neither less nor more; this device has 8.9");
}

TEST(MatmulRung, RefusesWhatItCannotTake) {
  alignas(16) __nv_bfloat16 data[16] = {};
  const LadderProduct good{data, data, data, 1, 8, 8};
  const auto refused = [](const LadderProduct& product) {
    for (const MatmulRung rung : kMatmulRungs) {
      EXPECT_THROW(multiply(rung, product, nullptr), std::invalid_argument) << matmul_rung_name(rung);
    }
  };
  const auto changed = [&](auto change) {
    LadderProduct product = good;
    change(product);
    return product;
  };
  refused(changed([](auto& product) { product.rows = 0; }));
  refused(changed([](auto& product) { product.rows = 1'048'561; }));
  refused(changed([](auto& product) { product.columns = 12; }));
  refused(changed([](auto& product) { product.depth = 4; }));
  refused(changed([&](auto& product) { product.left = data + 1; }));
  refused(changed([&](auto& product) { product.right = data + 4; }));
  refused(changed([&](auto& product) { product.result = data + 2; }));
}

TEST(TileOrder, MeetsEveryTileOnce) {
  for (const ladder::TileOrder order :
       {ladder::TileOrder{16, 16, 8}, ladder::TileOrder{17, 5, 8}, ladder::TileOrder{3, 7, 16},
        ladder::TileOrder{1, 1, 8}, ladder::TileOrder{64, 1, 16}, ladder::TileOrder{9, 4, 1}}) {
    std::set<std::pair<int, int>> met;
    for (int tile = 0; tile < order.count(); ++tile) {
      const ladder::TilePlace place = order.at(tile);
      EXPECT_GE(place.row, 0);
      EXPECT_LT(place.row, order.rows);
      EXPECT_GE(place.column, 0);
      EXPECT_LT(place.column, order.columns);
      met.insert({place.row, place.column});
    }
    EXPECT_EQ(met.size(), static_cast<std::size_t>(order.count()));
  }
}

TEST(TileOrder, WorksOnASquare) {
  constexpr ladder::TileOrder kOrder{16, 32, 8};
  EXPECT_EQ(kOrder.at(0), (ladder::TilePlace{0, 0}));
  EXPECT_EQ(kOrder.at(7), (ladder::TilePlace{7, 0}));
  EXPECT_EQ(kOrder.at(8), (ladder::TilePlace{0, 1}));
  EXPECT_EQ(kOrder.at(63), (ladder::TilePlace{7, 7}));
  EXPECT_EQ(kOrder.at(8 * 32), (ladder::TilePlace{8, 0}));
}

// Every 128 x 128 of the result has one block, and tiles beyond its end belong to clusters that reach over it.
TEST(ClusterShape, CoversTheResultOnce) {
  constexpr int kSide = 128;
  for (const auto& [rows, columns] : {std::pair{1, 8}, {129, 264}, {4001, 4104}, {4104, 4000}, {512, 2048}}) {
    for (const ClusterShape shape :
         {ClusterShape::kSingle, ClusterShape::kSquare, ClusterShape::kWide, ClusterShape::kTall}) {
      const ladder::TileOrder order = cluster_tiles(shape, rows, columns);
      std::set<std::pair<int, int>> met;
      for (int tile = 0; tile < order.count(); ++tile) {
        for (int rank = 0; rank < blocks(shape); ++rank) {
          const ladder::Corner corner = corner_of(shape, order.at(tile), rank);
          for (int half = 0; half < 2; ++half) {
            const std::pair part{corner.row / kSide, corner.column / kSide + half};
            EXPECT_TRUE(met.insert(transposed(shape) ? std::pair{part.second, part.first} : part).second);
          }
        }
      }
      for (int row = 0; row < rows; row += kSide) {
        for (int column = 0; column < columns; column += kSide) {
          EXPECT_TRUE(met.contains({row / kSide, column / kSide}))
              << rows << " " << columns << ": " << row << " " << column;
        }
      }
      EXPECT_EQ(static_cast<int>(met.size()), 2 * blocks(shape) * order.count());
    }
  }
}

TEST(ClusterShape, PutsTheSecondBlockBelowOrBesideTheFirst) {
  const auto parts = [](ClusterShape shape) {
    const ladder::Corner first = corner_of(shape, {0, 0}, 0);
    const ladder::Corner second = corner_of(shape, {0, 0}, 1);
    EXPECT_EQ(first.row, 0);
    EXPECT_EQ(first.column, 0);
    return std::pair{second.row, second.column};
  };
  EXPECT_EQ(parts(ClusterShape::kSquare), (std::pair{128, 0}));
  EXPECT_EQ(parts(ClusterShape::kWide), (std::pair{0, 256}));
  EXPECT_EQ(parts(ClusterShape::kTall), (std::pair{0, 256}));
}

TEST(ClusterShape, IsTheOneOfFewestRounds) {
  constexpr int kMultiprocessors = 132;
  EXPECT_EQ(rounds(ClusterShape::kSquare, 4001, 4104, kMultiprocessors), 5);  // 16 x 17 clusters, 66 at once
  EXPECT_EQ(rounds(ClusterShape::kWide, 4001, 4104, kMultiprocessors), 5);    // 32 x 9
  EXPECT_EQ(rounds(ClusterShape::kTall, 4001, 4104, kMultiprocessors), 4);    // 8 x 33
  EXPECT_EQ(ladder::shape_of_fewest_rounds(4001, 4104, kMultiprocessors), ClusterShape::kTall);
  EXPECT_EQ(ladder::shape_of_fewest_rounds(4104, 4000, kMultiprocessors), ClusterShape::kWide);
  for (const int side : {8, 4096, 8192}) {  // no shape is better
    EXPECT_EQ(ladder::shape_of_fewest_rounds(side, side, kMultiprocessors), ClusterShape::kSquare);
  }
  EXPECT_EQ(rounds(ClusterShape::kSquare, 512, 256, 1), 2);  // a slice of one multiprocessor
}

TEST(Ring, ChangesItsPhaseWithEachRound) {
  ladder::Ring<3> ring;
  for (int step = 0; step < 20; ++step) {
    EXPECT_EQ(ring.stage, step % 3);
    EXPECT_EQ(ring.phase, step / 3 % 2);
    ring.advance();
  }
}

// The 128-byte swizzle: bits 4 to 6 of an offset are exchanged by bits 7 to 9.
TEST(Swizzle, IsTheOneOfTheHardware) {
  for (int row = 0; row < 64; ++row) {
    for (int piece = 0; piece < 8; ++piece) {
      const int plain = row * 128 + piece * 16;
      EXPECT_EQ(ladder::swizzled(row, piece), plain ^ (plain >> 7 & 7) << 4);
    }
  }
}

TEST(Swizzle, SpreadsAColumnOfPiecesOverAllBanks) {
  for (int piece = 0; piece < 8; ++piece) {
    std::set<int> met;
    for (int row = 0; row < 8; ++row) met.insert(ladder::swizzled(row, piece) % 128);
    EXPECT_EQ(met.size(), 8U);
  }
}

/// 64 rows of 64 elements, swizzled: each element says where it belongs.
class TileOnHost {
 public:
  static int value(int row, int column) { return row * 64 + column; }
  std::uint16_t& at(int offset_bytes) { return elements_[static_cast<std::size_t>(offset_bytes / 2)]; }
  std::uint16_t& at(int row, int column) { return at(ladder::swizzled(row, column / 8) + column % 8 * 2); }

 private:
  std::vector<std::uint16_t> elements_ = std::vector<std::uint16_t>(64 * 64, 0xFFFF);
};

/// Word `matrix` of a lane after ldmatrix: row lane / 4 of that matrix, whose row addresses lanes 8 * matrix and on
/// gave.
template <typename Address>
std::uint16_t loaded(TileOnHost& tile, Address address, int lane, int matrix, int element) {
  return tile.at(address(8 * matrix + lane / 4) + (lane % 4 * 2 + element) * 2);
}

class Fragments : public testing::Test {
 protected:
  void SetUp() override {
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < 64; ++column) {
        tile_.at(row, column) = static_cast<std::uint16_t>(TileOnHost::value(row, column));
      }
    }
  }
  TileOnHost tile_;
};

// PTX: register w of A of mma.m16n8k16 holds row lane / 4, plus 8 where w is odd, and elements 2 (lane % 4) and on,
// plus 8 where w is 2 or 3.
TEST_F(Fragments, OfTheLeftOperandAreWhatMmaExpects) {
  const auto address = [](int lane) {
    const ladder::Piece piece = ladder::piece_by_rows(lane);
    return ladder::swizzled(16 + piece.row, 2 * 3 + piece.piece);
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int word = 0; word < 4; ++word) {
      for (int element = 0; element < 2; ++element) {
        const int row = 16 + lane / 4 + word % 2 * 8;
        const int column = 3 * 16 + lane % 4 * 2 + element + word / 2 * 8;
        EXPECT_EQ(loaded(tile_, address, lane, word, element), TileOnHost::value(row, column));
      }
    }
  }
}

// PTX: register w of B holds column lane / 4 and elements 2 (lane % 4) and on, plus 8 where w is 1.
TEST_F(Fragments, OfTwoRightOperandsAreWhatMmaExpects) {
  const auto address = [](int lane) {
    const ladder::Piece piece = ladder::piece_by_halves(lane);
    return ladder::swizzled(32 + piece.row, 2 * 1 + piece.piece);
  };
  for (int lane = 0; lane < 32; ++lane) {
    for (int word = 0; word < 4; ++word) {
      for (int element = 0; element < 2; ++element) {
        const int column_of_result = 32 + word / 2 * 8 + lane / 4;
        const int depth = 16 + word % 2 * 8 + lane % 4 * 2 + element;
        EXPECT_EQ(loaded(tile_, address, lane, word, element), TileOnHost::value(column_of_result, depth));
      }
    }
  }
}

// PTX: sum i of a thread of wgmma belongs to row 16 warp + lane / 4, plus 8 where i / 2 is odd, and to column 8 (i / 4)
// + 2 (lane % 4) + i % 2. stmatrix stores a lane's two elements of a matrix to row lane / 4 of it, whose address lane 8
// matrix + lane / 4 gave, or transposed each to the row that is its column.
TEST(Sums, LieInTheBoxWhereTmaLooksForThem) {
  for (const bool transposed : {false, true}) {
    TileOnHost box;
    for (int thread = 0; thread < 128; ++thread) {
      const int lane = thread % 32;
      const int warp = thread / 32;
      for (int i = 0; i < 32; ++i) {
        const int pair = i / 8;
        const int matrix = i / 2 % 4;
        const int row_inside = lane / 4;
        const int column_inside = lane % 4 * 2 + i % 2;
        const int giver = 8 * matrix + (transposed ? column_inside : row_inside);
        const ladder::Piece piece = ladder::piece_of_sums(transposed, warp, pair, giver);
        const int offset = ladder::swizzled(piece.row, piece.piece);
        const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
        const int column = i / 4 * 8 + lane % 4 * 2 + i % 2;
        box.at(offset + 2 * (transposed ? row_inside : column_inside)) =
            static_cast<std::uint16_t>(transposed ? TileOnHost::value(column, row) : TileOnHost::value(row, column));
      }
    }
    for (int row = 0; row < 64; ++row) {
      for (int column = 0; column < 64; ++column) EXPECT_EQ(box.at(row, column), TileOnHost::value(row, column));
    }
  }
}

/// Integers, so that sums are exact in any order and every rung rounds the same ones.
std::vector<__nv_bfloat16> small_integers(std::int64_t count, std::uint64_t seed) {
  std::vector<__nv_bfloat16> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = __float2bfloat16_rn(static_cast<float>(random_bits(seed, i) % 9) - 4.0F);
  }
  return values;
}

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t depth;
};

class LadderTest : public DeviceTest {
 protected:
  static constexpr std::size_t kGuard = 4096;  // elements behind the result that nobody may write

  void skip_without(MatmulRung rung) {
    if (IsSkipped()) return;
    const std::string why = why_rung_unsupported(rung, device().architecture());
    if (!why.empty()) GTEST_SKIP() << why;
  }

  /// The bits of what `work` makes of this shape, after the test that nothing behind the result changed.
  template <typename Work>
  std::vector<std::uint16_t> bits_of(const Shape& shape, Work work) {
    const auto left = upload(small_integers(shape.rows * shape.depth, 1));
    const auto right = upload(small_integers(shape.columns * shape.depth, 2));
    const auto count = static_cast<std::size_t>(shape.rows * shape.columns);
    const auto result = upload(std::vector<__nv_bfloat16>(count + kGuard, __float2bfloat16_rn(-0.5F)));
    work(LadderProduct{left.data(), right.data(), result.data(), shape.rows, shape.columns, shape.depth});
    const std::vector<__nv_bfloat16> values = download(result);
    for (std::size_t i = count; i < values.size(); ++i) {
      EXPECT_EQ(__bfloat162float(values[i]), -0.5F) << "behind the end: " << i - count;
    }
    std::vector<std::uint16_t> bits(count);
    std::memcpy(bits.data(), values.data(), count * sizeof(std::uint16_t));
    return bits;
  }

  std::vector<std::uint16_t> by_rung(const Shape& shape, MatmulRung rung) {
    return bits_of(shape, [&](const LadderProduct& product) { multiply(rung, product, stream()); });
  }

  static std::vector<std::uint16_t> by_loops(const Shape& shape) {
    const auto left = small_integers(shape.rows * shape.depth, 1);
    const auto right = small_integers(shape.columns * shape.depth, 2);
    std::vector<std::uint16_t> bits;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
      for (std::int64_t column = 0; column < shape.columns; ++column) {
        float sum = 0;
        for (std::int64_t k = 0; k < shape.depth; ++k) {
          sum += __bfloat162float(left[static_cast<std::size_t>(row * shape.depth + k)]) *
                 __bfloat162float(right[static_cast<std::size_t>(column * shape.depth + k)]);
        }
        const __nv_bfloat16 rounded = __float2bfloat16_rn(sum);
        std::uint16_t word = 0;
        std::memcpy(&word, &rounded, sizeof word);
        bits.push_back(word);
      }
    }
    return bits;
  }
};

class MatmulLadder : public LadderTest, public testing::WithParamInterface<MatmulRung> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    skip_without(GetParam());
  }
};

TEST_P(MatmulLadder, AgreesWithLoopsOnTheHost) {
  for (const Shape& shape : {Shape{1, 8, 8}, Shape{128, 256, 64}, Shape{100, 200, 72}, Shape{129, 264, 136}}) {
    EXPECT_EQ(by_rung(shape, GetParam()), by_loops(shape)) << shape.rows << " " << shape.columns << " " << shape.depth;
  }
}

// More tiles than multiprocessors, several rounds of the ring, and tails on all sides.
TEST_P(MatmulLadder, LargeProductsHaveTheBitsOfTheFirstRung) {
  for (const Shape& shape : {Shape{4096, 2304, 512}, Shape{3001, 4104, 1000}}) {
    EXPECT_EQ(by_rung(shape, GetParam()), by_rung(shape, MatmulRung::kNaive)) << shape.rows;
  }
}

TEST_P(MatmulLadder, KeepsItsSumsInRegisters) {
  const RungResources resources = rung_resources(GetParam());
  EXPECT_EQ(resources.spilled_bytes, 0U);
  EXPECT_GT(resources.registers, 0);
}

INSTANTIATE_TEST_SUITE_P(Rungs, MatmulLadder, testing::ValuesIn(kMatmulRungs),
                         [](const auto& tested) { return matmul_rung_name(tested.param); });

/// The last rung with each shape of its clusters, which it would choose for large products alone.
class WgmmaClusters : public LadderTest, public testing::WithParamInterface<ClusterShape> {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    skip_without(MatmulRung::kWgmma);
  }

  std::vector<std::uint16_t> by_shape(const Shape& shape) {
    return bits_of(shape, [&](const LadderProduct& product) { wgmma_rung(GetParam()).multiply(product, stream()); });
  }
};

TEST_P(WgmmaClusters, AgreeWithLoopsOnTheHost) {
  for (const Shape& shape : {Shape{1, 8, 8}, Shape{100, 200, 72}, Shape{129, 264, 136}, Shape{600, 1032, 328}}) {
    EXPECT_EQ(by_shape(shape), by_loops(shape)) << shape.rows << " " << shape.columns << " " << shape.depth;
  }
}

// Several tiles a block, so that rings and boxes go around.
TEST_P(WgmmaClusters, MakeLargeProductsOfTheBitsOfTheFirstRung) {
  for (const Shape& shape : {Shape{4001, 4104, 520}, Shape{4104, 4000, 520}}) {
    EXPECT_EQ(by_shape(shape), by_rung(shape, MatmulRung::kNaive)) << shape.rows;
  }
}

TEST_P(WgmmaClusters, KeepTheirSumsInRegisters) { EXPECT_EQ(wgmma_rung(GetParam()).resources().spilled_bytes, 0U); }

std::string name_of(const testing::TestParamInfo<ClusterShape>& tested) {
  constexpr std::array kNames{"single", "square", "wide", "tall"};
  return kNames.at(static_cast<std::size_t>(tested.param));
}
INSTANTIATE_TEST_SUITE_P(Shapes, WgmmaClusters,
                         testing::Values(ClusterShape::kSquare, ClusterShape::kWide, ClusterShape::kTall), name_of);

}  // namespace
}  // namespace gpulift
