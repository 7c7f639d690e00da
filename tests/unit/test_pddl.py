import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pddlpy
import pytest
from competition_domains import DOMAINS
from hab_episodes import set_table
from kinematic_home import make_episode
from pddlpy.diagnostics import diagnose

from planner.definition import definition_of
from planner.lint import lint
from planner.pddl.domain import PddlDomain, read_domain
from planner.pddl.source import SourceText
from planner.problem import problem_from_episode
from planner.search import DOMAIN, HABITAT_DOMAIN, plan
from tpsrl import cli
from tpsrl.errors import UserError
from tpsrl.world.episode import save_episodes

# Domains in the style of the planning competitions.

BLOCKS = """(define (domain blocks)
  (:requirements :strips)
  (:predicates (on ?x ?y) (ontable ?x) (clear ?x) (handempty) (held ?x))
  (:action pick-up :parameters (?x)
    :precondition (and (clear ?x) (ontable ?x) (handempty))
    :effect (and (not (ontable ?x)) (not (clear ?x)) (not (handempty)) (held ?x)))
  (:action stack :parameters (?x ?y)
    :precondition (and (held ?x) (clear ?y))
    :effect (and (not (held ?x)) (not (clear ?y)) (clear ?x) (handempty) (on ?x ?y))))"""
LOGISTICS = """(define (domain logistics)
  (:requirements :strips :typing)
  (:types truck airplane - vehicle package vehicle - physobj airport location - place
          city place physobj - object)
  (:predicates (in-city ?l - place ?c - city) (at ?o - physobj ?l - place)
               (in ?p - package ?v - vehicle))
  (:action load :parameters (?p - package ?v - vehicle ?l - place)
    :precondition (and (at ?v ?l) (at ?p ?l)) :effect (and (not (at ?p ?l)) (in ?p ?v)))
  (:action drive :parameters (?t - truck ?a ?b - place ?c - city)
    :precondition (and (at ?t ?a) (in-city ?a ?c) (in-city ?b ?c))
    :effect (and (not (at ?t ?a)) (at ?t ?b))))"""
BRIEFCASE = """(define (domain briefcase)
  (:requirements :adl)
  (:types portable location)
  (:predicates (at ?o - portable ?l - location) (is-at ?l - location) (in ?o - portable))
  (:action move :parameters (?from ?to - location) :precondition (is-at ?from)
    :effect (and (is-at ?to) (not (is-at ?from))
      (forall (?o - portable) (when (in ?o) (and (at ?o ?to) (not (at ?o ?from))))))))"""
TRANSPORT = """(define (domain transport)
  (:requirements :typing :action-costs)
  (:types place vehicle - object)
  (:predicates (road ?a ?b - place) (at ?v - vehicle ?p - place))
  (:functions (length ?a ?b - place) - number (total-cost) - number)
  (:action drive :parameters (?v - vehicle ?a ?b - place)
    :precondition (and (at ?v ?a) (road ?a ?b))
    :effect (and (not (at ?v ?a)) (at ?v ?b) (increase (total-cost) (length ?a ?b)))))"""
LIFT = """(define (domain lift)
  (:requirements :strips :typing :equality :disjunctive-preconditions :quantified-preconditions)
  (:types floor passenger)
  (:constants start end - floor)
  (:predicates (above ?a ?b - floor) (served ?p - passenger) (lift-at ?f - floor))
  (:action up :parameters (?a ?b - floor)
    :precondition (and (lift-at ?a) (not (= ?a ?b)) (imply (= ?a start) (above ?a ?b))
                       (exists (?p - passenger) (not (served ?p))))
    :effect (and (lift-at ?b) (not (lift-at ?a)))))"""
