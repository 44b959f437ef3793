//! The controller's commands as a user types them, in real labs, including failures.

mod bulk;
mod chroot;
mod compare;
mod damage;
mod data_directory;
mod export;
mod faults;
mod fixture;
mod flows;
mod golden;
mod host;
mod imports;
mod kill;
mod labs;
mod orphans;
mod paces;
mod programs;
mod reflectors;
mod resume;
mod rootless;
mod samples;
mod schemas;
mod spikes;
mod usage_errors;
mod verdicts;
