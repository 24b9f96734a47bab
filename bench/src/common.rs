//! The options that all benchmarks of transfers have.

use std::path::PathBuf;

use crate::disk::Size;

/// How often, of which disk, for how long, and where.
#[derive(clap::Args)]
pub struct Common {
    /// How often everything is run; tables show medians.
    #[arg(long, default_value_t = 5)]
    pub runs: u32,
    /// Which disk. Results of the real one are kept in bench/results.
    #[arg(long, value_enum, default_value_t = Size::Real)]
    pub size: Size,
    /// A run that takes longer is ended: qemu-img's http driver hangs at times.
    #[arg(long, default_value_t = 240)]
    pub limit_seconds: u64,
    /// The directory of inputs and targets: on a disk, outside the tree.
    #[arg(long, env = "CDI_CACHE")]
    pub cache: PathBuf,
    /// A word for the names of the result files.
    #[arg(long, default_value = "")]
    pub label: String,
}
