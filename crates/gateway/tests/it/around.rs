//! Folders around the gateway's own files: no command and no tool reads everything below one.

use serde_json::json;
use sluice_services::gateway_files::GatewayOwnFiles;

#[test]
fn whatever_walks_through_a_folder_around_the_gateways_files_is_found() {
    let world = tempfile::tempdir().unwrap();
    let base = std::fs::canonicalize(world.path()).unwrap();
    for folder in ["home/gate/data/agents", "home/app/src"] {
        std::fs::create_dir_all(base.join(folder)).unwrap();
    }
    std::fs::write(base.join("home/gate/data/operator.token"), "x").unwrap();
    std::os::unix::fs::symlink(base.join("home"), base.join("home/app/up")).unwrap();
    let own =
        GatewayOwnFiles::nearby(Some(base.join("home"))).and_of_key(&base.join("home/gate/data/agents/coder.key"));
    let (home, app) = (base.join("home"), base.join("home/app"));
    let (home, app) = (home.to_str().unwrap(), app.to_str().unwrap());
    for command in [
        format!("grep -r sgo_ {home}"),
        format!("grep -rn --include='*' sgo_ {home}/gate"),
        format!("egrep --recursive sgo_ {home}"),
        "grep -R sgo_ ..".to_owned(),
        "rg sgo_ ..".to_owned(),
        "cd .. && rg sgo_".to_owned(),
        "cd ../gate; grep -r sgo_".to_owned(),
        "rg sgo_ ~".to_owned(),
        "rg sgo_ up".to_owned(),
        format!("rg -e sgo_ {home}"),
        format!("rg sgo_ {home}/g*"),
        format!("cp -r {home} /tmp/x"),
        "cp -a ../gate .".to_owned(),
        format!("cp -r -t /tmp/x {home}"),
        format!("mv {home}/gate /tmp/x"),
        format!("rsync -a {home}/ /tmp/x"),
        format!("tar cf /tmp/x.tar {home}"),
        format!("tar -c -C {home} gate"),
        format!("zip -r /tmp/x.zip {home}"),
        format!("rm -rf {home}/gate"),
        format!("chmod -R a+r {home}"),
        format!("diff -r {home} /tmp/x"),
        format!("find {home} -name '*.token' -exec cat {{}} +"),
        format!("find {home} -type f | xargs cat"),
        format!("sh -c 'grep -r sgo_ {home}'"),
        format!("for f in $(find {home} -type f); do cat \"$f\"; done"),
        format!("git grep --no-index sgo_ {home}"),
        format!("sudo grep -r sgo_ {home}"),
        format!("echo $(grep -r sgo_ {home})"),
    ] {
        let call = json!({"command": command});
        assert!(own.walked_in("custom:exec_cmd", &call, Some(app)).is_some(), "{command}");
    }
    for (tool, call) in [
        ("custom:exec_cmd", json!({"command": ["grep", "-r", "sgo_", home]})),
        ("custom:exec_cmd", json!({"command": ["bash", "-lc", format!("rg sgo_ {home}")]})),
        ("Grep", json!({"pattern": "sgo_", "path": home})),
        ("Grep", json!({"pattern": "sgo_", "path": ".."})),
        ("search_file_content", json!({"pattern": "sgo_", "dir_path": home})),
        ("custom:mcp.files.search_files", json!({"path": home, "pattern": "token"})),
        ("custom:mcp.files.copy_directory", json!({"source": home, "destination": "/tmp/x"})),
    ] {
        assert!(own.walked_in(tool, &call, Some(app)).is_some(), "{tool} {call}");
    }
    assert!(own.walked_in("Grep", &json!({"pattern": "sgo_"}), Some(home)).is_some(), "the current folder");

    for command in [
        "grep -rn / src",
        "rg foo",
        "rg foo src",
        "grep sgo_ ../x",
        "ls -R ..",
        "find / -name x",
        "find .. -type d",
        "cd .. && ls",
        "cp -r src ..",
        "mv src ..",
        "tar xf a.tar -C ..",
        "rm -rf target",
        "git add . && git commit -m 'a / b'",
        "cargo test -- --test-threads=1",
        "echo ..; rg foo src",
        "find .. -name x; cat src/a",
        "cat > x.sh <<'E'\ncp -r .. y\nE",
    ] {
        let call = json!({"command": command});
        assert_eq!(own.walked_in("custom:exec_cmd", &call, Some(app)), None, "{command}");
    }
    for (tool, call) in [
        ("Grep", json!({"pattern": "/", "path": "src"})),
        ("Grep", json!({"pattern": "x"})),
        ("Read", json!({"file_path": format!("{app}/src/main.rs")})),
        ("LS", json!({"path": home})),
        ("custom:mcp.cloud.search", json!({"path": "/", "term": "x"})),
        ("apply_patch", json!({"input": format!("*** Begin Patch\n*** Add File: x.sh\n+cp -r {home} y\n")})),
    ] {
        assert_eq!(own.walked_in(tool, &call, Some(app)), None, "{tool} {call}");
    }
}
