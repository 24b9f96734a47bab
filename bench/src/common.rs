//! What benchmarks of transfers have in common: options, and the order of their runs.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::contender::Contender;
use crate::disk::Size;
use crate::work;

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

/// Where a benchmark without [`Common`] works, and whether its results are kept.
#[derive(clap::Args)]
pub struct Results {
    /// The directory of inputs and targets: on a disk, outside the tree.
    #[arg(long, env = "CDI_CACHE")]
    pub cache: PathBuf,
    /// A word for the names of the result files.
    #[arg(long, default_value = "")]
    label: String,
    /// Print the table and keep nothing.
    #[arg(long)]
    pub dev: bool,
}

impl Results {
    /// Keeps tables and raw figures as [`work::keep`] does.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn keep(&self, date: &str, what: &str, text: &str, lines: &[String]) -> Result<()> {
        work::keep(date, what, &self.label, text, lines)
    }
}

/// The programs that import.
#[derive(clap::Args)]
pub struct Importers {
    /// Upstream CDI's importer, built elsewhere.
    #[arg(long, value_name = "PROGRAM", env = "CDI_REFERENCE")]
    pub reference: Option<PathBuf>,
    /// This project's program, if not the one that was built with the benchmark.
    #[arg(long, value_name = "PROGRAM")]
    cdi: Option<PathBuf>,
}

impl Importers {
    /// This project's program.
    ///
    /// # Errors
    /// When the running program has no path.
    pub fn cdi(&self) -> Result<PathBuf> {
        cdi(self.cdi.as_deref())
    }

    /// Upstream CDI's importer, or the programs that take its steps where it is not given.
    pub fn upstream(&self) -> Contender {
        match self.reference {
            Some(_) => Contender::Upstream,
            None => Contender::ScratchChain,
        }
    }
}

/// This project's program: the one that was built with the benchmark, if none is `given`.
///
/// # Errors
/// When the running program has no path.
pub fn cdi(given: Option<&Path>) -> Result<PathBuf> {
    match given {
        Some(program) => Ok(program.to_owned()),
        None => Ok(env::current_exe().context("this program has no path")?.with_file_name("cdi")),
    }
}

/// Where the programs of both ends of a transfer are.
#[derive(clap::Args)]
pub struct ProgramFolders {
    /// Upstream CDI's importer; its other programs are in the same folder.
    #[arg(long, value_name = "PROGRAM", env = "CDI_REFERENCE")]
    reference: Option<PathBuf>,
    /// Where this project's programs are, if not in the folder of this one.
    #[arg(long, value_name = "FOLDER")]
    programs: Option<PathBuf>,
}

impl ProgramFolders {
    /// The folder of this project's programs.
    ///
    /// # Errors
    /// When the running program has no path.
    pub fn ours(&self) -> Result<PathBuf> {
        if let Some(folder) = &self.programs {
            return Ok(folder.clone());
        }
        let path = env::current_exe().context("this program has no path")?;
        Ok(path.parent().unwrap_or(Path::new(".")).to_owned())
    }

    /// The folder of upstream CDI's programs, if all of them are there.
    pub fn upstream(&self) -> Option<PathBuf> {
        let folder = self.reference.as_deref()?.parent()?;
        let all = ["cdi-uploadproxy", "cdi-uploadserver", "cdi-cloner"];
        all.iter().all(|name| folder.join(name).is_file()).then(|| folder.to_owned())
    }
}

/// Runs all contenders in each round; each round begins with another one. `run` returns whether the contender goes on.
///
/// # Errors
/// The first error of `run`.
pub fn in_turns<C: Copy + PartialEq>(
    mut contenders: Vec<C>,
    rounds: u32,
    mut run: impl FnMut(C, u32) -> Result<bool>,
) -> Result<()> {
    for round in 0..rounds {
        let mut given_up = Vec::new();
        for contender in &contenders {
            if !run(*contender, round)? {
                given_up.push(*contender);
            }
        }
        contenders.retain(|contender| !given_up.contains(contender));
        if !contenders.is_empty() {
            contenders.rotate_left(1);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_begins_with_another_contender_and_without_those_that_gave_up() {
        let mut order = String::new();
        in_turns(vec!['a', 'b', 'c'], 3, |contender, round| {
            order.push(contender);
            Ok(contender != 'a' || round == 0)
        })
        .unwrap();
        assert_eq!(order, "abcbcacb");
    }
}
