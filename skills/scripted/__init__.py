"""The classical sense-plan-act skills (HAB's TP-SPA): baseline, demonstrators, no training.

They plan with the state of the world and a model of the home, and act through the same action
interface, physics and limits as a learned policy. Each skill's own is in the skill's folder; here
is what they share.
"""
