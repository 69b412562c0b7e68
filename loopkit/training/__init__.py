"""Training: the DeepSpeed engine, the loop, resume, progress, and what a run will cost.

``train.train`` trains a resolved recipe, ``plan.plan`` says what that will cost, ``stop`` has the ways in which a run
can end early. Nothing is imported here, because everything else needs torch.
"""
