"""`gspo-edu inspect`: what the log-probs of a real run say about ratios, clipping and drift.

`rows` and `arrays` read a file into a `columns.RecordedRun`, `numbers` measures it, `findings` says
in words what to worry about, `report` and `figure` show it, `writing` makes such files.
"""

SHARES = (0.01, 0.05, 0.15)  # clip fractions of GSPO for which a range is looked for
