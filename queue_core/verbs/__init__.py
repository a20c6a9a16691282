"""The verbs: one file each, with its transaction, or the rounds of a long one.

What each verb does to slices:

| verb         | slices                                                                         |
|--------------|--------------------------------------------------------------------------------|
| load         | adds new slices at the tail of main                                            |
| fire         | gives the next loaded slices to a ticket                                       |
| read_tickets | reads the slices of tickets; counts a delivery when a consumer was restarted   |
| settle       | deletes fired rows, moves them to the sideline, or loads them again in place   |
| acknowledge  | deletes the slices that a consumer's finished tickets still hold               |
| peek         | reads the slices that a firing would take                                      |
| browse       | reads all slices of a magazine, loaded or fired                                |
| shovel       | moves slices of the sideline to the tail of main                               |
| retry        | moves slices of the sideline whose time has come to the tail of main           |
| edit         | moves a row of the sideline to the tail of main, with other values             |
| sweep        | moves slices that were fired too long ago to the tail of the sideline          |
| abandon      | moves slices that were fired too often to the tail of the sideline, for good   |
| expire       | removes loaded rows whose time is over                                         |
| lose         | loads slices of a dead consumer again in place; sidelines one that killed it   |
| recover      | loads slices again in place that were fired and never seen                     |
| reset        | loads kept slices again in place                                               |
| intervene    | removes, moves or loads again the rows that a person chose                     |
| quarantine   | marks the slices of unreadable segments as damaged                             |
| repair       | loads damaged slices again in place                                            |
| take_in      | adds slices of what the log has for a subscription, at the tail of main        |
| detach       | none; stops or resumes what a subscription gets from a log                     |
| trim         | none; removes the beginning of a log                                           |
| snapshot     | copies those of a subscription into a hidden queue, as waiting                 |
| seek         | removes those of a subscription; copies those of a snapshot back               |
| deactivate   | changes none; the queue accepts no more loads and firings                      |
| drop         | removes all slices of a deactivated queue                                      |

A redrive consists of steps (`operator.redriving`): each moves slices of the sideline to main, or
loads their rows into another queue.

To add a verb, copy `reset`: a docstring with its changes, its guard and what a crash leaves; a
function named like the file, which decides within one transaction (`transact`); private helpers.

May import `selection`, `consumers` and what is below. Must not wait, nor start threads.
"""
