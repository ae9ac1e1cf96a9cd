#include "kernels/matmul_ladder/matmul_ladder.hpp"

#include <cstring>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kernels/device_test.hpp"
#include "kernels/matmul_ladder/layout.hpp"
#include "kernels/matmul_ladder/tensor_map.hpp"
#include "kernels/pattern.hpp"

namespace gpulift {
namespace {

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
// matrix + lane / 4 gave.
TEST(Sums, LieInTheBoxWhereTmaLooksForThem) {
  TileOnHost box;
  for (int thread = 0; thread < 128; ++thread) {
    const int lane = thread % 32;
    const int warp = thread / 32;
    for (int i = 0; i < 32; ++i) {
      const int matrix = i / 2 % 4;
      const int column_inside = lane % 4 * 2 + i % 2;
      const ladder::Piece piece = ladder::piece_of_sums(warp, i / 8, 8 * matrix + lane / 4);
      const int row = 16 * warp + lane / 4 + i / 2 % 2 * 8;
      const int column = i / 4 * 8 + column_inside;
      box.at(ladder::swizzled(piece.row, piece.piece) + 2 * column_inside) =
          static_cast<std::uint16_t>(TileOnHost::value(row, column));
    }
  }
  for (int row = 0; row < 64; ++row) {
    for (int column = 0; column < 64; ++column) EXPECT_EQ(box.at(row, column), TileOnHost::value(row, column));
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

class MatmulLadder : public DeviceTest, public testing::WithParamInterface<MatmulRung> {
 protected:
  static constexpr std::size_t kGuard = 4096;  // elements behind the result that nobody may write

  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const std::string why = why_rung_unsupported(GetParam(), device().architecture());
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

}  // namespace
}  // namespace gpulift
