//! The tables of `bench clone`.

use super::Contender;
use crate::table::{self, Row, Run, at_least, at_most, line, rows};
use crate::target::Kind;

/// `packed`: what `zstd -1` makes of the disk, in bytes.
pub(super) fn markdown(date: &str, about: &[(&str, String)], runs: &[Run], packed: u64) -> String {
    let mut text = format!("# Clones compared, {date}\n\n");
    text.push_str(
        "Made by `cargo xtask bench clone`. Medians; wall time with least and most, until the copy is durable. Cloner and \
         upload server are each in the environment of a pod, with TLS in between. A file is in the page cache; a \
         device is read past it. Our cloner in one pod and the tools copy with no network at all, and so have half of the \
         work. CPU and memory are those of each program and its children; wire is all that went over the network between them.\n\n",
    );
    table::facts(&mut text, about);
    text.push('\n');
    let rows = rows(runs);
    text.push_str(&table::markdown(&rows, runs, Contender::Cdi.name(), "the disk"));
    text.push_str(
        "\n## Against the goals\n\n\
         Wall time of upstream CDI's pair over ours, bytes on the wire over those that zstd -1 makes of the disk, and the \
         larger memory of both sides. A cross marks what is missed.\n\n\
         | Target | What | × upstream | Wire ÷ compressed | Peak MiB |\n\
         |---|---|---|---|---|\n",
    );
    for ours in rows.iter().filter(|row| row.program == Contender::Cdi.name()) {
        let same = |row: &&Row| {
            row.program == Contender::Upstream.name()
                && (&row.case, &row.target) == (&ours.case, &ours.target)
        };
        let reference = rows.iter().find(same).map(|row| row.wall / ours.wall);
        let wanted = if ours.case.contains(Kind::Loop.name()) { 3.5 } else { 2.0 };
        line(
            &mut text,
            format_args!(
                "| {} | {} | {} | {} | {} |",
                ours.target,
                ours.case,
                at_least(reference, wanted),
                at_most(Some(ours.wire_bytes / packed as f64), 1.0),
                at_most(Some(ours.peak_mib(&["sender", "server"])), 128.0),
            ),
        );
    }
    text
}
