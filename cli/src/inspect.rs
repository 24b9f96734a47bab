//! `cdi inspect`

use anyhow::{Context, Result};
use contract::ByteCount;
use pipeline::{Inspection, Options};

use crate::access::Access;
use crate::args::InspectArgs;
use crate::{Environment, engine, print};

/// Probes the image and prints its properties.
///
/// # Errors
/// When the source cannot be read. An image that an import would refuse is not an error.
pub fn run(args: InspectArgs, environment: Environment) -> Result<()> {
    let access = Access::from_args(&args.web, environment.password)?
        .with_registry(&args.registry)?
        .with_stores(&args.store, environment.google_key);
    let http = access.into_options(args.web.connections.get(), &environment.proxy);
    let inspection = engine::inspect(&args.source, &http, &Options::default())?;
    if args.json {
        let json = serde_json::to_string_pretty(&inspection).context("cannot write the report")?;
        return print(&format!("{json}\n"));
    }
    print(&table(&inspection))
}

/// One line per known property.
fn table(inspection: &Inspection) -> String {
    let Inspection {
        source,
        format,
        compression,
        virtual_size,
        allocated_size,
        wire_size,
        route,
        because,
    } = inspection;
    let size = |bytes: &Option<u64>| {
        bytes.map(|bytes| format!("{} ({bytes} bytes)", ByteCount::new(bytes).human()))
    };
    let compression =
        if compression.is_empty() { "none".into() } else { compression.join(", then ") };
    let rows = [
        ("source", Some(source.clone())),
        ("wire size", size(wire_size)),
        ("compression", Some(compression)),
        ("format", Some(format.clone()).filter(|format| !format.is_empty())),
        ("virtual size", size(virtual_size)),
        ("allocated size", size(allocated_size)),
        ("route", Some(route.clone())),
        ("because", Some(because.clone()).filter(|because| !because.is_empty())),
    ];
    rows.into_iter()
        .filter_map(|(name, value)| Some(format!("{:<16}{}\n", format!("{name}:"), value?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_properties_have_a_line_each() {
        let inspection = Inspection {
            source: "https://host/a.qcow2".into(),
            format: "qcow2".into(),
            compression: Vec::new(),
            virtual_size: Some(10 << 30),
            allocated_size: Some(3 << 29),
            wire_size: Some(600 << 20),
            route: "ranges".into(),
            because: "the image has an index and its source serves ranges".into(),
        };
        let expected = "\
source:         https://host/a.qcow2
wire size:      600 MiB (629145600 bytes)
compression:    none
format:         qcow2
virtual size:   10 GiB (10737418240 bytes)
allocated size: 1.5 GiB (1610612736 bytes)
route:          ranges
because:        the image has an index and its source serves ranges
";
        assert_eq!(table(&inspection), expected);
    }

    #[test]
    fn unknown_properties_are_omitted() {
        let inspection = Inspection {
            source: "-".into(),
            compression: vec!["gzip".into(), "xz".into()],
            route: "refused".into(),
            ..Inspection::default()
        };
        let expected =
            "source:         -\ncompression:    gzip, then xz\nroute:          refused\n";
        assert_eq!(table(&inspection), expected);
    }
}
