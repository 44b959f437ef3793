//! The controller's commands as a user types them, in real labs, including failures.

mod bulk;
mod chroot;
mod compare;
mod damage;
mod export;
mod faults;
mod fixture;
mod flows;
mod imports;
mod golden;
mod host;
mod kill;
mod labs;
mod usage_errors;
mod orphans;
mod paces;
mod programs;
mod resume;
mod rootless;
mod samples;
mod schemas;
mod data_directory;
mod verdicts;
