-- One line for each remark on the plan's set.
ALTER TABLE plan ADD COLUMN remarks TEXT NOT NULL DEFAULT '';
