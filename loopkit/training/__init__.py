"""Training: ``train.train`` trains a resolved recipe.

Read ``train``, then ``build`` (everything that a run consists of), then ``trainer`` (the loop). ``errors`` contains the
reasons for which a run ends early. Nothing is imported here, because the modules need torch.
"""
