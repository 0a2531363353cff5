"""What made the small model that lies in the package: invented text, tasks on it, the loop, the evaluation.

    python -m trellm.training train --out FOLDER --minutes 110
    python -m trellm.training evaluate FOLDER

Nothing is downloaded. Texts are composed of sentence forms (`text/domains.toml`) and of names, dates and amounts that
are made up as they are needed, so that a model has to read and copy instead of remembering. One in eight of the names,
values, forms and field names is held out by a hash: training never sees these, evaluation nothing else.
"""
