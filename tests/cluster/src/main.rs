//! The program behind `cargo xtask cluster`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use cluster::{Mode, State, Tools};

const HELP: &str = "\
cargo xtask cluster COMMAND

  up [--nodes 2|--control-plane-only]
                             bring up a Kubernetes of one node on this machine (needs root), or of two
  down                       remove it with all it had: processes, mounts, devices, network
  status                     list its programs, and whether they run
  logs NAME                  print the log of one of them
  kubectl ...                run kubectl with the administrator's permissions
  run PROGRAM ...            run a program in the network of this machine that the cluster is connected to: of use for a
                             cluster with a name, whose network is apart
  load IMAGE                 put the images of an OCI archive where pods find them
  kubevirt                   install KubeVirt and wait until it is available
  upstream                   load the images of upstream CDI and print the manifest of its operator, for `kubectl apply`
  install [--dev|--tests] [--manifests] [--kubevirt]
                             install this project: build its images, apply deploy/operator, wait until it is available.
                             Optimized; --dev: not optimized; --tests: as the tests have compiled it;
                             --manifests: apply deploy/crds and deploy/ instead, without an operator that repairs;
                             --kubevirt: then KubeVirt, for virtual machines
  update NAME...             bring an edit into the cluster: compile the programs of these images or packages as the
                             tests do, load the images, restart their Deployments, wait for the new pods
  test                       build; then up, install, the tests of the installed system, down, with those of
                             the operator in another cluster at the same time; then up, the tests of the
                             cluster itself, down
  test --operator            build; then up, the tests of the operator, down
  test --nodes 2             build; then up with two nodes, install, the tests of two nodes, down
  test --kubevirt            build; then up, install with KubeVirt, the tests with virtual machines, down
  tools                      build the third-party programs of the cluster, and nothing else
  tools GROUP...             build these groups in this order, and print where they are. cluster: the same as without a group;
                             virtctl: KubeVirt's client; reference: the programs of upstream CDI;
                             kubevirt: the disk of a guest, and the image of KubeVirt's launcher;
                             kubevirt-all: the same with the images of all programs of KubeVirt

CDI_CLUSTER=NAME selects an additional cluster, with a network, control groups and a folder of its own.
CDI_CLUSTER_STATE names its folder (/var/lib/cdi-cluster), TOOLS_DIR a folder with programs to take instead of built ones.
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(words: &[String]) -> Result<ExitCode> {
    let state = State::from_environment()?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // The programs in the cluster's own namespaces are where they belong already.
    if !matches!(words.first(), Some(&("first-process" | "spawn" | "outer-network" | "tools"))) {
        cluster::enter_network(&state, matches!(words.first(), Some(&("up" | "run"))))?;
    }
    match words.as_slice() {
        [] | ["help" | "-h" | "--help"] => print!("{HELP}"),
        ["up"] => cluster::up(&state, Mode::Whole)?,
        ["up", "--nodes", "1"] => cluster::up(&state, Mode::Whole)?,
        ["up", "--nodes", "2"] => cluster::up(&state, Mode::TwoNodes)?,
        ["up", "--control-plane-only"] => cluster::up(&state, Mode::ControlPlane)?,
        ["down"] => cluster::down(&state)?,
        ["status"] => print!("{}", cluster::status(&state)?),
        ["logs", name] => print!("{}", cluster::logs(&state, name)?),
        ["kubectl", rest @ ..] => return kubectl(&state, rest),
        ["run", program @ ..] => {
            let status = cluster::run_in_network(&state, program)?;
            return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        ["load", archive] => print!("{}", cluster::load(&state, Path::new(archive))?),
        ["tools"] => build_tools("cluster")?,
        ["tools", groups @ ..] => groups.iter().try_for_each(|group| build_tools(group))?,
        ["kubevirt"] => cluster::install_kubevirt(&state)?,
        ["upstream"] => {
            cluster::load_upstream_images(&state)?;
            print!("{}", cluster::upstream_operator_manifest("cdi")?);
        }
        // Internal: the other commands start these.
        ["first-process", node] => cluster::first_process(&state, node)?,
        ["outer-network"] => cluster::outer_network(),
        ["spawn", name] => println!("{}", cluster::spawn_from_record(&state, name)?),
        _ => bail!("unknown command: {}\n\n{HELP}", words.join(" ")),
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds what is not built yet of a group, and prints the paths that callers need.
fn build_tools(group: &str) -> Result<()> {
    match group {
        "cluster" => drop(Tools::ready(&[cluster::KUBERNETES, cluster::NODE])?),
        "virtctl" => println!("{}", Tools::ready(&[cluster::VIRTCTL])?.path("virtctl")?),
        "reference" => println!("{}", Tools::ready(&[cluster::REFERENCE])?.path("cdi-importer")?),
        "kubevirt" => {
            println!("{}", cluster::guest::disk()?.display());
            println!("{}", cluster::launcher_image()?.display());
        }
        "kubevirt-all" => {
            println!("{}", cluster::guest::disk()?.display());
            println!("{}", cluster::kubevirt_images()?.display());
        }
        _ => bail!("there are no tools named {group}\n\n{HELP}"),
    }
    Ok(())
}

fn kubectl(state: &State, words: &[&str]) -> Result<ExitCode> {
    // Without its network, kubectl would try to reach the address outside this machine.
    ensure!(cluster::is_up(state), "there is no cluster: create one with `cargo xtask cluster up`");
    let mut kubectl = cluster::kubectl(state, &Tools::ready(&[cluster::KUBERNETES])?)?;
    let status = kubectl.args(words).status().context("cannot start kubectl")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
