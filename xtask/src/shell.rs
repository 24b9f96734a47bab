//! Runs other programs. Each command is printed before it runs, and an error names it.

use std::env;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The root of the repository.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository")
}

/// The folder for third-party programs that are built here and for large inputs: outside the tree, shared by all clones.
pub fn cache() -> Result<PathBuf> {
    let base = match env::var_os("XDG_CACHE_HOME").filter(|value| !value.is_empty()) {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(env::var_os("HOME").context("HOME is not set")?).join(".cache"),
    };
    Ok(base.join("cdi"))
}

/// Whether CI runs this: there nothing is skipped, and a missing program is an error.
pub fn in_ci() -> bool {
    env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false")
}

/// The `cargo` that runs this program, in the root of the repository.
pub fn cargo(args: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// This program. Cargo may have replaced its file since it was started, with one that has other features of dependencies: the new
/// file has the same path.
///
/// # Errors
/// When the path is not known.
pub fn own_program() -> Result<PathBuf> {
    let path = env::current_exe().context("cannot find our own program")?;
    let replaced = path.to_str().and_then(|path| path.strip_suffix(" (deleted)"));
    Ok(replaced.map(PathBuf::from).unwrap_or(path))
}

/// Any other program, in the root of the repository.
pub fn program(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(args).current_dir(root());
    command
}

/// Prints a headline between the parts of a long run.
pub fn headline(text: &str) {
    eprintln!("\n=== {text}");
}

/// Starts a command and does not wait for it.
///
/// # Errors
/// When it cannot be started.
pub fn spawn(command: &mut Command) -> Result<Child> {
    eprintln!("$ {} &", command_line(command));
    command.spawn().with_context(|| format!("cannot start {}", command_line(command)))
}

/// Runs a command to its end.
///
/// # Errors
/// When it cannot be started or fails.
pub fn run(command: &mut Command) -> Result<()> {
    eprintln!("$ {}", command_line(command));
    let status =
        command.status().with_context(|| format!("cannot start {}", command_line(command)))?;
    if !status.success() {
        bail!("{} failed: {status}", command_line(command));
    }
    Ok(())
}

/// How long a program may be silent after its end before its output counts as complete: a process that it left behind
/// may keep the pipe open.
const SILENCE_AFTER_EXIT: Duration = Duration::from_secs(2);

/// Runs a command to its end and calls `on_line` for each line that it prints. Both of its streams go to standard error,
/// in the order in which they were written. A command that prints nothing for `silence_max` is killed, with all
/// processes that it has started.
///
/// # Errors
/// When it cannot be started, or is killed. A command that fails is no error here: see the status.
pub fn run_watched(
    command: &mut Command,
    silence_max: Duration,
    mut on_line: impl FnMut(&str),
) -> Result<ExitStatus> {
    eprintln!("$ {}", command_line(command));
    let (reader, writer) = io::pipe().context("cannot create a pipe")?;
    command.stdout(writer.try_clone().context("cannot duplicate a pipe")?).stderr(writer);
    let child = command.spawn();
    // The command holds the write end; the reader would never see the end of the output.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = child.with_context(|| format!("cannot start {}", command_line(command)))?;
    let (lines, received) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).split(b'\n').map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut last_line = Instant::now();
    loop {
        match received.recv_timeout(SILENCE_AFTER_EXIT.min(silence_max)) {
            Ok(line) => {
                last_line = Instant::now();
                let line = String::from_utf8_lossy(&line);
                // Whether the terminal is still there does not matter to the command.
                let _ = writeln!(io::stderr(), "{line}");
                on_line(&line);
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(status) = child.try_wait().context("cannot wait for a program")? {
                    return Ok(status);
                }
                if last_line.elapsed() >= silence_max {
                    kill_with_descendants(&mut child)?;
                    let (command, silence) = (command_line(command), silence_max.as_secs());
                    bail!("killed {command}, which has printed nothing for {silence} s");
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return child.wait().context("cannot wait for a program");
            }
        }
    }
}

/// Kills a program, and what it has started: cargo's test programs do not end with cargo.
///
/// # Errors
/// When the processes of this machine cannot be listed, or the program cannot be waited for.
pub fn kill_with_descendants(child: &mut Child) -> Result<()> {
    let parents = processes_with_parents()?;
    let mut tree = vec![child.id()];
    let mut at = 0;
    while let Some(parent) = tree.get(at).copied() {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(process, _)| process));
        at += 1;
    }
    let mut kill = program("kill", &["-KILL"]);
    kill.args(tree.iter().map(u32::to_string));
    // Fails where one of them has ended meanwhile.
    let _ = kill.stderr(Stdio::null()).status();
    child.wait().context("cannot wait for a program")?;
    Ok(())
}