READ = {
    "blocks": (BLOCKS, ["pick-up", "stack"]),
    "types in a hierarchy": (LOGISTICS, ["load", "drive"]),
    "conditional effects": (BRIEFCASE, ["move"]),
    "costs": (TRANSPORT, ["drive"]),
    "quantifiers, equality, constants that are pddlpy's keywords": (LIFT, ["up"]),
    "capitals": (BLOCKS.upper(), ["pick-up", "stack"]),
    "line ends of Windows and a byte order mark": (
        "\ufeff; a comment (\r\n" + BLOCKS.replace("\n", "\r\n"),
        ["pick-up", "stack"],
    ),
    "predicates last": (
        "(define (domain d) (:action a :effect (p ?x) :parameters (?x)) (:predicates (p ?x)))",
        ["a"],
    ),
    "either": (
        "(define (domain d) (:types a b c) (:predicates (p ?x - (either a b)))"
        " (:action go :parameters (?x - (either a b) ?y) :precondition () :effect (p ?x)))",
        ["go"],
    ),
    "variables of one name in each other": (
        "(define (domain d) (:predicates (p ?x)) (:action a :parameters (?x)"
        " :precondition (forall (?x) (exists (?x) (p ?x))) :effect (and)))",
        ["a"],
    ),
}
REFUSED = {
    "a duration": (
        BLOCKS.replace("(:action stack", "(:durative-action stack"),
        "line 7, column 3: ':durative-action': durative actions are not supported",
    ),
    "a derived predicate": (
        BLOCKS.replace("(:action stack", "(:derived (above ?x ?y) (on ?x ?y)) (:action stack"),
        "line 7, column 3: ':derived': derived predicates are not supported",
    ),
    "an axiom": (
        BLOCKS.replace("(:action stack", "(:axiom :vars (?x) :context (and)) (:action stack"),
        "line 7, column 3: ':axiom': axioms are not supported",
    ),
    "a comparison of numbers": (
        TRANSPORT.replace("(road ?a ?b))\n", "(<= (length ?a ?b) 3))\n"),
        "line 7, column 35: action 'drive': numeric comparisons",
    ),
    "text behind the end": (
        BLOCKS.replace("(held ?x)))\n", "(held ?x))))\n"),
        "line 7, column 3: text after the end of 'define' in line 6",
    ),
    "a bracket too many": (BLOCKS + "\n)", "line 10, column 1: ')' closes a bracket that was"),
    "a cycle of types": (
        LOGISTICS.replace("city place physobj - object", "city place - object physobj - truck"),
        "line 3, column 11: types in a cycle: truck - vehicle - physobj - truck",
    ),
    "a type of its own": (
        LIFT.replace("floor passenger)", "floor - floor passenger)", 1),
        "line 3, column 11: types in a cycle: floor - floor",
    ),
    "a type that is declared twice": (
        LIFT.replace("floor passenger)", "floor passenger FLOOR)", 1),
        "line 3, column 27: type 'floor' is declared twice, first in line 3",
    ),
    "a parameter that is named twice": (
        BLOCKS.replace("(?x ?y)\n    :pre", "(?x ?X)\n    :pre"),
        "line 7, column 34: parameter ?x is named twice",
    ),
    "a variable of a quantifier that is named twice": (
        LIFT.replace("(exists (?p - passenger)", "(exists (?p ?p - passenger)"),
        "line 8, column 36: parameter ?p is named twice",
    ),
    "an unknown type": (
        LOGISTICS.replace("?c - city)\n    :pre", "?c - citty)\n    :pre"),
        "line 9, column 61: type: unknown value 'citty'; did you mean 'city'?",
    ),
    "an unknown predicate": (
        BLOCKS.replace(":precondition (and (held ?x)", ":precondition (and (holds ?x)"),
        "line 8, column 25: action 'stack': predicate: unknown value 'holds'; did you mean 'held'?",
    ),
    "an unknown constant": (
        LIFT.replace("(= ?a start)", "(= ?a star)"),
        "line 7, column 66: action 'up': constant: unknown value 'star'; did you mean 'start'?",
    ),
    "a section that is given twice": (
        BLOCKS.replace("(:action stack", "(:predicates) (:action stack"),
        "line 7, column 3: :predicates is defined twice, first in line 3",
    ),
    "an unknown requirement": (
        BLOCKS.replace(":strips", ":strip"),
        "line 2, column 18: requirement: unknown value ':strip'; did you mean ':strips'?",
    ),
    "a preference": (
        BLOCKS.replace("(clear ?y))", "(preference p (clear ?y)))"),
        "line 8, column 34: action 'stack': preferences are not supported",
    ),
    "a problem": ("(define (problem p))", "line 1, column 9: expected a domain, got a problem"),
    "a precondition without brackets": (
        BLOCKS.replace(":precondition (and (held ?x) (clear ?y))", ":precondition held"),
        "line 8, column 19: action 'stack': expected a condition in brackets, got 'held'",
    ),
    "a missing value": (
        BLOCKS.replace("(?x ?y)\n", "\n"),
        "line 8, column 19: action 'stack': expected :parameters, :precondition",
    ),
}


def read(text: str) -> PddlDomain:
    return read_domain(SourceText(text, "domain: d.pddl"))


@pytest.mark.parametrize("case", READ)
def test_a_standard_domain_is_read(case):
    text, actions = READ[case]
    assert list(read(text).actions) == actions


