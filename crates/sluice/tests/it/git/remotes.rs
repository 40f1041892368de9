//! Remotes: the real git protocol over HTTP, through egress and nothing else.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::json;
use sluice_core::Millis;
use sluice_egress::vault::{NewSecretValue, SecretScope, SecretValue};
use sluice_gateway::rooms::rollback;

use super::test_gateway::{FREE, GitTestGateway, ana, git, has_git, repository};

/// A server of repositories: git's own, behind a few lines of HTTP. It counts, and may want a password.
struct GitHttpServer {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl GitHttpServer {
    fn open(folder: PathBuf, password: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let shared = Arc::clone(&heard);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (folder, shared) = (folder.clone(), Arc::clone(&shared));
                std::thread::spawn(move || while serve(&stream, &folder, password, &shared).is_some() {});
            }
        });
        Self { address, heard }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }
}

fn serve(mut stream: &TcpStream, folder: &Path, password: Option<&str>, heard: &Mutex<Vec<String>>) -> Option<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    heard.lock().unwrap().push(head.clone());
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(&format!("{name}:")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    let mut body = vec![0; field("content-length").and_then(|text| text.parse().ok()).unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    if password.is_some() && field("authorization").as_deref() != password {
        stream.write_all(b"HTTP/1.1 401 x\r\nwww-authenticate: Basic realm=x\r\ncontent-length: 0\r\n\r\n").ok()?;
        return Some(());
    }
    let mut words = head.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut command = Command::new("git");
    command.args(["-c", "http.receivepack=true", "-c", "safe.directory=*", "http-backend"]);
    command.env("GIT_PROJECT_ROOT", folder).env("GIT_HTTP_EXPORT_ALL", "1").env("REQUEST_METHOD", method);
    command.env("PATH_INFO", path).env("QUERY_STRING", query).env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("CONTENT_TYPE", field("content-type").unwrap_or_default()).env("REMOTE_USER", "ana");
    command.env("CONTENT_LENGTH", body.len().to_string());
    if let Some(encoding) = field("content-encoding") {
        command.env("HTTP_CONTENT_ENCODING", encoding);
    }
    if let Some(protocol) = field("git-protocol") {
        command.env("GIT_PROTOCOL", protocol);
    }
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut input = child.stdin.take()?;
    let feeding = std::thread::spawn(move || drop(input.write_all(&body)));
    let output = child.wait_with_output().ok()?;
    feeding.join().ok()?;
    let at = output.stdout.windows(4).position(|four| four == b"\r\n\r\n")?;
    let answered = String::from_utf8_lossy(&output.stdout[..at]).into_owned();
    let status = answered.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK").to_owned();
    let kind = answered.lines().find_map(|line| line.strip_prefix("Content-Type: ")).unwrap_or("text/plain").to_owned();
    let content = &output.stdout[at + 4..];
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n", content.len());
    stream.write_all(head.as_bytes()).ok()?;
    stream.write_all(content).ok()
}

/// A bare repository `shop.git` and a server for it.
fn served(folder: &Path, password: Option<&'static str>) -> GitHttpServer {
    repository(&folder.join("origin"));
    git(folder, &["clone", "-q", "--bare", "origin", "shop.git"]);
    GitHttpServer::open(folder.to_path_buf(), password)
}

fn settings(server: &GitHttpServer, secret: &str) -> String {
    format!(
        "git: {{enabled: true, connections: [forge]}}\negress:\n  connections:\n    forge: {{hosts: [127.0.0.1], ports: [{}], \
         http: true, methods: [GET, POST], allow_addresses: [127.0.0.1/32], per_minute: off, per_hour: off, burn: off{secret}}}\n",
        server.address.port()
    )
}

#[tokio::test]
async fn a_repository_is_cloned_pulled_and_pushed_through_egress() {
    if !has_git() {
        return;
    }
    let far = tempfile::tempdir().unwrap();
    let server = served(far.path(), None);
    let mut house = GitTestGateway::new(&settings(&server, ""), FREE, "").await;
    let (folder, path, bare) = (house.work().join("shop"), house.path("shop"), far.path().join("shop.git"));
    let (_, state, result) = house.write("git.clone", json!({"url": server.url("shop.git"), "path": path})).await;
    assert_eq!(state, "done", "{result} {:?}", server.heard.lock().unwrap());
    assert_eq!(fs::read_to_string(folder.join("a.txt")).unwrap(), "one\n");
    assert_eq!(git(&folder, &["status", "--porcelain"]), "");
    assert_eq!(git(&folder, &["remote", "get-url", "origin"]), server.url("shop.git"));
    // Something new at the remote.
    fs::write(far.path().join("origin/a.txt"), "two\n").unwrap();
    git(&far.path().join("origin"), &["commit", "-q", "-am", "second"]);
    git(&far.path().join("origin"), &["push", "-q", "../shop.git", "main"]);
    let before = git(&folder, &["rev-parse", "HEAD"]);
    let (pulled, state, result) = house.write("git.pull", json!({"path": path})).await;
    assert_eq!((state, fs::read_to_string(folder.join("a.txt")).unwrap().as_str()), ("done", "two\n"), "{result}");
    let done = house.hold(pulled).await;
    assert_eq!(done.action.arguments()["remote"], server.url("shop.git"), "people are shown the address");
    let back = rollback::take_back(&house.gw, &done, ana()).await.unwrap();
    assert_eq!(house.settle(back).await, "done");
    assert_eq!(
        (git(&folder, &["rev-parse", "HEAD"]), fs::read_to_string(folder.join("a.txt")).unwrap()),
        (before, "one\n".into())
    );
    assert_eq!(house.write("git.pull", json!({"path": path})).await.1, "done");
    // And back.
    fs::write(folder.join("b.txt"), "b\n").unwrap();
    let wish = json!({"path": path, "message": "third", "author_name": "A", "author_email": "a@example.com"});
    assert_eq!(house.write("git.commit", wish).await.1, "done");
    let (_, state, result) = house.write("git.push", json!({"path": path})).await;
    assert_eq!(state, "done", "{result}");
    assert_eq!(git(&bare, &["log", "-1", "--format=%s", "main"]), "third");
    // What diverged is not forced.
    git(&bare, &["update-ref", "refs/heads/main", "main~1"]);
    git(&far.path().join("origin"), &["commit", "-q", "--allow-empty", "-m", "elsewhere"]);
    git(&far.path().join("origin"), &["push", "-q", "../shop.git", "main"]);
    fs::write(folder.join("c.txt"), "c\n").unwrap();
    let wish = json!({"path": path, "message": "fourth", "author_name": "A", "author_email": "a@example.com"});
    assert_eq!(house.write("git.commit", wish).await.1, "done");
    assert_eq!(house.write("git.push", json!({"path": path})).await.1, "dead");
    assert_eq!(git(&bare, &["log", "-1", "--format=%s", "main"]), "elsewhere");
    assert_eq!(house.write("git.pull", json!({"path": path})).await.1, "dead");
    assert_eq!(git(&folder, &["log", "-1", "--format=%s"]), "fourth");
}

#[tokio::test]
async fn the_credential_is_added_by_egress_and_git_never_holds_it() {
    if !has_git() {
        return;
    }
    let far = tempfile::tempdir().unwrap();
    // "ana:canary-pass-77" as Basic.
    let server = served(far.path(), Some("Basic YW5hOmNhbmFyeS1wYXNzLTc3"));
    let config = settings(&server, ", secret: forge-token, credential: basic");
    let mut house = GitTestGateway::new(&config, FREE, "").await;
    let path = house.path("shop");
    let wish = json!({"url": server.url("shop.git"), "path": path});
    assert_eq!(house.write("git.clone", wish.clone()).await.1, "dead", "nobody has put a secret into the vault yet");
    let scope = SecretScope::new(vec!["git.*".into()], &["127.0.0.1".to_owned()]).unwrap();
    let value = SecretValue::new(b"ana:canary-pass-77".to_vec());
    let new = NewSecretValue { value, kind: None, scope: Some(scope), overlap: Millis::ZERO };
    house.gw.vault.set(&sluice_core::ids::SecretName::new("forge-token").unwrap(), new, ana()).await.unwrap();
    let wish = json!({"url": server.url("shop.git"), "path": house.path("again")});
    let (_, state, result) = house.write("git.clone", wish).await;
    assert_eq!(state, "done", "{result}");
    for entry in walk(house.folder.path()) {
        let text = String::from_utf8_lossy(&fs::read(&entry).unwrap_or_default()).into_owned();
        assert!(!text.contains("canary-pass-77") && !text.contains("YW5hOmNhbmFy"), "{}", entry.display());
    }
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_dir() { found.extend(walk(&entry.path())) } else { found.push(entry.path()) }
    }
    found
}

