"""The course as a static site: every lesson with its stored outputs and living widgets.

Nothing is fetched, neither when it is built nor when it is read: formulas become MathML, the
search index is a script, and the pages work from disk.
"""