@pytest.mark.parametrize("case", DOMAINS)
def test_competition_domains_are_read_or_refused_as_in_the_standard(case):
    text, taken = DOMAINS[case]
    if isinstance(taken, list):
        found = read(text)
        assert list(found.actions) == taken and found.undeclared == {}
        return
    with pytest.raises(UserError) as error:
        read(text)
    assert f"domain: d.pddl, {taken}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_and_unsupported_constructs_are_refused_by_line_and_column(case):
    text, message = REFUSED[case]
    with pytest.raises(UserError) as error:
        read(text)
    assert f"domain: d.pddl, {message}" in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("domain", [DOMAIN, HABITAT_DOMAIN])
def test_shipped_domains_declare_the_requirements_that_they_use(domain):
    assert read(domain.read_text()).undeclared == {}


def test_undeclared_requirements_are_found_with_or_without_others():
    without = LIFT.replace(" :disjunctive-preconditions :quantified-preconditions", "")
    used = {":existential-preconditions": 8, ":negative-preconditions": 7}
    assert read(without).undeclared == {**used, ":disjunctive-preconditions": 7}
    none = re.sub(r"\(:requirements.*\)", "", LIFT)
    assert set(read(none).undeclared) == {
        *used, ":typing", ":equality", ":disjunctive-preconditions",
    }  # fmt: skip


# Domains of one's own for a home.

HOME = """(define (domain mine)
  (:requirements :adl)
  (:types movable_entity_type goal_entity_type art_receptacle_entity_type - static_obj_type
          static_obj_type robot_entity_type - object
          cab_type fridge_type - art_receptacle_entity_type)
  (:constants cab_push_point_4 cab_push_point_5 cab_push_point_6 cab_push_point_7 - cab_type
              fridge_push_point - fridge_type)
  (:predicates
    (holding ?o - movable_entity_type ?r - robot_entity_type) (not_holding ?r - robot_entity_type)
    (in ?o ?p - static_obj_type) (opened_cab ?c - cab_type) (closed_cab ?c - cab_type)
    (opened_fridge ?f - fridge_type) (closed_fridge ?f - fridge_type)
    (robot_at ?a - static_obj_type ?r - robot_entity_type)
    (object_at ?o - movable_entity_type ?a - static_obj_type)
    (goal_of ?g - goal_entity_type ?o - movable_entity_type)
    (reached_from_handle ?p - art_receptacle_entity_type))
  (:action nav :parameters (?to - static_obj_type ?r - robot_entity_type)
    :precondition (and)
    :effect (and (forall (?x - static_obj_type) (not (robot_at ?x ?r))) (robot_at ?to ?r)))
  (:action pick :parameters (?o - movable_entity_type ?r - robot_entity_type)
    :precondition (and (robot_at ?o ?r) (not_holding ?r))
    :effect (and (holding ?o ?r) (not (not_holding ?r))))
  (:action place
    :parameters (?o - movable_entity_type ?g - goal_entity_type ?r - robot_entity_type)
    :precondition (and (goal_of ?g ?o) (holding ?o ?r) (robot_at ?g ?r))
    :effect (and (not_holding ?r) (object_at ?o ?g) (not (holding ?o ?r)))))"""


def stages(text: str, tmp_path: Path) -> list[str]:
    path = tmp_path / "mine.pddl"
    path.write_text(text, encoding="utf-8")
    return plan(problem_from_episode(make_episode(2, 1)), path).stages


def untyped(text: str) -> str:
    """A domain without types; its constants and variables are objects."""
    text = re.sub(r"\(:types[^()]*\)", "", text)
    return re.sub(r" - \w+", "", text)


