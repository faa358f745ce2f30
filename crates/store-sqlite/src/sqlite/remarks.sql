-- A line for each remark on the set of the plan.
ALTER TABLE plan ADD COLUMN remarks TEXT NOT NULL DEFAULT '';
