//! `cargo xtask`: what a person, and CI, does with this repository, one command each.
//!
//! Needs little besides the standard library, so that the first answer comes within seconds of a fresh clone.

mod bench;
mod cluster;
mod demo;
mod deps;
mod fuzz;
mod image;
mod links;
mod lint;
mod manifests;
mod policy;
mod serve;
mod shell;
mod test;

use std::process::ExitCode;

use anyhow::{Result, bail};

use image::Profile;

const HELP: &str = "\
cargo xtask COMMAND

  demo             build, make a small qcow2, serve it on loopback, apply a DataVolume
                   manifest to a local folder of volumes, verify the result
  test             everything: unit, property and whole-program tests, a short fuzz run,
                   then the tests of a real cluster, twice
  soak ROUNDS      the property tests again and again, with new cases each time
  lint             formatting, clippy, documentation, dependency policy, links in the documents
  deps [--check]   install the third-party programs that tests and benchmarks run
                   (--check: only say what is missing)
  image NAME|all [--dev]
                   a container image with nothing but a static program and what it needs, as a file
                   for `ctr image import`, `docker load` and `skopeo copy`: importer, cloner,
                   uploadserver, uploadproxy, apiserver, controller, operator; or all of these. importer-vddk
                   holds nbdkit too, where the distribution has its plugin for VMware's library
  manifests        write deploy/ from the types and tables it is made of
  cluster up|down|status|logs|kubectl|load|tools|install|test
                   a real Kubernetes of one node on this machine, and this project installed on it;
                   `cluster help` says more
  bench import ... compare imports with common tools; `bench import --help` says more
  bench upload ... compare uploads through proxy and server with nginx; needs root
  bench clone ...  compare copies from volume to volume by TLS with local tools; needs root
  bench control-plane VOLUMES IDLE [--dev]
                   what so many DataVolumes at once, and so many that are done, cost the controllers
                   (--dev: a try, with what the tests have compiled)
  bench control-plane clones CLONES
                   what so many clones of one image at once cost them, by each way
  bench control-plane blank [VOLUMES] [--dev]
                   how long so many blank DataVolumes at once take, 60 unless told otherwise, by our
                   controllers and by the reference's in turns, in the cluster of the tests; needs root
  bench hostile [MINUTES] [--dev]
                   three hostile tenants attack at once, 10 minutes unless told otherwise, while a fourth
                   works, in the cluster of the tests; fails when they do any harm; needs root
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
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] | ["help" | "-h" | "--help"] => print!("{HELP}"),
        ["demo"] => demo::run()?,
        ["test"] => test::run()?,
        ["soak", rounds] => test::soak(rounds)?,
        ["lint"] => lint::run()?,
        ["deps"] => deps::install(&deps::everything())?,
        ["deps", "--check"] => deps::check(&deps::everything())?,
        ["image", name] => images(name, Profile::Release)?,
        ["image", name, "--dev"] => images(name, Profile::Dev)?,
        ["manifests"] => manifests::write()?,
        ["cluster", rest @ ..] => cluster::run(rest)?,
        ["bench", "control-plane", rest @ ..] => bench::control_plane(rest)?,
        ["bench", "hostile", rest @ ..] => bench::hostile(rest)?,
        ["bench", rest @ ..] => bench::run(rest)?,
        _ => bail!("unknown command: {}\n\n{HELP}", words.join(" ")),
    }
    Ok(())
}

/// Builds the image of that name, or all of them, and says where they are.
fn images(name: &str, profile: Profile) -> Result<()> {
    let names = if name == "all" { image::names().collect() } else { vec![name] };
    for name in names {
        println!("{}", image::build(name, profile)?.display());
    }
    Ok(())
}