def changed(*replaced: str) -> str:
    """The domain with texts replaced: old, new, old, new, ..."""
    text = HOME
    for old, new in zip(replaced[::2], replaced[1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    return text


MOVABLE = "?o - movable_entity_type ?r - robot_entity_type"
OWN = {
    "as it is": HOME,
    "no precondition": changed("    :precondition (and)\n", ""),
    "an empty precondition": changed(":precondition (and)\n", ":precondition ()\n"),
    "capitals": HOME.upper(),
    "a byte order mark": "\ufeff" + HOME,
    "undeclared requirements": changed(":adl", ":strips :typing"),
    "no requirements": changed("(:requirements :adl)", ""),
    "untyped parameters": changed(f"pick :parameters ({MOVABLE})", "pick :parameters (?o ?r)"),
    "no types": untyped(HOME),
    "no constants": re.sub(r"\(:constants[^()]*\)", "", HOME),
    "either": changed(
        "?to - static_obj_type", "?to - (either movable_entity_type goal_entity_type)"
    ),
    "costs": changed(
        "(:action nav", "(:functions (total-cost) - number) (:action nav",
        "(robot_at ?to ?r)))", "(robot_at ?to ?r) (increase (total-cost) 1)))",
    ),
    "a variable with the name of a parameter": changed(
        "- fridge_type)\n  (:pred", "- fridge_type robot_0 - robot_entity_type)\n  (:pred",
        "(robot_at ?o ?r) (not_holding ?r)",
        "(robot_at ?o ?r) (forall (?r) (or (not (= ?r ?o)) (robot_at ?r robot_0)))",
    ),
}  # fmt: skip


@pytest.mark.parametrize("text", OWN.values(), ids=OWN.keys())
def test_a_home_is_planned_with_a_standard_domain(text, tmp_path):
    assert stages(text, tmp_path) == ["nav obj_0", "pick obj_0", "nav goal_0", "place obj_0"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HOME.replace("goal_entity_type", "target_type"),
            "type 'goal_entity_type' of goal_0 is not declared in :types",
        ),
        (BLOCKS, "line 3, column 16: predicate: unknown value 'on'"),
    ],
)
def test_a_domain_that_does_not_fit_a_home_is_refused(text, message, tmp_path):
    with pytest.raises(UserError, match=re.escape(message)):
        stages(text, tmp_path)


def test_the_linter_lists_missing_requirements(tmp_path):
    path = tmp_path / "mine.pddl"
    problem = problem_from_episode(make_episode(1, 1))
    negative = HOME.replace("(and)\n", "(not (robot_at ?to ?r))\n")
    for requirements in ("", "(:requirements :strips :typing :conditional-effects)"):
        path.write_text(negative.replace("(:requirements :adl)", requirements))
        findings = lint(definition_of(plan(problem, path), path))
        missing = [f for f in findings if f.code == "requirement-not-declared"]
        assert missing[-1].where == (
            "domain mine.pddl, line 17" if requirements else "domain mine.pddl, line 18"
        )
    assert len(missing) == 1


SAY = """
import sys
from pathlib import Path
from hab_episodes import set_table
from planner.problem import problem_from_episode
from planner.search import plan
print(plan(problem_from_episode(set_table()), Path(sys.argv[1])).describe())
"""


