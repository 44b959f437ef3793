//! The samples of a pair on its page: files that a hub has stored, requests, and the command for more.

use std::cmp::Reverse;
use std::path::PathBuf;

use dwell_hub::store::HubTransaction;
use dwell_hub::{HubError, SampleRequestState, requests, time_text};
use dwell_report::model::quantity::count;
use dwell_results::amounts;
use dwell_rollup::Name;
use dwell_store::{FleetSampleFile, fleet_samples};

use crate::app::App;
use crate::error::Error;

/// Maximum number of files in a list.
const MAX_FILES: usize = 20;

/// Longest span that the command on the page requests.
const MAX_REQUEST_NS: i64 = 24 * 3_600 * 1_000_000_000;

/// A direction of a pair, and the range of its page in nanoseconds since 1970.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) sender: Name,
    pub(super) reflector: Name,
    pub(super) from_ns: i64,
    pub(super) to_ns: i64,
}

/// What the page shows about the samples of a direction.
#[derive(Clone, Debug, Default)]
pub(super) struct PairSamples {
    /// The newest files with samples of the range, the newest first.
    pub(super) files: Vec<FileRow>,
    /// Number of older files with samples of the range.
    pub(super) more: usize,
    /// Requests for samples of the range that may still bring some.
    pub(super) pending: Vec<String>,
    /// Command that requests the samples of the range, or of its last day.
    pub(super) command: String,
}

/// A file of samples.
#[derive(Clone, Debug)]
pub(super) struct FileRow {
    pub(super) name: String,
    pub(super) from: String,
    pub(super) to: String,
    pub(super) samples: String,
    pub(super) size: String,
}

impl Span {
    fn has(&self, file: &FleetSampleFile) -> bool {
        let about = &file.about;
        self.is_of(&about.sender, &about.reflector)
            && about.from_ns < self.to_ns
            && about.to_ns >= self.from_ns
    }

    fn is_of(&self, sender: &str, reflector: &str) -> bool {
        (sender, reflector) == (self.sender.as_str(), self.reflector.as_str())
    }

    /// Reads the requests. The files are not in the database.
    pub(super) fn read(
        &self,
        transaction: &mut dyn HubTransaction,
    ) -> Result<PairSamples, HubError> {
        let pending = requests(transaction)?.into_iter().filter(|request| {
            request.state == SampleRequestState::Pending
                && self.is_of(request.sender.as_str(), request.reflector.as_str())
                && request.overlaps(self.from_ns, self.to_ns)
        });
        let pending = pending.map(|request| {
            let (from, to) = (time_text(request.from_ns), time_text(request.to_ns));
            format!("request {} of {}: {from} to {to}", request.number, request.author)
        });
        let from_ns = self.from_ns.max(self.to_ns.saturating_sub(MAX_REQUEST_NS));
        Ok(PairSamples {
            pending: pending.collect(),
            command: format!(
                "dwell hub samples request {}:{} --from {} --to {}",
                self.sender,
                self.reflector,
                time_text(from_ns),
                time_text(self.to_ns)
            ),
            ..PairSamples::default()
        })
    }
}

impl FileRow {
    fn new(file: &FleetSampleFile) -> Self {
        let name = file.path.file_name().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            from: time_text(file.about.from_ns),
            to: time_text(file.about.to_ns),
            samples: count(file.about.samples),
            size: amounts::bytes(file.len),
        }
    }
}

/// Adds the files of the data directory. One that is damaged is left out; `dwell hub samples list` names
/// it.
pub(super) async fn add_files(
    app: &App,
    of_spans: Vec<(Span, PairSamples)>,
) -> Result<Vec<PairSamples>, Error> {
    let dir = app.config().data.clone();
    let read = move || -> Result<Vec<PairSamples>, Error> {
        let prefixes: Vec<String> =
            of_spans.iter().map(|(span, _)| format!("{}-", span.sender)).collect();
        let is_wanted = |name: &str| prefixes.iter().any(|prefix| name.starts_with(prefix));
        let (files, _) = fleet_samples(&dir, &is_wanted)?;
        let added = of_spans.into_iter().map(|(span, mut samples)| {
            let mut of_span: Vec<_> = files.iter().filter(|file| span.has(file)).collect();
            of_span.sort_by_key(|file| Reverse(file.about.from_ns));
            samples.more = of_span.len().saturating_sub(MAX_FILES);
            samples.files = of_span.into_iter().take(MAX_FILES).map(FileRow::new).collect();
            samples
        });
        Ok(added.collect())
    };
    tokio::task::spawn_blocking(read).await.map_err(|_| Error::Ending)?
}

/// Returns the path of a file of a pair.
///
/// # Errors
/// There is no such file, or a directory cannot be read.
pub(super) async fn file_of(
    app: &App,
    sender: String,
    reflector: String,
    name: String,
) -> Result<PathBuf, Error> {
    let dir = app.config().data.clone();
    let read = move || -> Result<PathBuf, Error> {
        // Names are compared with those in the directory, so none leads elsewhere.
        let (files, _) = fleet_samples(&dir, &|found| found == name)?;
        let is_of = |file: &FleetSampleFile| {
            (&file.about.sender, &file.about.reflector) == (&sender, &reflector)
        };
        let file = files.into_iter().find(is_of);
        let missing =
            || Error::NotFound(format!("{sender}:{reflector} has no file {name} of samples"));
        Ok(file.ok_or_else(missing)?.path)
    };
    tokio::task::spawn_blocking(read).await.map_err(|_| Error::Ending)?
}
