//! The tables and the raw figures.

use anyhow::Result;
use serde_json::{Value, json};

use super::{Input, Run};
use crate::case::Compression;
use crate::report::{median, sorted};
use crate::table::{self, line};

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// The network links of the model, and GiB of images that they bring in a second.
const LINKS: [(&str, f64); 2] =
    [("25 Gbit/s", 25e9 / 8.0 / GIB), ("100 Gbit/s", 100e9 / 8.0 / GIB)];

/// A figure of an input's runs on a number of cores, from least to most.
fn figures(runs: &[Run], input: Input, cores: usize, figure: impl Fn(&Run) -> f64) -> Vec<f64> {
    let same = runs.iter().filter(|run| run.input == input && run.cores == cores);
    sorted(same.map(figure))
}

fn middle(runs: &[Run], input: Input, cores: usize, figure: impl Fn(&Run) -> f64) -> Option<f64> {
    median(&figures(runs, input, cores, figure))
}

/// The least cores that an input was imported on.
fn cores_min(runs: &[Run], input: Input) -> Option<usize> {
    runs.iter().filter(|run| run.input == input).map(|run| run.cores).min()
}

fn wall(run: &Run) -> f64 {
    run.cost.wall.as_secs_f64()
}

fn cpu(run: &Run) -> f64 {
    run.cost.cpu.as_secs_f64()
}

/// What an import costs, and how much of it one thread has to do.
struct Model {
    /// Of CPU time for each GiB of the image.
    cpu_seconds: f64,
    /// Of the thread that decompresses all of the image, for each GiB of it. 0: no thread has to.
    serial_seconds: f64,
}

impl Model {
    /// From the runs on one core, or as few as there are.
    fn estimate(runs: &[Run], input: Input) -> Option<Self> {
        let cores = cores_min(runs, input)?;
        let gib = middle(runs, input, cores, |run| run.bytes("bytesRead"))? / GIB;
        let is_serial = matches!(input.case.compression(), Compression::Xz | Compression::Zstd)
            && !input.case.has_many_blocks();
        // Where the cores are shared, waiting for one counts as decompression: of all runs the least.
        let all = runs.iter().filter(|run| run.input == input);
        let serial = sorted(all.map(|run| run.seconds("decompression"))).first().copied()?;
        Some(Self {
            cpu_seconds: middle(runs, input, cores, cpu)? / gib,
            serial_seconds: if is_serial { serial / gib } else { 0.0 },
        })
    }

    /// The most GiB of the image in a second, on any number of cores.
    fn rate_max(&self) -> Option<f64> {
        (self.serial_seconds > 0.0).then(|| 1.0 / self.serial_seconds)
    }

    /// The cores that bring `rate`, or what the one thread can.
    fn cores_for(&self, rate: f64) -> String {
        match self.rate_max() {
            Some(max) if max < rate => format!("✗ one thread: {max:.2} GiB/s"),
            _ => format!("{:.1}", rate * self.cpu_seconds),
        }
    }
}

