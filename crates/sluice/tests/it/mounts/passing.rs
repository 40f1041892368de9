//! What a mounted server answers, as a client of the gateway gets it: its own blocks, its own structured content, and
//! nothing that could unpack to more than it says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use super::*;

/// One pixel.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";
/// The same with a width and height of 50,000 in its header.
const BOMB: &str = "iVBORw0KGgoAAAANSUhEUgAAw1AAAMNQCAYAAAAfFcSJAAAADUlEQVR4nGNgYGBgAAAABQABpfZFQAAAAABJRU5ErkJggg==";

/// The bridge as an MCP client starts it.
struct BridgeClient {
    child: Child,
    input: ChildStdin,
    output: std::io::Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl BridgeClient {
    fn new(scene: &MountTestGateway) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .arg("mcp")
            .env_clear()
            .env("SLUICE_URL", format!("http://{}", scene.place.main))
            .env("SLUICE_AGENT_KEY", &scene.place.agent_key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut client = Self { child, input, output, asked: 0 };
        client.request(
            "initialize",
            json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}),
        );
        client
    }

    fn request(&mut self, method: &str, params: Value) -> Value {
        self.asked += 1;
        let message = json!({"jsonrpc": "2.0", "id": self.asked, "method": method, "params": params});
        writeln!(self.input, "{message}").unwrap();
        loop {
            let said: Value = serde_json::from_str(&self.output.next().unwrap().unwrap()).unwrap();
            if said["id"] == self.asked {
                return said;
            }
        }
    }

    fn call(&mut self, tool: &str) -> Value {
        let arguments = json!({"text": format!("{}", self.asked)});
        self.request("tools/call", json!({"name": tool, "arguments": arguments}))["result"].clone()
    }
}

impl Drop for BridgeClient {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A server whose next result is what its file says.
fn scene() -> (tempfile::NamedTempFile, MountTestGateway) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let more = format!("      STUB_FILE: \"{}\"\n", file.path().display());
    let lines = stub("odd", "verbatim", &more);
    let lines = lines.replace("files: {read: [", &format!("files: {{read: [\"{}\", ", file.path().display()));
    let scene = MountTestGateway::new(&lines, FREE);
    scene.open("odd");
    (file, scene)
}

#[test]
fn a_result_passes_as_the_server_sent_it_and_the_gateway_adds_metadata_and_one_line() {
    let (file, scene) = scene();
    let mut client = BridgeClient::new(&scene);
    let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
    let link = json!({"type": "resource_link", "uri": "memo://notes/1", "name": "notes"});
    let content = json!([{"type": "text", "text": "noon"}, image, link]);
    let said = json!({"content": content, "structuredContent": {"at": "noon"}});
    fs::write(file.path(), said.to_string()).unwrap();
    for tool in ["odd_echo", "odd_write"] {
        let result = client.call(tool);
        let blocks = result["content"].as_array().unwrap();
        assert_eq!(&blocks[..3], content.as_array().unwrap().as_slice(), "{tool}: {result}");
        assert_eq!(blocks.len(), 4, "{result}");
        let line = blocks[3]["text"].as_str().unwrap();
        assert!(line.contains(tool) && line.contains("not instructions"), "{line}");
        assert_eq!(result["structuredContent"], json!({"at": "noon"}), "{tool}: once, and nothing of ours in it");
        let envelope = &result["_meta"]["sluice/call"];
        assert_eq!((&envelope["status"], &envelope["source"]), (&json!("done"), &json!("mount.odd")), "{result}");
        assert!(envelope["call_id"].as_str().unwrap().starts_with("call_"), "{result}");
    }
    fs::write(file.path(), json!({"content": [{"type": "text", "text": "no such hour"}], "isError": true}).to_string())
        .unwrap();
    let failed = client.call("odd_echo");
    assert_eq!((&failed["isError"], &failed["content"][0]["text"]), (&json!(true), &json!("no such hour")), "{failed}");
}

#[test]
fn an_image_that_unpacks_to_too_much_or_is_none_is_left_out_and_the_rest_passes() {
    let (file, scene) = scene();
    let mut client = BridgeClient::new(&scene);
    for (data, kind, why) in [
        (BOMB, "image/png", "too many pixels"),
        (PIXEL, "image/jpeg", "not of the type"),
        ("PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+", "image/svg+xml", "not passed on"),
        ("!", "image/png", "damaged"),
    ] {
        let image = json!({"type": "image", "data": data, "mimeType": kind});
        let said = json!({"content": [image, {"type": "text", "text": "beside it"}]});
        fs::write(file.path(), said.to_string()).unwrap();
        let result = client.call("odd_echo");
        let shown = result["content"][0]["text"].as_str().unwrap();
        assert!(shown.starts_with("[image left out:") && shown.contains(why), "{kind}: {result}");
        assert_eq!(result["content"][1]["text"], "beside it", "{result}");
        assert!(!result.to_string().contains(data) || data == "!", "{result}");
    }
}

#[test]
fn a_resource_of_this_machine_is_a_name_in_a_link_and_nothing_that_the_gateway_reads() {
    let (file, scene) = scene();
    let mut client = BridgeClient::new(&scene);
    let read = client.request("resources/read", json!({"uri": "file:///etc/shadow"}));
    assert_eq!(read["error"]["code"], -32601, "{read}");
    assert!(!read.to_string().contains("root:"), "{read}");
    let link = json!({"type": "resource_link", "uri": "file:///etc/shadow", "name": "shadow"});
    fs::write(file.path(), json!({"content": [link]}).to_string()).unwrap();
    let result = client.call("odd_echo");
    assert!(!result.to_string().contains("root:"), "{result}");
}

#[test]
fn a_server_that_floods_with_progress_is_cut_off_and_the_others_go_on() {
    let scene = MountTestGateway::new(&(stub("good", "good", "") + &stub("loud", "floods", "")), FREE);
    scene.open("good");
    scene.open("loud");
    let answer = scene.call("loud.echo", "x");
    assert_eq!(answer.body["code"], "mount.failed", "{answer:?}");
    let mount = scene.until("loud", |mount| mount["restarts"].as_u64().is_some_and(|restarts| restarts > 0));
    assert!(mount.to_string().contains("too many notifications") || mount["state"] != "down", "{mount}");
    assert_eq!(scene.said("good.echo", "still here"), "echo still here");
}
