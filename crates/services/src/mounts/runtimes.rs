//! Runtimes of mounted programs: what makes each of them use the connect proxy.
//!
//! Takes the folder of a program and the port of its connect proxy; gives variables, and writes the two files that they
//! name. Promise: a program of Node.js, Python or Java reaches its hosts without a setting of its own; a variable that
//! the operator sets for the program is kept.

use std::fs;
use std::path::Path;

/// Loaded by Node.js before the program.
const NODE: &str = include_str!("runtimes/node_proxy.cjs");
/// Loaded by Python before the program.
const PYTHON: &str = include_str!("runtimes/sitecustomize.py");
/// Hosts of the program itself.
const LOCAL: &str = "localhost,127.0.0.1,::1";

/// The variables for a program whose connect proxy is at this port.
///
/// # Errors
/// When a file in the folder of the program cannot be written.
pub(super) fn variables(own: &Path, port: u16) -> Result<Vec<(String, String)>, String> {
    let folder = own.join("runtimes");
    fs::create_dir_all(folder.join("python")).map_err(|error| unwritable(&folder, &error))?;
    let (node, python) = (folder.join("node_proxy.cjs"), folder.join("python"));
    for (path, text) in [(&node, NODE), (&python.join("sitecustomize.py"), PYTHON)] {
        // The program may have written it: it is restored at each start.
        fs::write(path, text).map_err(|error| unwritable(path, &error))?;
    }
    let proxy = format!("http://127.0.0.1:{port}");
    let mut all: Vec<(String, String)> = Vec::new();
    for name in ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"] {
        all.push((name.to_owned(), proxy.clone()));
        all.push((name.to_lowercase(), proxy.clone()));
    }
    let java = format!(
        "-Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={port} -Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={port} \
         -Dhttp.nonProxyHosts=localhost|127.*"
    );
    let quoted = node.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    let more = [
        ("NO_PROXY", LOCAL.to_owned()),
        ("no_proxy", LOCAL.to_owned()),
        ("SLUICE_EGRESS_PROXY", proxy.clone()),
        // Node.js from 22.21 and 24 on does it by itself; older ones load the file.
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
        ("NODE_OPTIONS", format!("--require \"{quoted}\"")),
        ("GLOBAL_AGENT_HTTP_PROXY", proxy.clone()),
        ("GLOBAL_AGENT_HTTPS_PROXY", proxy),
        ("GLOBAL_AGENT_NO_PROXY", LOCAL.to_owned()),
        ("PYTHONPATH", python.display().to_string()),
        ("JAVA_TOOL_OPTIONS", java),
    ];
    all.extend(more.map(|(name, value)| (name.to_owned(), value)));
    Ok(all)
}

/// Sets a variable of the operator among those of the runtimes. Options and search paths are joined: both count.
pub(super) fn set(variables: &mut Vec<(String, String)>, name: &str, value: String) {
    let between = match name {
        "NODE_OPTIONS" | "JAVA_TOOL_OPTIONS" => " ",
        "PYTHONPATH" => ":",
        _ => "",
    };
    match variables.iter_mut().find(|(known, _)| known == name) {
        Some((_, before)) if !between.is_empty() => *before = format!("{before}{between}{value}"),
        Some((_, before)) => *before = value,
        None => variables.push((name.to_owned(), value)),
    }
}

