"""How the text of candidates and problems is read; nothing here executes it or imports another package of the project.

Text: `text` (bytes, lines, docstrings), `parsing` (to syntax trees), `comments` (left out), `normal_form`, `renaming`
and `anonymous` (what makes two programs the same). Trees: `nodes` (single ones), `names` (what they mean),
`native_names` (the same of C++), `expressions`, `module_class`, `size_constants`, `extensions`, `operations`.
Candidates: `candidate` (in its parts), `flow` (where inputs go), `input_caches`, `findings` (what is suspicious),
`evidence_of_acts` and `evidence_of_outputs` (what speaks for a category of hack).
"""
