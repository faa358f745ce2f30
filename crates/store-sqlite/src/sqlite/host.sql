-- The kernel and CPU of the machine of a build. Programs of format 6 may still write: their builds have none.
ALTER TABLE build ADD COLUMN kernel TEXT;
ALTER TABLE build ADD COLUMN cpu TEXT;
