-- Reasons as data, beside their words: rows of before have words alone, and a program that does not know a kind of reason shows the words.
ALTER TABLE run_package ADD COLUMN why TEXT;
ALTER TABLE plan_package ADD COLUMN why TEXT;
