//! A headless browser, controlled through its debugging pipe.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use testkit::require_tool;

// A browser is slow while all cores are busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// It reads commands as file 3 and writes as file 4, and ends when the other end of the pipes is closed.
const START: &str = r#"
mkfifo "$1/commands" "$1/answers"
exec "$2" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking \
    --disable-component-update --no-first-run --user-data-dir="$1/profile" --remote-debugging-pipe \
    --ignore-certificate-errors --proxy-server="$3" about:blank 3<"$1/commands" 4>"$1/answers"
"#;

pub struct Browser {
    process: Child,
    commands: File,
    answers: Receiver<Value>,
    session: Option<String>,
    count: u64,
    folder: TempDir,
}

impl Browser {
    /// A browser with an empty page that uses `proxy`. `None`, with a message, if no browser is installed.
    pub fn start(proxy: &str) -> Option<Self> {
        let program = require_tool("chromium-headless-shell")?;
        let folder = tempfile::tempdir().unwrap();
        let words = File::create(folder.path().join("words")).unwrap();
        let process = Command::new("bash")
            .args(["-euc", START, "browser"])
            .args([folder.path(), program.path(), Path::new(proxy)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(words)
            .spawn()
            .unwrap();
        // Each of them opens when the other side does, in this order.
        let pipe = |name: &str| folder.path().join(name);
        let begin = Instant::now();
        while !pipe("answers").exists() {
            assert!(begin.elapsed() < PATIENCE, "bash does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        let commands = File::options().write(true).open(pipe("commands")).unwrap();
        let mut reader = BufReader::new(File::open(pipe("answers")).unwrap());
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            let mut text = Vec::new();
            while reader.read_until(0, &mut text).is_ok_and(|count| count > 0) {
                let answer = serde_json::from_slice(text.strip_suffix(&[0]).unwrap_or(&text));
                if answer.is_ok_and(|answer: Value| sender.send(answer).is_err()) {
                    break;
                }
                text.clear();
            }
        });
        let mut browser = Self { process, commands, answers, session: None, count: 0, folder };
        let page = browser.ask("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": page["targetId"], "flatten": true });
        let session = browser.ask("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        Some(browser)
    }

    /// Sends a command and waits for its result.
    pub fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.count += 1;
        let mut command = json!({ "id": self.count, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            command["sessionId"] = session.as_str().into();
        }
        self.commands.write_all(format!("{command}\0").as_bytes()).unwrap();
        loop {
            let answer = self.answers.recv_timeout(PATIENCE);
            let answer =
                answer.unwrap_or_else(|_| panic!("no answer to {method}: {}", self.words()));
            if answer["id"] == self.count {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    /// Evaluates an expression in the page.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let what = json!({ "expression": expression, "returnByValue": true });
        self.ask("Runtime.evaluate", what)["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    pub fn wait(&mut self, expression: &str) {
        let begin = Instant::now();
        while self.evaluate(expression) != true {
            if begin.elapsed() > PATIENCE {
                let text = self.evaluate("document.body.innerText");
                panic!("it never came to {expression}, but to {text}: {}", self.words());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Chooses a file, as a click would.
    pub fn choose(&mut self, input: &str, file: &Path) {
        let root = self.ask("DOM.getDocument", json!({}))["root"]["nodeId"].clone();
        let found = self.ask("DOM.querySelector", json!({ "nodeId": root, "selector": input }));
        let files = json!({ "nodeId": found["nodeId"], "files": [file] });
        self.ask("DOM.setFileInputFiles", files);
    }

    fn words(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("words")).unwrap_or_default()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It is the process that bash was, and takes its own along.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