#[tokio::test]
async fn nothing_but_the_declared_host_is_reached_and_secrets_stay() {
    if !has_git() {
        return;
    }
    let far = tempfile::tempdir().unwrap();
    let server = served(far.path(), None);
    let mut house = GitTestGateway::new(&settings(&server, ""), FREE, "").await;
    for url in
        ["https://example.com/x.git", "ssh://127.0.0.1/x", "file:///etc", "ext::sh", "/etc", "http://127.0.0.1:1/x"]
    {
        let wish = json!({"url": url, "path": house.path("new")});
        assert_eq!(house.refused("git.clone", wish).await, "git.remote_not_allowed", "{url}");
    }
    assert!(server.heard.lock().unwrap().is_empty());
    let path = house.path("shop");
    assert_eq!(house.write("git.clone", json!({"url": server.url("shop.git"), "path": path})).await.1, "done");
    let key = format!("{}{}", "AKIA", "IOSFODNN7EXAMPLQ");
    fs::write(house.work().join("shop/key"), format!("aws = {key}\n")).unwrap();
    let wish = json!({"path": path, "message": "key", "author_name": "A", "author_email": "a@example.com"});
    assert_eq!(house.write("git.commit", wish).await.1, "done");
    let heard = server.heard.lock().unwrap().len();
    assert_eq!(house.refused("git.push", json!({"path": path})).await, "leak.found");
    assert_eq!(server.heard.lock().unwrap().len(), heard, "nothing left");
}
