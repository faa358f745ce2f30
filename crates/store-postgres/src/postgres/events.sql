-- The events of each run are in a partition of their own, which is dropped as a whole: see partition.rs. The table of before
-- becomes the first partition. Its columns stay, so that programs of earlier formats may write: their events are in the
-- latest partition, and they remove old ones row by row.

-- A leader locks this row before it writes events: neither waits for the other.
SELECT 1 FROM kilnyard.store FOR UPDATE;

ALTER TABLE kilnyard.event RENAME TO event_0;
ALTER TABLE kilnyard.event_0 RENAME CONSTRAINT event_pkey TO event_0_pkey;
CREATE TABLE kilnyard.event (
  LIKE kilnyard.event_0 INCLUDING DEFAULTS,
  CONSTRAINT event_pkey PRIMARY KEY (seq)
) PARTITION BY RANGE (seq);

-- Where the events of a run begin.
CREATE INDEX event_run_began ON kilnyard.event (run) WHERE type = 'run-began';

-- No store has numbers as high as this bound, which is SPAN in partition.rs.
ALTER TABLE kilnyard.event ATTACH PARTITION kilnyard.event_0 FOR VALUES FROM (MINVALUE) TO (1000000000);