@pytest.mark.slow
def test_a_plan_is_printed_the_same_in_every_process(tmp_path):
    path = tmp_path / "mine.pddl"
    somewhere = "(exists (?x - static_obj_type) (and (robot_at ?x ?r) (robot_at ?x ?r)))"
    path.write_text(HOME.replace("(and (goal_of ?g ?o)", f"(and {somewhere} (goal_of ?g ?o)"))
    runs = [
        subprocess.run(
            [sys.executable, "-c", SAY, str(path)],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0] == runs[1]
    choices = re.findall(r"needs   (robot_at\(.* or .*)", runs[0])[0].split("  (")[0].split(" or ")
    assert choices == sorted(set(choices)) and len(choices) > 2


# To and from other planners.


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> str:
    """A file with one Set Table episode."""
    path = tmp_path_factory.mktemp("pddl") / "set_table.jsonl.gz"
    save_episodes(path, [dataclasses.replace(set_table(), scenario="set_table")])
    return f"episodes={path}"


def written(dataset: str, folder: Path, *arguments: str) -> Path:
    assert cli.main(["plan", "set_table", dataset, f"write={folder}", *arguments]) == 0
    return folder


@pytest.mark.parametrize("domain", ["mended", "habitat", "mine"])
def test_a_written_problem_is_read_back_the_same_by_other_planners(domain, dataset, tmp_path):
    own = tmp_path / "mine.pddl"
    own.write_text(untyped(re.sub(r"\(:constants[^()]*\)", "", HOME)))
    folder = written(dataset, tmp_path / "out", f"domain={own if domain == 'mine' else domain}")
    files = [str(folder / name) for name in ("domain.pddl", "problem.pddl")]
    assert [i for i in diagnose(*files)["issues"] if i["severity"] == "error"] == []
    problem = problem_from_episode(set_table())
    read_back = pddlpy.DomainProblem(*files)
    assert {tuple(atom.predicate) for atom in read_back.initialstate()} == set(problem.init)
    assert {tuple(atom.predicate) for atom in read_back.goals()} == set(problem.goal)
    assert {entity.name for entity in problem.declared} == set(read_back.worldobjects())
    steps = [f"({' '.join((s.action, *s.args))})" for s in plan(problem, folder / "domain.pddl")]
    assert (folder / "plan.txt").read_text().splitlines() == steps


def test_a_plan_of_another_planner_is_followed(dataset, tmp_path, capsys):
    folder = written(dataset, tmp_path / "out")
    searched = capsys.readouterr().out
    lines = (folder / "plan.txt").read_text().upper().splitlines()
    timed = [f"{number}.0: {line} [1]  ; comment" for number, line in enumerate(lines)]
    for given in (lines, timed):
        (tmp_path / "found.txt").write_text("; cost = 12 (unit cost)\n" + "\n".join(given))
        assert cli.main(["plan", "set_table", dataset, f"plan={tmp_path / 'found.txt'}"]) == 0
        assert capsys.readouterr().out == searched


@pytest.mark.parametrize(
    ("kept", "added", "message"),
    [
        (slice(1, None), "", "line 1, column 1: step 1, open_cab(cab_push_point_5, obj_0_024"),
        (slice(0, 2), "(pick obj_0_024_bowl robot_0)", "needs robot_at(obj_0_024_bowl, robot_0)"),
        (slice(0, 5), "(place obj_0_024_bowl goal_1 robot_0)", "needs goal_of(goal_1, obj_0_024"),
        (slice(0, 6), "", "the goal object_at(obj_1_013_apple, goal_1) does not hold after all 6"),
        (slice(0, 0), "", "the goal object_at(obj_0_024_bowl, goal_0) does not hold at the start"),
    ],
)  # fmt: skip
def test_an_invalid_plan_is_reported_with_its_first_failing_step(
    kept, added, message, dataset, tmp_path, capsys
):
    lines = (written(dataset, tmp_path / "out") / "plan.txt").read_text().splitlines()
    (tmp_path / "found.txt").write_text("\n".join([*lines[kept], added]))
    capsys.readouterr()
    assert cli.main(["plan", "set_table", dataset, f"plan={tmp_path / 'found.txt'}"]) == 1
    printed = capsys.readouterr()
    assert message in printed.err and printed.out == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(pik obj_0_024_bowl robot_0)", "column 1: action: unknown value 'pik'; did you mean 'p"),
        ("\n (pick bowl robot_0)", "line 2, column 8: entity: unknown value 'bowl'"),
        ("(pick robot_0)", "line 1, column 1: pick takes 2 entities, 1 given"),
        ("(pick goal_0 robot_0)", "column 7: goal_0 must be of the type movable_entity_type"),
        ("pick obj_0_024_bowl", "line 1, column 1: expected a step such as (pick obj_0_024"),
        ("(pick", "line 1, column 1: the bracket is never closed"),
        (None, "found.txt (No such file or directory)"),
    ],
)  # fmt: skip
def test_a_malformed_plan_file_is_a_user_error(text, message, dataset, tmp_path, capsys):
    if text is not None:
        (tmp_path / "found.txt").write_text(text)
    assert cli.main(["plan", "set_table", dataset, f"plan={tmp_path / 'found.txt'}"]) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.startswith("tpsrl: error: plan: ")


def test_an_episode_without_targets_has_no_plan(tmp_path, capsys):
    path = tmp_path / "idle.jsonl.gz"
    idle = dataclasses.replace(set_table(), scenario="set_table", targets=())
    save_episodes(path, [idle])
    assert cli.main(["plan", "set_table", f"episodes={path}"]) == 2
    assert f"{idle.id}: targets: must have at least one" in capsys.readouterr().err


def test_an_empty_folder_name_writes_nothing(dataset, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["plan", "set_table", dataset, "write="]) == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["domain.pddl", "problem.pddl", "plan.txt"])
def test_a_file_with_other_contents_is_not_replaced(name, dataset, tmp_path, capsys):
    folder = written(dataset, written(dataset, tmp_path / "out"))  # the same again replaces nothing
    (folder / name).write_text("mine")
    assert cli.main(["plan", "set_table", dataset, f"write={folder}"]) == 2
    assert f"write: {folder / name} has other contents" in capsys.readouterr().err
    assert (folder / name).read_text() == "mine"


@pytest.mark.parametrize("argument", ["plan=x", "write=x"])
def test_the_linter_neither_writes_nor_follows(argument, capsys):
    assert cli.main(["plan", "set_table", "lint=true", argument]) == 2
    assert "cannot be combined with lint=true" in capsys.readouterr().err
