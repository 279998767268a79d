"""Live experiments: decisions that survive restarts, late rewards and several processes.

A journal of events in a database is the truth; the state in memory is what the events so far make
of the bandit that the experiment started from. Import `Experiment` from `irsppl`: the database
library is loaded only then.
"""