fn unwritable(path: &Path, error: &std::io::Error) -> String {
    format!("`{}` cannot be written: {error}", path.display())
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::net::TcpListener;
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_variable_of_the_operator_is_kept_and_options_are_joined() {
        let folder = tempfile::tempdir().unwrap();
        let mut all = variables(folder.path(), 3128).unwrap();
        set(&mut all, "NODE_OPTIONS", "--max-old-space-size=64".into());
        set(&mut all, "NO_PROXY", "a.example".into());
        set(&mut all, "KEY", "value".into());
        let of = |name: &str| all.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str()).unwrap();
        assert!(
            of("NODE_OPTIONS").starts_with("--require \"") && of("NODE_OPTIONS").ends_with(" --max-old-space-size=64")
        );
        assert_eq!((of("NO_PROXY"), of("KEY"), of("https_proxy")), ("a.example", "value", "http://127.0.0.1:3128"));
        let names: std::collections::BTreeSet<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names.len(), all.len(), "each variable once");
    }

    /// A proxy that refuses everything and tells what it was asked for.
    fn refusing_proxy() -> (u16, mpsc::Receiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, (tell, told)) = (listener.local_addr().unwrap().port(), mpsc::channel());
        std::thread::spawn(move || {
            for line in listener.incoming().flatten() {
                let mut asked = String::new();
                let mut reader = BufReader::new(line);
                drop(reader.read_line(&mut asked));
                let mut rest = String::new();
                while reader.read_line(&mut rest).is_ok_and(|read| read > 2) {
                    rest.clear();
                }
                drop(reader.get_mut().write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n"));
                if tell.send(asked.trim().to_owned()).is_err() {
                    return;
                }
            }
        });
        (port, told)
    }

    /// Runs a program with the variables of a mount; gives what the proxy was asked for, and what the program said.
    fn asked(program: &str, args: &[&str]) -> Option<(Vec<String>, String)> {
        let folder = tempfile::tempdir().unwrap();
        let (port, told) = refusing_proxy();
        let mut command = Command::new(program);
        command.args(args).env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", folder.path()).envs(variables(folder.path(), port).unwrap()).stdin(Stdio::null());
        let Ok(run) = command.output() else {
            eprintln!("skipped: there is no `{program}`");
            return None;
        };
        let said = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
        Some((told.try_iter().collect(), said))
    }

    /// What a runtime asks the proxy for, up to the revision of HTTP.
    const WANTED: &str = "CONNECT api.example.com:443 HTTP/1.";

    #[test]
    fn node_asks_the_proxy_with_fetch_and_with_https_and_names_the_host_that_is_refused() {
        for script in [
            "fetch('https://api.example.com/').catch((e) => console.log(String(e.cause || e)))",
            "require('https').get('https://api.example.com/').on('error', (e) => console.log(String(e)))",
            "require('tls').connect(443, 'api.example.com').on('error', (e) => console.log(String(e)))",
        ] {
            let Some((asked, said)) = asked("node", &["-e", script]) else { return };
            assert!(asked.len() == 1 && asked[0].starts_with(WANTED), "{script}: {asked:?} {said}");
        }
        let script = "require('https').get('https://api.example.com/').on('error', (e) => console.log(e.message))";
        let Some((_, said)) = asked("node", &["-e", script]) else { return };
        assert!(said.contains("refuses a connection to api.example.com:443; if it is needed, add"), "{said}");
    }

    #[test]
    fn a_program_that_node_starts_has_the_variables_that_node_itself_must_not_see() {
        let script = "console.log('own', process.env.HTTPS_PROXY); \
                      require('child_process').exec('echo child $HTTPS_PROXY', (e, out) => console.log(out))";
        let Some((_, said)) = asked("node", &["-e", script]) else { return };
        assert!(said.contains("own undefined") && said.contains("child http://127.0.0.1:"), "{said}");
    }

    #[test]
    fn python_and_java_ask_the_proxy() {
        let python =
            "import urllib.request as r\ntry: r.urlopen('https://api.example.com/')\nexcept Exception as e: print(e)";
        if let Some((asked, said)) = asked("python3", &["-c", python]) {
            assert!(asked.iter().any(|line| line.starts_with(WANTED)), "{asked:?} {said}");
        }
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("Ask.java");
        let text = "import java.net.URI; import java.net.http.*; public class Ask { public static void main(String[] a) { try { \
                    HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(\"https://api.example.com/\")).build(), \
                    HttpResponse.BodyHandlers.ofString()); } catch (Exception e) { System.out.println(e); } } }";
        fs::write(&source, text).unwrap();
        if let Some((asked, said)) = asked("java", &[&source.display().to_string()]) {
            assert!(asked.iter().any(|line| line.starts_with(WANTED)), "{asked:?} {said}");
        }
    }
}