/// The processes of this machine, each with its parent.
fn processes_with_parents() -> Result<Vec<(u32, u32)>> {
    let entries = fs::read_dir("/proc").context("cannot list the processes")?;
    Ok(entries
        .filter_map(|entry| {
            let process = entry.ok()?.file_name().to_str()?.parse().ok()?;
            // It may have ended.
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
            // The name before the last parenthesis may contain anything; then come state and parent.
            let parent = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?;
            Some((process, parent.parse().ok()?))
        })
        .collect())
}

/// Runs a command to its end, prints nothing, and returns what it wrote to standard output.
///
/// # Errors
/// When it cannot be started or fails; the error then holds its standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let output =
        command.output().with_context(|| format!("cannot start {}", command_line(command)))?;
    if !output.status.success() {
        let cause = String::from_utf8_lossy(&output.stderr);
        bail!("{} failed: {}\n{}", command_line(command), output.status, cause.trim());
    }
    String::from_utf8(output.stdout)
        .with_context(|| format!("{} wrote text that is not UTF-8", command_line(command)))
}

/// Finds a program as a shell would, and in the folders that only root's `PATH` has.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let administrators = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(administrators)
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// The command as typed at a prompt: the program by its name, without cargo's long path.
fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let name = program.file_name().unwrap_or(program.as_os_str());
    let parts = std::iter::once(name).chain(command.get_args());
    parts.map(|part| part.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines that a script printed before it ended, or was killed for its silence.
    fn lines_of(script: &str, silence_max: Duration) -> (Result<ExitStatus>, Vec<String>) {
        let mut lines = Vec::new();
        let mut command = program("sh", &["-c", script]);
        let status = run_watched(&mut command, silence_max, |line| lines.push(line.to_owned()));
        (status, lines)
    }

    #[test]
    fn a_watched_command_gives_the_lines_of_both_streams_in_order() {
        let script = "echo one; echo two >&2; printf three; exit 3";
        let (status, lines) = lines_of(script, Duration::MAX);
        assert_eq!(lines, ["one", "two", "three"]);
        assert_eq!(status.unwrap().code(), Some(3));
    }

    #[test]
    fn a_watched_command_ends_though_a_process_keeps_its_output_open() {
        let (status, lines) = lines_of("sleep 20 & echo $!", Duration::MAX);
        assert!(status.unwrap().success());
        run(&mut program("kill", &[lines[0].as_str()])).unwrap();
    }

    #[test]
    fn a_silent_command_is_killed_with_what_it_started() {
        // The inner shell prints its own id, which is that of `sleep` then.
        let script = "sh -c 'echo $$; exec sleep 600'; echo ended";
        let (status, lines) = lines_of(script, Duration::from_millis(500));
        let error = status.unwrap_err().to_string();
        assert!(error.contains("has printed nothing for"), "{error}");
        let [sleep] = &lines[..] else { panic!("{lines:?}") };
        // A process that was killed ends when the kernel next runs it: on a busy machine, after this one.
        let deadline = Instant::now() + Duration::from_secs(60);
        while running(sleep) {
            assert!(Instant::now() < deadline, "{sleep} still runs");
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether a process exists that is more than an entry for its parent.
    fn running(process: &str) -> bool {
        let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }
}
