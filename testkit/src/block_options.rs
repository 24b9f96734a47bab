//! Every kind of vmdk, vdi, vhd and vhdx file that qemu-img can write and that is one file.

use proptest::prelude::*;

/// How such a file is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockOptions {
    /// As qemu-img calls the format: `vmdk`, `vdi`, `vpc`, `vhdx`.
    pub format: &'static str,
    /// The text behind `-o`.
    pub options: String,
    /// Later writes of the guest, in order: where and how much, in 1/1024 of the disk, and of which byte.
    pub writes: Vec<(u64, u64, u8)>,
}

impl BlockOptions {
    /// Without later writes.
    pub fn new(format: &'static str, options: &str) -> Self {
        Self { format, options: options.into(), writes: Vec::new() }
    }

    pub fn each() -> Vec<Self> {
        let table = [
            ("vmdk", "subformat=monolithicSparse"),
            ("vmdk", "subformat=monolithicSparse,zeroed_grain=on"),
            ("vmdk", "subformat=streamOptimized"),
            ("vdi", "static=off"),
            ("vdi", "static=on"),
            ("vpc", "subformat=dynamic"),
            ("vpc", "subformat=dynamic,force_size=on"),
            ("vhdx", "subformat=dynamic"),
            ("vhdx", "subformat=fixed,block_size=1M"),
        ];
        table.into_iter().map(|(format, options)| Self::new(format, options)).collect()
    }
}

/// All formats, subformats and sizes, and up to six later writes where the format allows them.
pub fn block_options() -> impl Strategy<Value = BlockOptions> {
    let vmdk = prop::sample::select(vec![
        "subformat=monolithicSparse",
        "subformat=monolithicSparse,zeroed_grain=on",
        "subformat=monolithicSparse,compat6=on,adapter_type=lsilogic",
        "subformat=streamOptimized",
        "subformat=streamOptimized",
    ]);
    let vmdk = vmdk.prop_map(|options| ("vmdk", options.to_owned()));
    let vdi = any::<bool>().prop_map(|on| ("vdi", format!("static={}", on_off(on))));
    let vpc = any::<bool>()
        .prop_map(|on| ("vpc", format!("subformat=dynamic,force_size={}", on_off(on))));
    let vhdx = (any::<bool>(), prop::sample::select(vec![0, 1, 2, 4, 16]), 1..4_u64).prop_map(
        |(fixed, block, log)| {
            let subformat = if fixed { "fixed" } else { "dynamic" };
            let options = format!("subformat={subformat},block_size={block}M,log_size={log}M");
            ("vhdx", options)
        },
    );
    let write = (0..1024_u64, 0..128_u64, any::<u8>());
    let writes = prop_oneof![1 => Just(Vec::new()), 1 => prop::collection::vec(write, 1..6)];
    (prop_oneof![vmdk, vdi, vpc, vhdx], writes).prop_map(|((format, options), mut writes)| {
        if options.contains("streamOptimized") {
            writes.clear(); // is written once
        }
        BlockOptions { format, options, writes }
    })
}

fn on_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
