; The Home Assistant Benchmark as a planning domain: the types, predicates and actions of
; habitat-lab's replica_cad domain (domain_habitat.pddl holds it literally), mended so that every
; plan that search finds can be carried out:
;   - the robot is at one entity at a time: navigating deletes every other robot_at;
;   - what lies in a closed fridge or drawer can neither be picked nor reached to place;
;   - picking, opening and closing need an empty hand;
;   - facts that exclude each other delete each other (holding and not_holding, opened and closed),
;     and an object that is picked is no longer where it was;
;   - an object is only placed at its own goal (goal_of), so that a wrong object goes back home.
; In PDDL an action's deletes come before its adds: (robot_at ?obj ?robot) survives the forall.
(define (domain home_assistant)
  (:requirements :strips :typing :negative-preconditions :disjunctive-preconditions
                 :universal-preconditions :conditional-effects)

  (:types
    static_obj_type robot_entity_type - object
    art_receptacle_entity_type obj_type - static_obj_type
    cab_type fridge_type - art_receptacle_entity_type
    movable_entity_type goal_entity_type - obj_type)

  (:constants
    cab_push_point_4 cab_push_point_5 cab_push_point_6 cab_push_point_7 - cab_type
    fridge_push_point - fridge_type)

  (:predicates
    (holding ?obj - movable_entity_type ?robot - robot_entity_type)
    (not_holding ?robot - robot_entity_type)
    (in ?obj - obj_type ?recep - art_receptacle_entity_type)
    (opened_cab ?cab - cab_type)
    (closed_cab ?cab - cab_type)
    (opened_fridge ?fridge - fridge_type)
    (closed_fridge ?fridge - fridge_type)
    (robot_at ?at_entity - static_obj_type ?robot - robot_entity_type)
    (object_at ?obj - movable_entity_type ?at_entity - static_obj_type)
    (goal_of ?goal - goal_entity_type ?obj - movable_entity_type))

  (:action nav
    :parameters (?obj - obj_type ?robot - robot_entity_type)
    :precondition (and)
    :effect (and
      (forall (?other - static_obj_type) (not (robot_at ?other ?robot)))
      (robot_at ?obj ?robot)))

  (:action nav_to_receptacle
    :parameters (?marker - art_receptacle_entity_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (in ?obj ?marker)
    :effect (and
      (forall (?other - static_obj_type) (not (robot_at ?other ?robot)))
      (robot_at ?marker ?robot)))

  (:action pick
    :parameters (?obj - movable_entity_type ?robot - robot_entity_type)
    :precondition (and
      (robot_at ?obj ?robot)
      (not_holding ?robot)
      (forall (?cab - cab_type) (not (and (in ?obj ?cab) (closed_cab ?cab))))
      (forall (?fridge - fridge_type) (not (and (in ?obj ?fridge) (closed_fridge ?fridge)))))
    :effect (and
      (holding ?obj ?robot)
      (not (not_holding ?robot))
      (forall (?recep - art_receptacle_entity_type) (not (in ?obj ?recep)))
      (forall (?entity - static_obj_type) (not (object_at ?obj ?entity)))))

  (:action place
    :parameters (?place_obj - movable_entity_type ?obj - goal_entity_type
                 ?robot - robot_entity_type)
    :precondition (and
      (goal_of ?obj ?place_obj)
      (holding ?place_obj ?robot)
      (robot_at ?obj ?robot)
      (forall (?cab - cab_type) (not (and (in ?obj ?cab) (closed_cab ?cab))))
      (forall (?fridge - fridge_type) (not (and (in ?obj ?fridge) (closed_fridge ?fridge)))))
    :effect (and
      (not_holding ?robot)
      (object_at ?place_obj ?obj)
      (not (holding ?place_obj ?robot))
      (forall (?recep - art_receptacle_entity_type)
        (when (in ?obj ?recep) (in ?place_obj ?recep)))))

  (:action open_fridge
    :parameters (?fridge - fridge_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge ?robot) (not_holding ?robot)
                       (closed_fridge ?fridge) (in ?obj ?fridge))
    :effect (and (opened_fridge ?fridge) (not (closed_fridge ?fridge))))

  (:action close_fridge
    :parameters (?fridge - fridge_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge ?robot) (not_holding ?robot)
                       (opened_fridge ?fridge) (in ?obj ?fridge))
    :effect (and (closed_fridge ?fridge) (not (opened_fridge ?fridge))))

  (:action open_cab
    :parameters (?marker - cab_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (not_holding ?robot)
                       (closed_cab ?marker) (in ?obj ?marker))
    :effect (and (opened_cab ?marker) (not (closed_cab ?marker))))

  (:action close_cab
    :parameters (?marker - cab_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (not_holding ?robot)
                       (opened_cab ?marker) (in ?obj ?marker))
    :effect (and (closed_cab ?marker) (not (opened_cab ?marker))))

  ; The same receptacle actions without naming what is inside.

  (:action nav_to_receptacle_by_name
    :parameters (?marker - art_receptacle_entity_type ?robot - robot_entity_type)
    :precondition (and)
    :effect (and
      (forall (?other - static_obj_type) (not (robot_at ?other ?robot)))
      (robot_at ?marker ?robot)))

  (:action open_fridge_by_name
    :parameters (?fridge - fridge_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge ?robot) (not_holding ?robot) (closed_fridge ?fridge))
    :effect (and (opened_fridge ?fridge) (not (closed_fridge ?fridge))))

  (:action close_fridge_by_name
    :parameters (?fridge - fridge_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge ?robot) (not_holding ?robot) (opened_fridge ?fridge))
    :effect (and (closed_fridge ?fridge) (not (opened_fridge ?fridge))))

  (:action open_cab_by_name
    :parameters (?marker - cab_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (not_holding ?robot) (closed_cab ?marker))
    :effect (and (opened_cab ?marker) (not (closed_cab ?marker))))

  (:action close_cab_by_name
    :parameters (?marker - cab_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (not_holding ?robot) (opened_cab ?marker))
    :effect (and (closed_cab ?marker) (not (opened_cab ?marker)))))
