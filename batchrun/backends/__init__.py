"""The engines that can run a model, behind one seam: `base.py` says what each must do."""
