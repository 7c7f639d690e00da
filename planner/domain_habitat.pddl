; habitat-lab's domain for the Home Assistant Benchmark (0.3.3, multi_task/domain_configs/
; replica_cad.yaml) written as PDDL, for comparison only: nav deletes nothing, so all navigation
; can come first; pick looks at drawers but not at the fridge, nor at whether the hand is empty.
; habitat-lab's actions list only what becomes true, since it reads the rest off the simulator.
; Where two predicates exclude each other by their definition (holding and not_holding, opened and
; closed) the delete that follows is written out here; without it nothing could be opened.
(define (domain home_assistant_habitat)
  (:requirements :strips :typing :negative-preconditions :universal-preconditions)

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
    ; These two are in our problems, and unused here.
    (goal_of ?goal - goal_entity_type ?obj - movable_entity_type)
    (reached_from_handle ?recep - art_receptacle_entity_type))

  (:action nav
    :parameters (?obj - obj_type ?robot - robot_entity_type)
    :precondition (and)
    :effect (robot_at ?obj ?robot))

  (:action nav_to_receptacle
    :parameters (?marker - art_receptacle_entity_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (in ?obj ?marker)
    :effect (robot_at ?marker ?robot))

  (:action pick
    :parameters (?obj - movable_entity_type ?robot - robot_entity_type)
    :precondition (and
      (robot_at ?obj ?robot)
      (forall (?recep - cab_type) (not (and (in ?obj ?recep) (closed_cab ?recep)))))
    :effect (and (holding ?obj ?robot) (not (not_holding ?robot))))

  (:action place
    :parameters (?place_obj - movable_entity_type ?obj - goal_entity_type
                 ?robot - robot_entity_type)
    :precondition (and (holding ?place_obj ?robot) (robot_at ?obj ?robot))
    :effect (and (not_holding ?robot) (not (holding ?place_obj ?robot))
                 (object_at ?place_obj ?obj)))

  (:action open_fridge
    :parameters (?fridge_id - fridge_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge_id ?robot) (closed_fridge ?fridge_id)
                       (in ?obj ?fridge_id))
    :effect (and (opened_fridge ?fridge_id) (not (closed_fridge ?fridge_id))))

  (:action close_fridge
    :parameters (?fridge_id - fridge_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge_id ?robot) (opened_fridge ?fridge_id)
                       (in ?obj ?fridge_id))
    :effect (and (closed_fridge ?fridge_id) (not (opened_fridge ?fridge_id))))

  (:action open_cab
    :parameters (?marker - cab_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (closed_cab ?marker) (in ?obj ?marker))
    :effect (and (opened_cab ?marker) (not (closed_cab ?marker))))

  (:action close_cab
    :parameters (?marker - cab_type ?obj - obj_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (opened_cab ?marker) (in ?obj ?marker))
    :effect (and (closed_cab ?marker) (not (opened_cab ?marker))))

  (:action nav_to_receptacle_by_name
    :parameters (?marker - art_receptacle_entity_type ?robot - robot_entity_type)
    :precondition (and)
    :effect (robot_at ?marker ?robot))

  (:action open_fridge_by_name
    :parameters (?fridge_id - fridge_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge_id ?robot) (closed_fridge ?fridge_id))
    :effect (and (opened_fridge ?fridge_id) (not (closed_fridge ?fridge_id))))

  (:action close_fridge_by_name
    :parameters (?fridge_id - fridge_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?fridge_id ?robot) (opened_fridge ?fridge_id))
    :effect (and (closed_fridge ?fridge_id) (not (opened_fridge ?fridge_id))))

  (:action open_cab_by_name
    :parameters (?marker - cab_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (closed_cab ?marker))
    :effect (and (opened_cab ?marker) (not (closed_cab ?marker))))

  (:action close_cab_by_name
    :parameters (?marker - cab_type ?robot - robot_entity_type)
    :precondition (and (robot_at ?marker ?robot) (opened_cab ?marker))
    :effect (and (closed_cab ?marker) (not (opened_cab ?marker)))))
