"""Small PDDL domains in the style of planning competitions, with the result of parsing each.

The result is the list of action names, or the error after the file's name.
"""

DOMAINS: dict[str, tuple[str, list[str] | str]] = {
    "gripper, types as predicates": (
        """(define (domain gripper-strips)
  (:predicates (room ?r) (ball ?b) (gripper ?g) (at-robby ?r) (at ?b ?r) (free ?g) (carry ?o ?g))
  (:action move :parameters (?from ?to)
    :precondition (and (room ?from) (room ?to) (at-robby ?from))
    :effect (and (at-robby ?to) (not (at-robby ?from))))
  (:action pick :parameters (?obj ?room ?gripper)
    :precondition (and (ball ?obj) (gripper ?gripper) (at ?obj ?room) (free ?gripper))
    :effect (and (carry ?obj ?gripper) (not (at ?obj ?room)) (not (free ?gripper)))))""",
        ["move", "pick"],
    ),
    "ferry, without requirements": (
        """(define (domain ferry)
  (:predicates (not-eq ?x ?y) (car ?c) (location ?l) (at-ferry ?l) (empty-ferry) (on ?c))
  (:action sail :parameters (?from ?to)
    :precondition (and (not-eq ?from ?to) (location ?to) (at-ferry ?from))
    :effect (and (at-ferry ?to) (not (at-ferry ?from))))
  (:action debark :parameters (?car ?loc) :precondition (and (on ?car) (at-ferry ?loc))
    :effect (and (empty-ferry) (not (on ?car)))))""",
        ["sail", "debark"],
    ),
    "hanoi, words without spaces between": (
        "(define(domain hanoi)(:requirements :strips)(:predicates(clear ?x)(on ?x ?y)(smaller ?x "
        "?y))(:action move :parameters(?disc ?from ?to):precondition(and(smaller ?to ?disc)(on "
        "?disc ?from)(clear ?to)):effect(and(clear ?from)(on ?disc ?to)(not(clear ?to)))))",
        ["move"],
    ),
    "sokoban, mixed case and costs": (
        """(define (domain sokoban-sequential)
  (:requirements :typing :action-costs)
  (:types thing location direction - object player stone - thing)
  (:predicates (clear ?l - location) (at ?t - thing ?l - location)
               (MOVE-DIR ?from ?to - location ?dir - direction))
  (:functions (total-cost) - number)
  (:action push :parameters (?p - player ?s - stone ?from ?to - location ?dir - direction)
    :precondition (and (at ?p ?from) (clear ?to) (move-dir ?from ?to ?dir))
    :effect (and (not (at ?p ?from)) (at ?p ?to) (increase (total-cost) 1))))""",
        ["push"],
    ),
    "openstacks, implications under a quantifier": (
        """(define (domain openstacks)
  (:requirements :typing :adl)
  (:types order product)
  (:predicates (includes ?o - order ?p - product) (started ?o - order) (made ?p - product))
  (:action make :parameters (?p - product)
    :precondition (and (not (made ?p))
                       (forall (?o - order) (imply (includes ?o ?p) (started ?o))))
    :effect (made ?p)))""",
        ["make"],
    ),
    "freecell, predicates in capitals": (
        """(define (domain freecell)
  (:requirements :strips :typing)
  (:types card num suit)
  (:predicates (VALUE ?c - card ?v - num) (SUCCESSOR ?n1 ?n0 - num) (CELLSPACE ?n - num))
  (:action sendtofree :parameters (?card - card ?cells ?ncells - num)
    :precondition (and (cellspace ?cells) (successor ?cells ?ncells))
    :effect (and (cellspace ?ncells) (not (cellspace ?cells)))))""",
        ["sendtofree"],
    ),
    "child-snack, constants in conditions": (
        """(define (domain child-snack)
  (:requirements :typing :equality)
  (:types child bread-portion place)
  (:constants kitchen - place)
  (:predicates (at_kitchen_bread ?b - bread-portion) (at ?p - place))
  (:action make :parameters (?b - bread-portion ?p - place)
    :precondition (and (at_kitchen_bread ?b) (at kitchen) (= ?p kitchen))
    :effect (not (at_kitchen_bread ?b))))""",
        ["make"],
    ),
    "visit-all": (
        """(define (domain grid-visit-all)
  (:requirements :typing)
  (:types place - object)
  (:predicates (connected ?x ?y - place) (at-robot ?x - place) (visited ?x - place))
  (:action move :parameters (?curpos ?nextpos - place)
    :precondition (and (at-robot ?curpos) (connected ?curpos ?nextpos))
    :effect (and (at-robot ?nextpos) (not (at-robot ?curpos)) (visited ?nextpos))))""",
        ["move"],
    ),
    "assembly, conditional effects": (
        """(define (domain assembly)
  (:requirements :typing :conditional-effects :disjunctive-preconditions
                 :existential-preconditions :universal-preconditions :equality)
  (:types assembly resource - object)
  (:predicates (available ?a - assembly) (part-of ?p ?w - assembly)
               (requires ?a - assembly ?r - resource))
  (:action commit :parameters (?r - resource ?a - assembly)
    :precondition (forall (?p - assembly) (or (not (part-of ?p ?a)) (available ?p)))
    :effect (and (requires ?a ?r) (when (exists (?q - assembly) (= ?q ?a)) (available ?a)))))""",
        ["commit"],
    ),
    "zenotravel, either, with fuel as a condition": (
        """(define (domain zeno-travel)
  (:requirements :typing :fluents)
  (:types aircraft person city - object)
  (:predicates (at ?x - (either person aircraft) ?c - city))
  (:functions (fuel ?a - aircraft) (distance ?c1 ?c2 - city))
  (:action fly :parameters (?a - aircraft ?c1 ?c2 - city)
    :precondition (and (at ?a ?c1) (>= (fuel ?a) (* (distance ?c1 ?c2) 2)))
    :effect (and (not (at ?a ?c1)) (at ?a ?c2))))""",
        "line 7, column 36: action 'fly': numeric comparisons",
    ),
    "satellite with time": (
        """(define (domain satellite)
  (:requirements :typing :durative-actions)
  (:types satellite direction)
  (:predicates (pointing ?s - satellite ?d - direction))
  (:durative-action turn_to :parameters (?s - satellite ?d - direction)
    :duration (= ?duration 5) :condition (at start (pointing ?s ?d))
    :effect (at end (pointing ?s ?d))))""",
        "line 5, column 3: ':durative-action': durative actions are not supported",
    ),
    "a network of power, derived": (
        """(define (domain psr)
  (:requirements :adl :derived-predicates)
  (:types node)
  (:predicates (fed ?x - node) (upstream ?x - node))
  (:derived (upstream ?x - node) (fed ?x))
  (:action open :parameters (?x - node) :precondition (upstream ?x) :effect (fed ?x)))""",
        "line 5, column 3: ':derived': derived predicates are not supported",
    ),
    "pathways with preferences": (
        """(define (domain pathways)
  (:requirements :typing :preferences)
  (:types molecule)
  (:predicates (available ?x - molecule))
  (:action choose :parameters (?x - molecule)
    :precondition (preference p1 (available ?x)) :effect (available ?x)))""",
        "line 6, column 19: action 'choose': preferences are not supported",
    ),
    "trucks with constraints": (
        """(define (domain trucks)
  (:requirements :constraints)
  (:predicates (delivered))
  (:constraints (and (always (delivered))))
  (:action deliver :effect (delivered)))""",
        "line 4, column 3: ':constraints': trajectory constraints are not supported",
    ),
    "a tyre that may burst": (
        """(define (domain triangle-tire)
  (:requirements :typing :strips :non-deterministic)
  (:types location)
  (:predicates (vehicle-at ?l - location) (flattire))
  (:action move-car :parameters (?from ?to - location) :precondition (vehicle-at ?from)
    :effect (and (vehicle-at ?to) (oneof (flattire) (not (flattire))))))""",
        "line 6, column 35: action 'move-car': 'oneof': probabilistic effects are not supported",
    ),
    "a bomb that may go off": (
        """(define (domain bomb-and-toilet)
  (:requirements :probabilistic-effects)
  (:predicates (bomb-in ?x) (defused))
  (:action dunk :parameters (?x) :precondition (bomb-in ?x)
    :effect (probabilistic 0.95 (defused))))""",
        "line 5, column 13: action 'dunk': 'probabilistic': probabilistic effects are not",
    ),
    "an action that senses": (
        """(define (domain colour-balls)
  (:predicates (at ?x) (red ?x))
  (:action look :parameters (?x) :precondition (at ?x) :observe (red ?x)))""",
        "line 3, column 56: action 'look': ':observe': action observations are not supported",
    ),
    "functions to objects": (
        """(define (domain logistics-fluents)
  (:requirements :typing :object-fluents)
  (:types truck place)
  (:functions (location ?t - truck) - place)
  (:action drive :parameters (?t - truck ?p - place) :effect (assign (location ?t) ?p)))""",
        "line 4, column 39: a function must have the type 'number'",
    ),
}
