"""Keep the records in a PostgreSQL database that is run by somebody else and may go away for a while.

Needs psycopg, so nothing imports this folder but `records.opening`, when an address is given. What is asked and
written is the SQL of `records.reading` and `records.writing`. Never here: how a database server is run.
"""
