"""The classical sense-plan-act skills (HAB's TP-SPA): baseline, demonstrators, no training.

They plan with the true state of the environment (`tpsrl.motion`), and act through the same action
interface, physics and limits as a learned policy. Each skill's controller is in the skill's folder;
this package holds what they share.
"""
