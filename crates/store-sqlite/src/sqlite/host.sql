-- The kernel and CPU of a build's machine. Programs of format 6 may still write; their builds have neither.
ALTER TABLE build ADD COLUMN kernel TEXT;
ALTER TABLE build ADD COLUMN cpu TEXT;
