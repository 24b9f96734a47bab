//! How an import ends, as the kubelet and the controller see it: an exit code and a termination message.

use std::error::Error as StdError;
use std::io;

use contract::import::{BadImportJob, SourceKind, texts};
use contract::termination::{ExitMessage, termination_text};
use pipeline::Error as Pipeline;

use super::plan::Refusal;
use runtime::{SandboxMissing, chain};

/// What there is to do about scratch space that is too small. The image is larger than its disk then, as scratch space has
/// space for a disk that fills the volume.
const LARGER_SCRATCH: &str = "It is as large as the PVC: request a larger one, or convert the image to a new file first \
                              (qemu-img convert), which then holds nothing but its disk and needs no scratch space";

/// The end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// 0: do not start me again.
    pub code: u8,
    /// What goes into the termination log; nothing leaves the end of the log to the kubelet.
    pub message: Option<String>,
}

impl Outcome {
    /// Complete, or as complete as it can be here.
    pub fn message(message: &ExitMessage) -> Self {
        Self { code: 0, message: Some(message.to_json()) }
    }

    /// Without a message.
    pub fn silent(code: u8) -> Self {
        Self { code, message: None }
    }

    /// Failed; another attempt may do better.
    pub fn failed(text: &str) -> Self {
        Self { code: 1, message: Some(termination_text(text)) }
    }
}

/// Why an import did not come to its end.
#[derive(Debug)]
pub enum Failure {
    Job(BadImportJob),
    /// The job is not begun.
    Refused(Refusal),
    /// The volume cannot be measured.
    Volume(io::Error),
    /// The container that serves the image never got ready.
    NotReady {
        /// The file that it should have created.
        path: String,
    },
    /// The source cannot be reached.
    Connect(Box<dyn StdError + Send + Sync>),
    /// The image cannot be brought over.
    Import(Pipeline),
    /// The empty disk could not be created.
    Blank(Box<dyn StdError + Send + Sync>),
    /// The disk may not be durable.
    Sync(io::Error),
    /// The sandbox is required, and not whole.
    Sandbox(SandboxMissing),
}

impl Failure {
    /// Its exit code and message. Controllers restart after code 1, and never after 0.
    pub fn outcome(&self, source: &SourceKind) -> Outcome {
        match self {
            Self::Job(BadImportJob::Preallocation { .. }) | Self::Volume(_) | Self::Sync(_) => {
                Outcome::silent(1)
            }
            Self::Refused(Refusal::ContentType { .. }) => Outcome::silent(1),
            Self::Import(Pipeline::Checksum { .. }) => Outcome::message(&ExitMessage {
                message: Some(self.text(source)),
                ..ExitMessage::default()
            }),
            // Scratch space is requested with the message of a complete import, because controllers know that one.
            Self::Job(_)
            | Self::Refused(_)
            | Self::NotReady { .. }
            | Self::Connect(_)
            | Self::Import(_)
            | Self::Blank(_)
            | Self::Sandbox(_) => Outcome::failed(&self.text(source)),
        }
    }

    /// The whole message, for the log too.
    pub fn text(&self, source: &SourceKind) -> String {
        match self {
            Self::Job(error @ BadImportJob::Checksum { kind, .. }) => {
                format!("{}{}", texts::connecting(kind.name()), chain(error))
            }
            Self::Job(error) => format!("{}{}", texts::PROCESSING, chain(error)),
            Self::Refused(refusal) => refused(refusal),
            Self::Volume(error) => format!("cannot examine the free space of the volume: {error}"),
            Self::NotReady { path } => texts::ready_timeout(path),
            // This source is examined only when its bytes are due.
            Self::Connect(error) if *source == SourceKind::Registry => {
                format!("{}{}{}", texts::PROCESSING, texts::TRANSFER_SCRATCH, chain(&**error))
            }
            Self::Connect(error) => {
                format!("{}{}", texts::connecting(source.name()), chain(&**error))
            }
            Self::Import(error) => format!("{}{}", texts::PROCESSING, processing(error, source)),
            Self::Blank(error) => format!("{}{}", texts::BLANK, chain(&**error)),
            Self::Sync(error) => format!("cannot make the disk durable: {error}"),
            Self::Sandbox(missing) => missing.to_string(),
        }
    }
}

fn refused(refusal: &Refusal) -> String {
    match refusal {
        Refusal::UnknownSource(name) => texts::unknown_source(name),
        Refusal::BlankArchive => texts::BLANK_ARCHIVE.to_owned(),
        Refusal::ContentType { source } => {
            format!(
                "a source of kind {} brings disks only: its content type has to be kubevirt",
                source.name()
            )
        }
        Refusal::Archive { because } => {
            format!("{}{}{because}", texts::PROCESSING, texts::TRANSFER_DIRECTORY)
        }
    }
}

/// Each reason after the text that clients match.
fn processing(error: &Pipeline, source: &SourceKind) -> String {
    let transfer = match source {
        SourceKind::Registry => texts::TRANSFER_SCRATCH,
        _ => texts::TRANSFER_FILE,
    };
    match error {
        Pipeline::Source { source, .. } => {
            format!("{transfer}{}{}", texts::PULL_FAILED, chain(&**source))
        }
        Pipeline::Decode { source: formats::Error::Empty { .. }, .. } => {
            format!("{}could not process image header: EOF", texts::INFO)
        }
        Pipeline::Decode { source: formats::Error::Foreign(_), .. } => {
            format!("{}{}{}", texts::CONVERT, chain(error), texts::RAW_FORMAT_HINT)
        }
        Pipeline::Decode { .. } | Pipeline::TooLarge { .. } | Pipeline::Unsupported { .. } => {
            format!("{}{}", texts::CONVERT, chain(error))
        }
        Pipeline::Target { source, .. } => match full_volume_text(source) {
            Some(text) => format!("{transfer}unable to write to file: {text}"),
            None => format!("{transfer}{}", chain(error)),
        },
        // Not the text for a full volume: a larger disk would not help.
        Pipeline::Scratch { path, source } if full_volume_text(source).is_some() => format!(
            "{}there is not enough free space in scratch space at {}. {LARGER_SCRATCH}",
            texts::TRANSFER_SCRATCH,
            path.display()
        ),
        Pipeline::Scratch { .. } => format!("{}{}", texts::TRANSFER_SCRATCH, chain(error)),
        Pipeline::Checksum { .. } => format!("{transfer}{}", chain(error)),
        Pipeline::Untar(_) => format!("{}{}", texts::TRANSFER_DIRECTORY, chain(error)),
        Pipeline::NeedsScratch { .. } => format!("{}{}", texts::TRANSFER_SCRATCH, chain(error)),
        Pipeline::Thread(_) | Pipeline::Panicked | Pipeline::Stopped => {
            format!("{}{}", texts::CONVERT, chain(error))
        }
    }
}

/// The system's text for a full volume, in the spelling that controllers match.
fn full_volume_text(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::StorageFull => Some("no space left on device"),
        io::ErrorKind::QuotaExceeded => Some("disk quota exceeded"),
        _ => None,
    }
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
