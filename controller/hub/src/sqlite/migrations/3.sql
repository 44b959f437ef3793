-- Small states of parts of the hub, by kind and key: rules and states of alerts, requests for samples.
CREATE TABLE texts (
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (kind, key)
) STRICT, WITHOUT ROWID;
