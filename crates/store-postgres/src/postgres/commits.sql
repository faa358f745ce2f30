-- The commits that sources of a run were from, as JSON. Programs of earlier formats may still write; their runs have none.
ALTER TABLE kilnyard.run ADD COLUMN commits TEXT;
