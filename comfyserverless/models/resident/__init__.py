"""Keep weights in a worker's memory layer by layer: load in the background, bind, free.

Never here: what a layer computes, which layer leaves (that is `residency`). May import reading and below.
"""
