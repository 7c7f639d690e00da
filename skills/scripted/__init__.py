"""The classical sense-plan-act skills (HAB's TP-SPA): baseline and demonstrators, without training.

They plan with the true state of the environment (`tpsrl.motion`), and act through the same action
interface, physics and limits as a learned policy. Each skill's controller is in the skill's folder;
this package holds the shared parts.
"""
