"""What `course.py` does before it starts anything (standard library only).

`environment` makes, mends and updates the environment; `torch_build` chooses the PyTorch build;
`processes` runs the steps and says how to go on when one stops.
"""