pub(super) fn markdown(
    date: &str,
    facts: &[(&'static str, String)],
    runs: &[Run],
    locks: &[(Input, u64)],
    data: u64,
) -> String {
    let mut text = format!("# Imports on one core and on more, {date}\n\n");
    text.push_str(
        "Made by `cargo xtask bench scaling`. Images are in the page cache, the disk is a file in memory (tmpfs), so neither network nor disk \
         is measured; `taskset` limits the program. Medians; wall time with least and most. With TLS the server is on the same cores. *Seconds of all \
         threads*: from the program's own report. *Lock calls*: system calls of locks and queues (`futex`) on all cores, counted by `strace` in \
         another run, for each MiB of data; *waits*: voluntary context switches.\n\n",
    );
    table::facts(&mut text, facts);
    text.push_str(
        "\n| Image | Cores | Wall s | Speed ÷ that of the first | CPU s | Decompression s | Decoding s | Writing s | Waits per MiB | Lock calls per MiB |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let data_mib = data as f64 / MIB;
    for first in runs.iter().filter(|run| run.round == 0) {
        let (input, cores) = (first.input, first.cores);
        let figure =
            |figure: &dyn Fn(&Run) -> f64| middle(runs, input, cores, figure).unwrap_or(f64::NAN);
        let least = cores_min(runs, input);
        let base = least.and_then(|least| middle(runs, input, least, wall)).unwrap_or(f64::NAN);
        let walls = figures(runs, input, cores, wall);
        let (Some(min), Some(max)) = (walls.first(), walls.last()) else { continue };
        let calls = locks.iter().find(|(of, _)| *of == input);
        let calls = calls.map_or("–".into(), |(_, n)| format!("{:.1}", *n as f64 / data_mib));
        line(
            &mut text,
            format_args!(
                "| {} | {cores} | {:.2} ({min:.2}–{max:.2}) | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {calls} |",
                input.name(),
                figure(&wall),
                base / figure(&wall),
                figure(&cpu),
                figure(&|run| run.seconds("decompression")),
                figure(&|run| run.seconds("decoding")),
                figure(&|run| run.seconds("writeWait")),
                figure(&|run| run.cost.waits as f64 / data_mib),
            ),
        );
    }
    text.push_str(
        "\n## Where it saturates\n\nA model, not a measurement: CPU time for each GiB of the image is that on one core, and is shared by any number of \
         cores; only one block of xz or frame of zstd is decompressed by one thread, which sets the most that any number of cores can do. On one core \
         nothing of a gzip member is decoded before what precedes it: more cores take more CPU time, as the table above shows. A cross marks a link that \
         this thread cannot fill.\n\n| Image | CPU s per GiB of the image | At most, GiB of the image/s | Cores that this takes |",
    );
    for (link, _) in LINKS {
        text.push_str(&format!(" Cores that fill {link} |"));
    }
    text.push_str("\n|---|---|---|---|---|---|\n");
    let mut inputs: Vec<Input> = Vec::new();
    for run in runs {
        if !inputs.contains(&run.input) {
            inputs.push(run.input);
        }
    }
    for input in inputs {
        let Some(model) = Model::estimate(runs, input) else { continue };
        let max = model.rate_max();
        let shown = |value: Option<f64>| value.map_or("no limit".into(), |v| format!("{v:.2}"));
        line(
            &mut text,
            format_args!(
                "| {} | {:.2} | {} | {} | {} | {} |",
                input.name(),
                model.cpu_seconds,
                shown(max),
                shown(max.map(|max| max * model.cpu_seconds)),
                model.cores_for(LINKS[0].1),
                model.cores_for(LINKS[1].1),
            ),
        );
    }
    text
}

pub(super) fn json_lines(
    date: &str,
    facts: &[(&'static str, String)],
    runs: &[Run],
    locks: &[(Input, u64)],
) -> Result<Vec<String>> {
    let calls: Vec<Value> = locks
        .iter()
        .map(|(input, calls)| json!({ "image": input.name(), "futexCalls": calls }))
        .collect();
    let header = json!({ "date": date, "about": table::about(facts), "lockCalls": calls });
    let each = runs.iter().map(|run| {
        json!({
            "image": run.input.name(),
            "cores": run.cores,
            "run": run.round + 1,
            "wallSeconds": wall(run),
            "cpuSeconds": cpu(run),
            "waits": run.cost.waits,
            "peakRssBytes": run.cost.peak_rss_bytes,
            "report": run.report,
        })
    });
    table::to_lines(header, each)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_limits_what_cores_bring() {
        let parallel = Model { cpu_seconds: 2.0, serial_seconds: 0.0 };
        assert_eq!(parallel.rate_max(), None);
        assert_eq!(parallel.cores_for(3.0), "6.0");
        let serial = Model { cpu_seconds: 2.0, serial_seconds: 0.5 };
        assert_eq!(serial.rate_max(), Some(2.0));
        assert_eq!(serial.cores_for(2.0), "4.0");
        assert_eq!(serial.cores_for(3.0), "✗ one thread: 2.00 GiB/s");
    }
}
