"""The verbs: one file, one transaction each.

What each verb does to slices:

| verb        | slices                                                                      |
|-------------|-----------------------------------------------------------------------------|
| load        | new ones at the tail of main                                                |
| smart       | as load; queued ones are deleted, or name new segments in place             |
| ring        | the oldest loaded ones of main are removed for new ones                     |
| rendezvous  | as load; those that nobody fires are removed again                          |
| fire        | the next loaded ones become a ticket's                                      |
| acknowledge | what a ticket still holds is deleted                                        |
| settle      | fired ones are deleted, moved to the sideline, or loaded again in place      |
| shovel      | those of the sideline go to the tail of main                                |
| sweep       | those fired too long ago go to the tail of the sideline                     |
| abandon     | those handed out too often go to the tail of the sideline, for good            |
| expire      | those loaded too long ago are removed                                       |
| overdue     | rows whose own time is over are removed                                     |
| deactivate  | none: the queue takes and gives no more                                     |
| drop        | all of the queue are removed                                                |
| reset       | those that were kept are loaded again in place                              |
| recover     | those fired and never seen are loaded again in place                        |
| quarantine  | those of unreadable segments are set apart                                  |
| held, pick  | none: they are looked at; so it is with peek                                |
"""
