//! The commands that clients run with `kubectl exec` in a worker's container: `sh -c "kill 1"` and `cat FILE`. The images hold
//! no shell; the program of the image is linked to `/bin/sh` and `/bin/cat`, and understands these commands and no others.
//! No shell syntax is interpreted.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rustix::process::{Pid, Signal, kill_process};

/// The exit code of a shell for a command that it does not find.
const COMMAND_NOT_FOUND: u8 = 127;
/// The exit code of a shell for arguments that it does not understand.
const USAGE: u8 = 2;

/// What the program was called to do instead of its own work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContainerCommand {
    /// Send a signal to a process.
    Kill {
        /// 1 is the container's main process.
        pid: Pid,
        /// Default: SIGTERM.
        signal: Signal,
    },
    Cat {
        paths: Vec<PathBuf>,
    },
}

/// Why a command is not run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this image has no shell: it knows `kill PID` and `cat FILE`, not {command:?}")]
pub struct UnknownCommand {
    pub command: String,
}

/// Runs a command if the program was called as `sh` or `cat`: by its first argument, which is its name. Otherwise `None`, and
/// the program does its own work.
pub fn run_container_command(mut arguments: impl Iterator<Item = String>) -> Option<ExitCode> {
    let name = arguments.next()?;
    let arguments: Vec<_> = arguments.collect();
    let command = match Path::new(&name).file_name().and_then(OsStr::to_str) {
        Some("sh") => ContainerCommand::parse_shell_arguments(&arguments),
        Some("cat") => ContainerCommand::parse_cat(arguments.iter().map(String::as_str)),
        _ => return None,
    };
    Some(match command {
        Ok(command) => command.run(),
        Err(error) => {
            eprintln!("{error}");
            COMMAND_NOT_FOUND.into()
        }
    })
}

impl ContainerCommand {
    /// Reads the arguments of a shell: `-c` and one command.
    ///
    /// # Errors
    /// When the command is neither `kill` nor `cat`, or has other arguments than these.
    pub fn parse_shell_arguments(arguments: &[String]) -> Result<Self, UnknownCommand> {
        let unknown = || UnknownCommand { command: arguments.join(" ") };
        let [flag, line] = arguments else { return Err(unknown()) };
        if flag != "-c" || !line.chars().all(is_plain) {
            return Err(unknown());
        }
        let arguments: Vec<_> = line.split_whitespace().collect();
        match arguments.as_slice() {
            ["kill", rest @ ..] => Self::parse_kill(rest).ok_or_else(unknown),
            ["cat", rest @ ..] => Self::parse_cat(rest.iter().copied()).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }

    fn parse_kill(arguments: &[&str]) -> Option<Self> {
        let (signal, pid) = match arguments {
            [pid] => (Signal::TERM, pid),
            [signal, pid] => (parse_signal(signal.strip_prefix('-')?)?, pid),
            _ => return None,
        };
        // Refuses a process group (negative) and all processes (-1).
        let pid = pid.parse::<u32>().ok().and_then(|pid| i32::try_from(pid).ok());
        let pid = pid.and_then(Pid::from_raw)?;
        Some(Self::Kill { pid, signal })
    }

    fn parse_cat<'a>(paths: impl Iterator<Item = &'a str>) -> Result<Self, UnknownCommand> {
        let paths: Vec<&str> = paths.collect();
        if paths.is_empty() || paths.iter().any(|path| path.starts_with('-')) {
            return Err(UnknownCommand { command: format!("cat {}", paths.join(" ")) });
        }
        Ok(Self::Cat { paths: paths.into_iter().map(PathBuf::from).collect() })
    }

    fn run(&self) -> ExitCode {
        match self {
            Self::Kill { pid, signal } => match kill_process(*pid, *signal) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("cannot send a signal to process {}: {error}", pid.as_raw_nonzero());
                    ExitCode::FAILURE
                }
            },
            Self::Cat { paths } => match paths.iter().try_for_each(|path| print(path)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("{error}");
                    USAGE.into()
                }
            },
        }
    }
}

fn print(path: &Path) -> io::Result<()> {
    let copied = File::open(path).and_then(|mut file| io::copy(&mut file, &mut io::stdout()));
    let named = |error| io::Error::other(format!("cannot print {}: {error}", path.display()));
    copied.map(drop).map_err(named)
}

/// A number or a name, with or without `SIG`.
fn parse_signal(text: &str) -> Option<Signal> {
    match text.strip_prefix("SIG").unwrap_or(text) {
        "15" | "TERM" => Some(Signal::TERM),
        "2" | "INT" => Some(Signal::INT),
        "9" | "KILL" => Some(Signal::KILL),
        _ => None,
    }
}

/// A character without a special meaning in a shell.
fn is_plain(character: char) -> bool {
    character.is_ascii_alphanumeric() || " /._-".contains(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(arguments: &[&str]) -> Result<ContainerCommand, UnknownCommand> {
        let arguments: Vec<_> = arguments.iter().map(|text| (*text).to_owned()).collect();
        ContainerCommand::parse_shell_arguments(&arguments)
    }

    #[test]
    fn kill_parses_signal_names_and_numbers() {
        let pid = |number| Pid::from_raw(number).unwrap();
        for (line, number, signal) in [
            ("kill 1", 1, Signal::TERM),
            ("kill  -TERM 1", 1, Signal::TERM),
            ("kill -SIGINT 7", 7, Signal::INT),
            ("kill -9 65535", 65535, Signal::KILL),
        ] {
            let expected = ContainerCommand::Kill { pid: pid(number), signal };
            assert_eq!(shell(&["-c", line]), Ok(expected), "{line}");
        }
    }

    #[test]
    fn cat_keeps_the_order_of_its_files() {
        let expected = ContainerCommand::Cat { paths: vec!["/etc/passwd".into(), "b".into()] };
        assert_eq!(shell(&["-c", "cat /etc/passwd b"]), Ok(expected.clone()));
        assert_eq!(ContainerCommand::parse_cat(["/etc/passwd", "b"].into_iter()), Ok(expected));
    }

    #[test]
    fn other_commands_are_refused_with_a_hint() {
        for arguments in [
            &[][..],
            &["kill 1"],
            &["-c"],
            &["-c", ""],
            &["-c", "kill"],
            &["-c", "kill 0"],
            &["-c", "kill -1"],
            &["-c", "kill -9 -1"],
            &["-c", "kill -HUP 1"],
            &["-c", "kill 1; cat /etc/passwd"],
            &["-c", "kill $(cat /tmp/pid)"],
            &["-c", "cat"],
            &["-c", "cat -"],
            &["-c", "cat /etc/passwd > /tmp/a"],
            &["-c", "rm /data/disk.img"],
            &["-x", "kill 1"],
            &["-c", "kill 1", "more"],
        ] {
            let error = shell(arguments).unwrap_err().to_string();
            assert!(error.starts_with("this image has no shell"), "{arguments:?}: {error}");
        }
    }

    #[test]
    fn program_called_by_its_own_name_runs_no_command() {
        for name in ["/usr/bin/cdi-uploadserver", "bash", "", "/bin/sh/x"] {
            let arguments = [name, "-c", "kill 1"].map(str::to_owned);
            assert!(run_container_command(arguments.into_iter()).is_none(), "{name}");
        }
        assert!(run_container_command(std::iter::empty()).is_none());
        let refused = ["/bin/sh", "-c", "reboot"].map(str::to_owned);
        assert!(run_container_command(refused.into_iter()).is_some());
    }
}
