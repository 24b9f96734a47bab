//! `cdi`

use std::path::PathBuf;

use clap::Parser;
use cli::Environment;
use cli::args::Cli;
use importer::{ProxySettings, Secret};
use tracing_subscriber::EnvFilter;

fn main() {
    let cli = Cli::parse();
    if cli.verbose > 0 {
        let level = if cli.verbose == 1 { "info" } else { "debug" };
        let ours = ["importer", "pipeline"].map(|name| format!("{name}={level}"));
        let filter = EnvFilter::new(format!("warn,{}", ours.join(",")));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
    let environment = Environment {
        password: std::env::var("CDI_PASSWORD").ok().map(Secret::new),
        google_key: std::env::var_os("GOOGLE_APPLICATION_CREDENTIALS")
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
        proxy: ProxySettings::from_environment(),
        state: state_folder(),
        no_bar: cli.verbose > 0 || std::env::var_os("TERM").is_some_and(|name| name == "dumb"),
    };
    runtime::exit_process(cli::run(cli, environment));
}

/// From the XDG base directory specification.
fn state_folder() -> Option<PathBuf> {
    let absolute =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("cdi"))
}
