#include "progress.hpp"

#include <gmock/gmock.h>

#include <functional>
#include <sstream>
#include <vector>

namespace gpulift {
namespace {

using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;

/// Progress of 3 steps of the same weight, on a clock that stands until it is moved.
class ProgressTest : public testing::Test {
 protected:
  void pass(double time_s) {
    now_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(time_s));
  }
  Progress progress(bool terminal) {
    Progress made(out_, terminal, [this] { return now_; });
    made.plan(3, 3);
    return made;
  }
  std::string written() {
    const std::string text = out_.str();
    out_.str("");
    return text;
  }

  std::ostringstream out_;
  std::chrono::steady_clock::time_point now_;
};

TEST_F(ProgressTest, ATerminalShowsWhatTheStepIsAtInOneLine) {
  Progress shown = progress(true);
  shown.begin("a/b, launch 1 of 3");
  EXPECT_THAT(written(), HasSubstr("[0/3] a/b, launch 1 of 3"));
  shown.doing("fast, 4 of 30 windows");
  const std::string line = written();
  EXPECT_THAT(line, HasSubstr("\r\033[K"));
  EXPECT_THAT(line, HasSubstr("[0/3] a/b, launch 1 of 3: fast, 4 of 30 windows"));
  EXPECT_THAT(line, Not(HasSubstr("\n")));
}

TEST_F(ProgressTest, ALineTooLongIsCutByTheTerminalAndWrappingIsOnAgain) {
  Progress shown = progress(true);
  shown.begin(std::string(500, 'x'));
  const std::string line = written();
  EXPECT_LT(line.find("\033[?7l"), line.find("xxx"));
  EXPECT_THAT(line, EndsWith("\033[?7h"));
}

TEST_F(ProgressTest, TheTimeLeftStaysWhileTheStepGoesOn) {
  Progress shown = progress(true);
  shown.begin("a/b");
  pass(60);
  shown.end("a/b", "ok", 1);
  shown.begin("a/c");
  shown.doing("fast");
  EXPECT_THAT(written(), HasSubstr("[1/3] a/c: fast  (about 2:00 left)"));
}

TEST_F(ProgressTest, ElsewhereALineIsWrittenOnlyAfterHalfAMinuteOfSilence) {
  Progress plain = progress(false);
  plain.begin("a/b");
  pass(29.9);
  plain.doing("slow, 1 of 30 windows");
  EXPECT_EQ(written(), "");
  pass(0.1);
  plain.doing("slow, 2 of 30 windows");
  EXPECT_EQ(written(), "[0/3] a/b: slow, 2 of 30 windows\n");
  pass(29.9);
  plain.doing("slow, 3 of 30 windows");
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressTest, ElsewhereWhatGoesOnIsSaidAgainInSilence) {
  Progress plain = progress(false);
  plain.begin("a/b");
  plain.doing("slow: building");
  plain.still();
  EXPECT_EQ(written(), "");
  pass(30);
  plain.still();
  EXPECT_EQ(written(), "[0/3] a/b: slow: building\n");
  plain.begin("a/c");
  pass(30);
  plain.still();
  EXPECT_EQ(written(), "[0/3] a/c\n");
}

TEST_F(ProgressTest, AnyLineEndsTheSilence) {
  Progress plain = progress(false);
  for (const auto& speak :
       std::vector<std::function<void()>>{[&] { plain.say("No GPU."); }, [&] { plain.end("a/b", "ok", 0); }}) {
    pass(29);
    speak();
    written();
    pass(29);
    plain.doing("slow");
    EXPECT_EQ(written(), "");
  }
}

TEST_F(ProgressTest, ATerminalKeepsALineOfWhatDidNotGoWellAlone) {
  Progress shown = progress(true);
  shown.end("a/b", "ok", 1);
  shown.end("a/c", "skipped: no GPU", 1);
  EXPECT_EQ(written(), "\r\033[K\r\033[K");
  shown.end("a/d", "failed: wrong result", 1);
  EXPECT_EQ(written(), "\r\033[Ka/d: failed: wrong result\n");
}

TEST_F(ProgressTest, ElsewhereEveryStepLeavesItsLine) {
  Progress plain = progress(false);
  pass(30);
  plain.end("a/b", "skipped: no GPU", 1);
  EXPECT_EQ(written(), "[1/3] a/b: skipped: no GPU  (about 1:00 left)\n");
}

}  // namespace
}  // namespace gpulift
