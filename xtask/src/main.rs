//! `cargo xtask`: what developers and CI do with this repository, one command each.
//!
//! Needs little besides the standard library, so that the first command prints something within seconds of a fresh clone.

mod background;
mod bench;
mod cluster;
mod commits;
mod demo;
mod deps;
mod fuzz;
mod image;
mod links;
mod lint;
mod manifests;
mod policy;
mod requirements;
mod rust_source;
mod serve;
mod shell;
mod test;
mod vocabulary;
mod walk_through;

use std::process::ExitCode;

use anyhow::{Result, bail};

use image::Profile;

const HELP: &str = "\
cargo xtask COMMAND

  demo             build, create a small qcow2, serve it on loopback, apply a DataVolume
                   manifest to a local folder of volumes, verify the result
  test             everything, in this order: unit, property and whole-program tests, and meanwhile a short
                   fuzz run; in a real cluster, the system tests once and the tests of the cluster itself twice.
                   A system test that fails is run once more alone; if it passes then, it is reported
                   as flaky. At the end: the duration of each layer, and what was skipped and why
  test --kubevirt  the tests with virtual machines, which KubeVirt runs in a cluster of their own: no part
                   of `test`, since KubeVirt takes minutes to build. Needs root
  test --nodes 2   the tests of two nodes, in a cluster of their own: no part of `test`, since they wait until
                   nodes are lost. Needs root
  fuzz             only the short fuzz run of `test`. Needs the nightly compiler
  soak ROUNDS      the property tests, ROUNDS times, with new cases each time
  soak chaos MINUTES
                   a hundred DataVolumes at a time in a cluster where everything is disturbed
  lint             formatting, titles of new commits, vocabulary, dependency policy, links, files, tests
                   and functions that documents name, clippy, documentation
  vocabulary       write xtask/vocabulary.txt: how often each word that is being replaced still occurs
  deps [--check]   install the third-party programs that tests and benchmarks run
                   (--check: only print what is missing)
  image NAME|all [--dev]
                   build a container image that holds static programs and the few files they need, as a
                   file for `ctr image import`, `docker load` and `skopeo copy`: importer, cloner,
                   uploadserver, uploadproxy, apiserver, controller, operator; or all of these, compiled by
                   one cargo build. importer-vddk holds nbdkit too, where the distribution has its plugin
                   for VMware's library. --dev: not optimized
  manifests [--registry REGISTRY --tag TAG --output DIRECTORY]
                   write deploy/ from the types and tables that define it; with all three options, those of
                   a release: images REGISTRY/cdi-NAME:TAG, and the version of the tag (v1.2.3)
  cluster up|down|status|logs|kubectl|load|tools|install|update|test
                   a real Kubernetes of one node, or two, on this machine, with this project installed in it;
                   `cluster update cdi-controller` brings an edit of one program into it;
                   `cluster help` prints more
  bench import ... compare imports with common tools; `bench import --help` prints more
  bench network ...
                   compare imports over simulated networks: latency, loss, limited connections; needs root
  bench many ...   compare 1, 4, 16 and 64 imports at once
  bench scaling ...
                   imports on one core and on more, and a model of what faster networks take; needs root
  bench upload ... compare uploads through proxy and server with nginx; needs root
  bench clone ...  compare copies from volume to volume over TLS with local tools; needs root
  bench start ...  compare how long importers and upload servers take to start; needs root
  bench control-plane VOLUMES IDLE [--dev]
                   what VOLUMES DataVolumes at once, and IDLE completed ones, cost the controllers
                   (--dev: a try, with the programs that the tests have compiled)
  bench control-plane clones CLONES
                   what CLONES clones of one image at once cost them, by each method
  bench control-plane blank [VOLUMES] [--dev]
                   how long VOLUMES blank DataVolumes at once (default 60) take, by our controllers and
                   by upstream CDI's alternately, in the cluster of the tests; needs root
  bench control-plane single [--dev]
                   how long one DataVolume of each of several kinds takes, by ours and by upstream CDI's
                   alternately, and `virtctl image-upload`; needs root
  bench control-plane idle [--dev]
                   memory and CPU time of upstream CDI's programs and of ours while nothing happens; needs root
  bench hostile [MINUTES] [--dev]
                   three hostile tenants attack at once for MINUTES (default 10) while a fourth works,
                   in the cluster of the tests; fails when they do any harm; needs root
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[String]) -> Result<()> {
    let arguments: Vec<&str> = args.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] | ["help" | "-h" | "--help"] => print!("{HELP}"),
        ["demo"] => demo::run()?,
        ["test"] => test::run()?,
        ["test", "--kubevirt"] => cluster::run(&["test", "--kubevirt"])?,
        ["test", "--nodes", "2"] => cluster::run(&["test", "--nodes", "2"])?,
        ["fuzz"] => fuzz::smoke()?,
        ["soak", "chaos", minutes] => cluster::run(&["soak", minutes])?,
        ["soak", rounds] => test::soak(rounds)?,
        ["lint"] => lint::run()?,
        ["vocabulary"] => vocabulary::write()?,
        ["deps"] => deps::install(&deps::everything())?,
        ["deps", "--check"] => deps::check(&deps::everything())?,
        ["image", name] => images(name, Profile::Release)?,
        ["image", name, "--dev"] => images(name, Profile::Dev)?,
        ["manifests", rest @ ..] => manifests::write(rest)?,
        ["cluster", rest @ ..] => cluster::run(rest)?,
        ["bench", "control-plane", rest @ ..] => bench::control_plane(rest)?,
        ["bench", "hostile", rest @ ..] => bench::hostile(rest)?,
        ["bench", rest @ ..] => bench::run(rest)?,
        _ => bail!("unknown command: {}\n\n{HELP}", arguments.join(" ")),
    }
    Ok(())
}

/// Builds the image of that name, or all of them, and prints the paths of the archives.
fn images(name: &str, profile: Profile) -> Result<()> {
    let names = if name == "all" { image::names() } else { vec![name] };
    for archive in image::build(&names, profile)? {
        println!("{}", archive.display());
    }
    Ok(())
}
