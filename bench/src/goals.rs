//! The goals of the first release, and whether they were reached.

use crate::case::Case;
use crate::contender::Contender;

/// The goals of one kind of image.
#[derive(Clone, Copy, Debug)]
pub struct Goal {
    /// Wall time of upstream CDI's importer over ours.
    pub reference: Option<f64>,
    /// The best common tool, and its wall time over ours.
    pub tool: Option<(Contender, f64)>,
    /// The largest resident set.
    pub peak_rss_mib: u64,
}

/// What the programs have to work with: other goals hold for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conditions {
    /// All of the machine.
    Machine,
    /// The limits of a pod.
    Pod,
    /// A slow disk, which limits all programs alike.
    SlowDisk,
}

/// CPU time over that of upstream CDI, at most.
pub const CPU_SHARE_MAX: f64 = 0.5;

/// The goals for `case`.
pub fn goal(case: Case, conditions: Conditions) -> Goal {
    let peak_rss_mib = match case {
        Case::RawXzBlocks | Case::Vmdk | Case::Vhdx | Case::Vdi | Case::S3 | Case::Registry => 128,
        _ => 64,
    };
    match conditions {
        Conditions::Machine => goal_of_machine(case, peak_rss_mib),
        Conditions::Pod => {
            let reference = match case {
                Case::RawGz => Some(2.3),
                Case::Raw | Case::RawZst => Some(3.5),
                _ => None,
            };
            Goal { reference, tool: None, peak_rss_mib }
        }
        Conditions::SlowDisk => Goal { reference: None, tool: None, peak_rss_mib },
    }
}

fn goal_of_machine(case: Case, peak_rss_mib: u64) -> Goal {
    use Contender::{CdiHttp, QemuHttp, QemuLocal, QemuLocal16, Stream, TwoStep};
    let (reference, tool) = match case {
        Case::Raw => (2.8, (QemuHttp, 1.8)),
        Case::Qcow2 => (4.0, (QemuLocal, 1.0)),
        Case::Qcow2Zlib => (4.0, (QemuLocal16, 2.5)),
        Case::Qcow2Zstd => (4.0, (QemuLocal16, 1.7)),
        Case::RawGz => (2.8, (Stream, 1.3)),
        Case::RawZst => (4.0, (Stream, 1.5)),
        Case::RawXz => (3.0, (Stream, 1.2)),
        Case::RawXzBlocks => (5.0, (Stream, 1.2)),
        Case::Qcow2Gz => (3.3, (TwoStep, 1.8)),
        Case::Qcow2Xz => (3.0, (TwoStep, 1.8)),
        Case::Registry => (3.2, (TwoStep, 2.0)),
        // Only these have goals.
        Case::Vmdk | Case::Vhdx | Case::Vdi => {
            return Goal { reference: None, tool: Some((QemuLocal, 1.2)), peak_rss_mib };
        }
        // At most a tenth slower.
        Case::S3 => {
            return Goal { reference: None, tool: Some((CdiHttp, 1.0 / 1.1)), peak_rss_mib };
        }
    };
    Goal { reference: Some(reference), tool: Some(tool), peak_rss_mib }
}
