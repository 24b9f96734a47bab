//! Reading by ranges.

use crate::disk;
use crate::qemu::Workshop;
use crate::reader;

#[test]
fn every_plain_variant_reads_as_it_was_written() {
    let Some(workshop) = Workshop::open() else { return };
    let options = [
        "compat=0.10",
        "compat=1.1",
        "cluster_size=512",
        "cluster_size=2M",
        "extended_l2=on,cluster_size=16k",
        "extended_l2=on",
        "lazy_refcounts=on",
        "refcount_bits=1",
        "refcount_bits=64",
        "preallocation=metadata",
        "preallocation=full",
        "compression_type=zstd",
    ];
    for (seed, option) in options.iter().enumerate() {
        let disk = disk::mixed(3 << 20, seed as u64);
        workshop.write("disk.raw", &disk);
        for how in ["-q", "-c", "-W"] {
            if how == "-c" && option.starts_with("preallocation") {
                continue;
            }
            workshop.img(["convert", how, "-O", "qcow2", "-o", option, "disk.raw", "image"]);
            let image = workshop.read("image");
            let read = reader::by_ranges(&image).unwrap();
            assert!(read == disk, "{option} {how}");
        }
    }
}

#[test]
fn snapshots_zero_clusters_and_resizes_show_the_active_state() {
    let Some(workshop) = Workshop::open() else { return };
    for option in ["cluster_size=512", "cluster_size=64k", "extended_l2=on", "compat=0.10"] {
        workshop.img(["create", "-q", "-f", "qcow2", "-o", option, "image", "3000832"]);
        workshop
            .io("image", &["write -P 1 0 1000448".into(), "write -c -P 2 1114112 65536".into()]);
        workshop.img(["snapshot", "-c", "before", "image"]);
        workshop.io("image", &["write -P 3 4096 65536".into(), "write -P 9 2999808 1024".into()]);
        if option != "compat=0.10" {
            workshop.img(["resize", "-q", "image", "9000448"]);
            workshop.io("image", &["write -z 131072 70000".into(), "discard 0 131072".into()]);
        }
        let read = reader::by_ranges(&workshop.read("image")).unwrap();
        assert!(read == workshop.disk_of("image").unwrap(), "{option}");
    }
}
