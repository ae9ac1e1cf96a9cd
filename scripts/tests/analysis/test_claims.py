"""The ledger of published claims: what is read, what is refused, and what is committed."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpulift.analysis.ledger import Claim, Rule, Statement, read_ledger, read_statements
from gpulift.engine import machine
from gpulift.ground.errors import USAGE, GpuliftError
from tests.conftest import CHECKOUT

ARTICLE = '[a]\nname = "Article"\nauthor = "Somebody"\ndate = "2025"\n'
SAID = 'id = "a-1", kind = "advice", quote = "更快", says = "Faster."'
ARTICLES = f"{ARTICLE}statements = [{{ {SAID} }}]\n"
TEST = (
    'technique = "transfer/pinned_copy", cases = "h2d", baseline = "pageable", arm = "pinned",'
    ' metric = "speedup", at_least = 2.0'
)
COMMITTED = read_ledger()


def claim_text(key: str = "one", /, **changes: str | None) -> str:
    """TOML of a claim; None leaves a field out, other values are TOML."""
    fields: dict[str, str | None] = {
        "id": f'"{key}"',
        "articles": '["a-1"]',
        "statement": '"It is faster."',
        "test": f"{{ {TEST} }}",
        **changes,
    }
    lines = [f"{name} = {value}" for name, value in fields.items() if value is not None]
    return "\n".join(["[[claims]]", *lines, ""])


def read(folder: Path, *claims: str, articles: str = ARTICLES) -> tuple[Claim, ...]:
    file, source = folder / "claims.toml", folder / "articles.toml"
    file.write_text("\n".join(claims), encoding="utf-8")
    source.write_text(articles, encoding="utf-8")
    return read_ledger(file, source)


def refusal(folder: Path, *claims: str, articles: str = ARTICLES) -> str:
    with pytest.raises(GpuliftError) as caught:
        read(folder, *claims, articles=articles)
    assert caught.value.exit_code == USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_claim_is_read_with_what_the_article_says_and_its_test(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, claim_text())
    assert (claim.id, claim.statement, claim.not_testable) == ("one", "It is faster.", "")
    assert claim.source.label == "Somebody, 2025"
    assert claim.source.url == ""
    assert claim.articles == (Statement("a-1", "advice", "更快", "Faster.", claim.source),)
    assert claim.test is not None
    assert (claim.test.technique, claim.test.cases) == ("transfer/pinned_copy", "h2d")
    assert (claim.test.baseline, claim.test.arm) == ("pageable", "pinned")
    assert (claim.test.metric, claim.test.control) == ("speedup", False)
    assert claim.test.rule == Rule("at_least", low=2.0)
    assert claim.test.gpu == ""


def test_a_claim_without_words_of_its_own_says_what_the_article_says(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, claim_text(statement=None))
    assert claim.statement == "Faster."


@pytest.mark.parametrize("field", ["confirmed_by", "refuted_by", "not_testable"])
def test_a_claim_may_be_documented_or_have_a_reason_in_place_of_a_test(
    tmp_path: Path, field: str
) -> None:
    (claim,) = read(tmp_path, claim_text(test=None, **{field: '"its manual"'}))
    said = (claim.confirmed_by, claim.refuted_by, claim.not_testable)
    assert (claim.test, getattr(claim, field)) == (None, "its manual")
    assert sorted(said) == ["", "", "its manual"]


def test_a_claim_about_one_model_names_it(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, claim_text(test=f'{{ {TEST}, gpu = "a100" }}'))
    assert claim.test is not None
    assert claim.test.gpu == "a100"
    assert "claim one.test.gpu must not be empty" in refusal(
        tmp_path, claim_text(test=f'{{ {TEST}, gpu = "" }}')
    )


def test_what_a_test_leaves_out_stands_behind_the_statement(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, claim_text(in_part='"not on Sundays"'))
    assert claim.in_part == "not on Sundays"
    assert claim.shown == "It is faster. In part: not on Sundays."
    (claim,) = read(tmp_path, claim_text())
    assert claim.shown == claim.statement


def test_a_claim_may_ask_about_a_control(tmp_path: Path) -> None:
    (claim,) = read(tmp_path, claim_text(test=f"{{ {TEST}, control = true }}"))
    assert claim.test is not None
    assert claim.test.control


@pytest.mark.parametrize(
    ("rule", "expected", "shown"),
    [
        ("at_least = 8", Rule("at_least", 8.0), "at least 8×"),
        ("at_most = 0.9", Rule("at_most", None, 0.9), "at most 0.9×"),
        ("between = [4, 6]", Rule("between", 4.0, 6.0), "between 4× and 6×"),
        ("up_to = 16", Rule("up_to", 16.0), "up to 16×"),
        (
            "faster_or_slower_by = 1.1",
            Rule("faster_or_slower_by", 1.1),
            "faster or slower by 1.1×",
        ),
        ("both_ways = 1.01", Rule("both_ways", 1.01), "both ways 1.01×"),
    ],
)
def test_rules(tmp_path: Path, rule: str, expected: Rule, shown: str) -> None:
    text = claim_text(test=f"{{ {TEST.replace('at_least = 2.0', rule)} }}")
    (claim,) = read(tmp_path, text)
    assert claim.test is not None
    assert claim.test.rule == expected
    assert claim.test.rule.text == shown


@pytest.mark.parametrize(
    ("field", "problem"),
    [("articles", "one.articles is missing"), ("test", "one must have one of")],
)
def test_a_missing_field_is_named_with_its_claim(tmp_path: Path, field: str, problem: str) -> None:
    message = refusal(tmp_path, claim_text(**{field: None}))
    assert message.startswith(f"claims.toml: claim {problem}")


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"verdict": '"confirmed"'}, "claim one.verdict is not known here"),
        ({"not_testable": '"a survey"'}, "one must have one of test, not_testable, confirmed_by"),
        ({"refuted_by": '"its manual"'}, "one must have one of test, not_testable, confirmed_by"),
        ({"confirmed_by": '"its manual"'}, "one must have one of test, not_testable"),
        ({"test": None}, "one must have one of test, not_testable, confirmed_by"),
        ({"in_part": '""'}, "claim one.in_part must not be empty"),
        ({"test": None, "refuted_by": '""'}, "claim one.refuted_by must not be empty"),
        ({"test": None, "not_testable": '""'}, "claim one.not_testable must not be empty"),
        ({"statement": '""'}, "claim one.statement must not be empty"),
        ({"statement": "3"}, "claim one.statement must be str, not int"),
        ({"articles": '["a-2"]'}, "claim one.articles names 'a-2', which no article has"),
        ({"articles": "[]"}, "claim one.articles must not be empty"),
        ({"id": '"Not Kebab"'}, "id must be lower-case words"),
        ({"test": "4"}, "claim one.test must be object, not int"),
    ],
)
def test_a_wrong_claim_is_refused(
    tmp_path: Path, changes: dict[str, str | None], problem: str
) -> None:
    assert problem in refusal(tmp_path, claim_text(**changes))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("at_least = 2.0", "at_leest = 2.0", "claim one.test.at_leest is not known here"),
        (", at_least = 2.0", "", "must be exactly one of at_least, at_most, between"),
        ("at_least = 2.0", "at_least = 2.0, up_to = 3.0", "must be exactly one of"),
        ("at_least = 2.0", "at_least = 0", "at_least must be float > 0.0"),
        ("at_least = 2.0", 'at_least = "2"', "at_least must be float, not str"),
        ("at_least = 2.0", "at_least = inf", "at_least must be float <= 1e+30"),
        ("at_least = 2.0", "between = [6, 4]", "between must be two rising positive numbers"),
        ("at_least = 2.0", "between = [1, 2, 3]", "between must be array of length 2"),
        ('"speedup"', '"beauty"', "metric must be one of speedup, cpu_time, memory"),
        ('cases = "h2d"', 'cases = "("', "cases is not a regular expression"),
        ('cases = "h2d", ', "", "cases is missing"),
        ('arm = "pinned",', "", "arm is missing"),
        ('arm = "pinned",', 'arm = "pinned", planned = true,', "is not known here"),
        ('arm = "pinned",', 'arm = "pinned", control = "yes",', "control must be bool"),
    ],
)
def test_a_wrong_test_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in TEST
    assert problem in refusal(tmp_path, claim_text(test=f"{{ {TEST.replace(old, new)} }}"))


def test_an_id_that_is_there_twice_is_named(tmp_path: Path) -> None:
    message = refusal(tmp_path, claim_text("one"), claim_text("two"), claim_text("one"))
    assert "'one' is there twice" in message


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('date = "2025"\n', "", "articles.toml: a.date is missing"),
        ('date = "2025"\n', 'date = "2025"\npage = 3\n', "a.page is not known here"),
        ('quote = "更快"', 'quote = ""', "articles.toml: a-1.quote must not be empty"),
        ('quote = "更快", ', "", "articles.toml: a-1.quote is missing"),
        (', says = "Faster."', "", "articles.toml: a-1.says is missing"),
        (
            '"advice"',
            '"guess"',
            "articles.toml: a-1.kind must be one of definition, advice, number",
        ),
        ('id = "a-1", ', "", "articles.toml: a: [0].id must be str"),
        ("}]", f"}}, {{ {SAID} }}]", "articles.toml: a a-1.id: 'a-1' is there twice"),
    ],
)
def test_a_wrong_article_is_refused(tmp_path: Path, old: str, new: str, problem: str) -> None:
    assert old in ARTICLES
    assert problem in refusal(tmp_path, claim_text(), articles=ARTICLES.replace(old, new))


def test_a_ledger_without_claims_or_with_more_is_refused(tmp_path: Path) -> None:
    assert "claims must not be empty" in refusal(tmp_path)
    assert "more is not known here" in refusal(tmp_path, "more = 1", claim_text())


def test_a_file_that_is_no_toml_or_not_there_is_an_error(tmp_path: Path) -> None:
    assert "claims.toml: not TOML: " in refusal(tmp_path, "[[")
    with pytest.raises(GpuliftError, match="cannot be read: No such file"):
        read_ledger(tmp_path / "none.toml")


# --- The committed ledger ---


def benches() -> dict[str, str]:
    """Source text of every technique of this checkout, by its id."""
    files = [
        file
        for ending in ("py", "cu", "cpp")  # a script beside another makes that one's arms
        for file in (CHECKOUT / "benches").glob(f"*/*.{ending}")
        if not file.stem.endswith("_test")
    ]
    return {f"{file.parent.name}/{file.stem}": file.read_text(encoding="utf-8") for file in files}


TESTS = {claim.id: claim.test for claim in COMMITTED if claim.test}


def test_every_claim_names_a_technique_that_is_there() -> None:
    known = benches()
    assert known
    assert TESTS
    for key, test in TESTS.items():
        assert test.technique in known, f"{key}: no such technique"


def named_by(source: str, list_name: str = "claims") -> list[str]:
    """The claims, or controls, that the text of a technique names."""
    lists = re.findall(rf"(?:\.{list_name} = \{{|\"{list_name}\": \[)([^}}\]]*)[}}\]]", source)
    return [claim for found in lists for claim in re.findall(r'"([^"]+)"', found)]


def test_claims_of_a_technique_are_found_in_its_text() -> None:
    assert named_by('.arms = {"x"},\n.claims = {"a",\n    "b-c"},') == ["a", "b-c"]
    assert named_by(".claims = {},") == []
    assert named_by('    "claims": ["a",\n "b-c"],') == ["a", "b-c"]
    assert named_by('.claims = {"a"},\n.controls = {"x", "y"},', "controls") == ["x", "y"]


def test_a_claim_says_that_it_asks_about_a_control_and_only_then() -> None:
    controls = {technique: named_by(text, "controls") for technique, text in benches().items()}
    assert controls["compile/xla"]
    for key, test in TESTS.items():
        assert test.control == (test.baseline in controls[test.technique]), key
        assert test.arm not in controls[test.technique], key


def test_techniques_and_the_ledger_name_the_same_claims() -> None:
    for technique, source in benches().items():
        named = named_by(source)
        tested = [key for key, test in TESTS.items() if test.technique == technique]
        assert len(set(named)) == len(named), f"{technique}: names a claim twice"
        for key in named:
            assert key in tested, f"{technique}: the ledger has no test of {key} by it"
        for key in tested:
            assert key in named, f"{technique}: the ledger tests {key} by it; add it to .claims"


def catalogue() -> dict[str, Any]:
    """What the real gpulift-bench lists, by technique."""
    try:
        bench = machine.find_bench()
    except GpuliftError as error:
        pytest.skip(str(error))
    done = subprocess.run([bench, "--catalogue"], capture_output=True, check=True)
    return {one["id"]: one for one in json.loads(done.stdout)}


@pytest.mark.world
def test_cases_and_arms_of_every_test_are_in_the_catalogue() -> None:
    listed = catalogue()
    for key, test in TESTS.items():
        assert test.technique in listed, f"{key}: {test.technique} is not built"
        technique = listed[test.technique]
        assert {test.baseline, test.arm} <= set(technique["arms"]), key
        assert any(re.search(test.cases, case["id"]) for case in technique["cases"]), key


def test_a_batch_is_not_larger_than_itself() -> None:
    test = TESTS["larger-batch-faster"]
    same = ["model:gpt2/batch:1", "model:resnet50/batch:1", "model:resnet18/batch:4"]
    larger = ["model:gpt2/batch:2", "model:gpt2/batch:4", "model:lstm/batch:128"]
    larger += ["model:resnet18/batch:7", "model:resnet18/batch:1024"]
    assert [id for id in (*same, *larger) if re.search(test.cases, id)] == larger


@pytest.mark.world
def test_claims_of_the_catalogue_are_those_of_the_texts() -> None:
    texts = benches()
    for technique, listed in catalogue().items():
        assert listed.get("claims", []) == named_by(texts[technique]), f"{technique}: build it anew"


def test_each_statement_of_the_five_articles_has_a_claim_or_a_reason() -> None:
    statements = read_statements()
    assert len(statements) == 205
    assert len({one.source for one in statements.values()}) == 5
    claimed = {one.id for claim in COMMITTED for one in claim.articles}
    assert [id for id, one in statements.items() if id not in claimed and not one.untested] == []
