-- The commits that sources of a run were from, as JSON. Programs of format 6 may still write; their runs have none.
ALTER TABLE run ADD COLUMN commits TEXT;
